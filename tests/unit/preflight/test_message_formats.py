"""Which topics have a format that no batch can be written in, from what topics and brokers say of themselves."""

from __future__ import annotations

import pytest

from spark_kafka_eos.kafka.protocol.facts import TopicFacts, Unavailable
from spark_kafka_eos.options import sink_options
from spark_kafka_eos.preflight.checks import Facts
from spark_kafka_eos.preflight.findings import Finding, Severity
from spark_kafka_eos.preflight.message_formats import any_old, findings

OUT, LEDGER, OFFSETS, TRANSACTIONS = "orders", "kafka-eos-ledger", "__consumer_offsets", "__transaction_state"
OLD_PROTOCOL = {"inter.broker.protocol.version": "2.8", "log.message.format.version": "3.0-IV1"}
ERROR, WARNING, OK = Severity.ERROR, Severity.WARNING, Severity.OK


def found(brokers, *, options=None, **formats) -> list[Finding]:
    """The findings if these topics (by role) have a format, "" if none, None if they do not exist."""
    roles = {"out": OUT, "ledger": LEDGER, "offsets": OFFSETS, "transactions": TRANSACTIONS}
    topics = {
        name: None
        if (version := formats.get(role, "2.8")) is None
        else TopicFacts(
            partitions=1,
            replicas=1,
            in_sync=1,
            operations=None,
            settings={"message.format.version": version} if version else Unavailable(reason="forbidden"),
        )
        for role, name in roles.items()
    }
    facts = Facts(brokers=1, transaction_version=0, settings=brokers, transaction=None, groups={}, topics=topics)
    given = {"kafka.bootstrap.servers": "b:1", "topic": OUT} | (options or {"kafka.transactional.id": "copy"})
    return list(findings(facts, sink_options(given)))


@pytest.mark.parametrize("version", ["0.8.2", "0.9.0", "0.10.0", "0.10.2-IV0"])
def test_an_output_in_an_old_format_is_an_error_that_says_what_to_set(version):
    (finding,) = found(OLD_PROTOCOL, out=version)
    assert (finding.severity, finding.subject) == (ERROR, f"topic {OUT}")
    assert finding.found == f"message.format.version is {version}, with inter.broker.protocol.version 2.8"
    assert "Every batch would fail" in finding.meaning and "0.11.0 or later" in finding.action


@pytest.mark.parametrize("version", ["0.11.0", "0.11.0-IV2", "1.0-IV0", "2.8", "3.0-IV1", "", "unknown"])
def test_a_format_with_room_for_producer_ids_is_silent_and_so_is_one_that_is_not_known(version):
    assert found(OLD_PROTOCOL, out=version) == []


@pytest.mark.parametrize(("protocol", "shown"), [("3.0", "3.0"), ("3.9-IV0", "3.9-IV0")])
def test_a_newer_protocol_ignores_the_setting(protocol, shown):
    (finding,) = found({"inter.broker.protocol.version": protocol}, out="0.10.0")
    assert (finding.severity, finding.found) == (OK, f"2, as inter.broker.protocol.version is {shown}")


def test_brokers_without_these_settings_have_one_format():
    assert found({}) == []


@pytest.mark.parametrize("brokers", [{}, Unavailable(reason="forbidden")], ids=["hidden", "forbidden"])
def test_an_old_format_is_a_warning_if_the_brokers_do_not_tell_their_protocol(brokers):
    (finding,) = found(brokers, out="0.10.0")
    assert finding.severity is WARNING
    assert finding.meaning.startswith("This matters if the brokers' inter.broker.protocol.version, which is not known")


def test_what_the_sink_commits_to_counts_too_but_not_the_log_of_the_coordinator():
    (finding,) = found(OLD_PROTOCOL, ledger="0.10.0", offsets="0.10.0", transactions="0.10.0")
    assert (finding.severity, finding.subject) == (ERROR, f"topics {LEDGER}, {OFFSETS}")


def test_a_topic_that_will_be_created_gets_the_brokers_format():
    old = OLD_PROTOCOL | {"log.message.format.version": "0.10.2"}
    (finding,) = found(old, ledger=None)
    assert (finding.severity, finding.subject) == (ERROR, f"topic {LEDGER}")
    assert finding.found.startswith("does not exist yet, and log.message.format.version is 0.10.2")
    assert found(OLD_PROTOCOL, ledger=None) == []


@pytest.mark.parametrize(("degree", "severities"), [("required", [ERROR]), ("requested", [WARNING]), ("off", [])])
def test_without_transactions_the_degree_of_idempotence_decides_and_only_on_outputs(degree, severities):
    options = {"deliveryGuarantee": "at-least-once", "kafka.group.id": "g", "kafka.enable.idempotence": degree}
    for more in ({}, {"kafka.transactional.id": "without effect"}):
        assert found(OLD_PROTOCOL, options=options | more, offsets="0.10.0") == []
    findings = found(OLD_PROTOCOL, options=options, out="0.10.0", offsets="0.10.0")
    assert [(finding.severity, finding.subject) for finding in findings] == [(s, f"topic {OUT}") for s in severities]
    assert all("without idempotence" in finding.meaning for finding in findings if finding.severity is WARNING)


def test_brokers_are_asked_only_because_of_an_old_format():
    def facts(version):
        settings = {"message.format.version": version}
        topic = TopicFacts(partitions=1, replicas=1, in_sync=1, operations=None, settings=settings)
        topics = {OUT: topic, "missing": None}
        return Facts(brokers=1, transaction_version=0, settings={}, transaction=None, groups={}, topics=topics)

    assert any_old(facts("0.10.0")) and not any_old(facts("2.8"))
