"""What is known of services and releases: how they are recognised, and that the page says the same."""

from pathlib import Path

import pytest

from spark_kafka_eos.kafka.protocol.facts import Abilities
from spark_kafka_eos.preflight import releases
from spark_kafka_eos.preflight.abilities import sink_findings, source_findings
from spark_kafka_eos.preflight.findings import Severity
from spark_kafka_eos.preflight.releases import BUGS, release_of
from spark_kafka_eos.preflight.services import SERVICES, recognised

PAGE = (Path(__file__).parents[3] / "docs" / "brokers.md").read_text()


@pytest.mark.parametrize(
    ("host", "cluster_id", "name"),
    [
        ("orders.servicebus.windows.net", "", "Azure Event Hubs"),
        ("ORDERS.SERVICEBUS.WINDOWS.NET", "", "Azure Event Hubs"),
        ("api-1.discoveryv2.prod-z.us-east-1.warpstream.com", "", "WarpStream"),
        ("10.0.0.1", "redpanda.7a0e0c7e-0001", "Redpanda"),
        ("servicebus.windows.net.example.org", "", None),
        ("b-1.kafka.eu-west-1.amazonaws.com", "MkU3OEVBNTcwNTJENDM2Qk", None),
    ],
)
def test_a_service_is_recognised_by_its_brokers_names_or_its_clusters_ids(host, cluster_id, name):
    found = recognised(["localhost", host], cluster_id)
    assert (found and found.name) == name


def test_the_page_has_every_service_and_every_bug():
    for service in SERVICES:
        support, read = f"{service.support}.", service.read
        assert f"| {service.name} | {support} | [documentation]({service.source}) | {read} |" in PAGE
    for bug in BUGS:
        assert f"| {bug.issue} | {bug.affected} | {bug.fixed} | {bug.effect}. |" in PAGE


# What brokers of these releases answered.
@pytest.mark.parametrize(
    ("level", "release"),
    [(7, "3.3"), (11, "3.5"), (21, "3.9"), (25, "4.0"), (27, "4.1"), (33, "4.4"), (34, None), (None, None)],
)
def test_the_release_follows_from_the_newest_metadata_version(level, release):
    assert release_of(level) == release


def said(level, transaction_version=2):
    return list(releases.findings(Abilities(lacking={}, metadata_version=level), transaction_version))


@pytest.mark.parametrize(
    ("level", "bugs"),
    [
        (25, ["KAFKA-19367", "KAFKA-20090"]),
        (27, ["KAFKA-20090"]),
        (29, ["KAFKA-20090", "KAFKA-20322"]),
        (30, []),
        (33, []),
    ],
    ids=["4.0", "4.1", "4.2", "4.3", "4.4"],
)
def test_a_release_whose_brokers_may_have_a_bug_is_a_warning(level, bugs):
    (found,) = said(level)
    assert (found.severity is Severity.WARNING) == bool(bugs)
    assert [bug.issue for bug in BUGS if bug.issue in found.meaning] == bugs


def test_the_protocol_before_has_none_of_these_bugs_and_an_unknown_release_is_not_guessed():
    assert [found.severity for found in said(25, transaction_version=1)] == [Severity.OK]
    assert said(None) == said(99) == []


def test_an_error_about_a_known_service_says_what_it_has():
    lacking = Abilities(
        lacking={"EndTxn": "not offered", "Fetch": "versions 4 to 11 offered, 13 to 16 needed"}, metadata_version=None
    )
    service = recognised(["x.servicebus.windows.net"], "")
    (found,) = sink_findings(lacking, service, transactions=True)
    assert found.severity is Severity.ERROR
    assert found.found == "the brokers lack EndTxn, Fetch (versions 4 to 11 offered, 13 to 16 needed)"
    assert found.action.startswith("Azure Event Hubs: Basic has no Kafka endpoint")
    (known,) = sink_findings(Abilities(lacking={}, metadata_version=None), service, transactions=True)
    assert known.severity is Severity.WARNING
    assert list(sink_findings(lacking, None, transactions=False)) == []


def test_a_source_needs_only_what_it_reads_with():
    lacking = {"EndTxn": "not offered", "ListOffsets": "versions 0 to 1 offered, 4 to 7 needed"}
    (found,) = source_findings(Abilities(lacking=lacking, metadata_version=None))
    assert found.severity is Severity.ERROR
    assert found.found == "the brokers lack ListOffsets (versions 0 to 1 offered, 4 to 7 needed)"
    assert list(source_findings(Abilities(lacking={"EndTxn": "not offered"}, metadata_version=None))) == []
