"""What the preflight does with its findings: errors stop, warnings are said once."""

import logging
import pickle
from contextlib import nullcontext
from dataclasses import replace

import pytest

from spark_kafka_eos.appending.files import LocalFiles
from spark_kafka_eos.appending.staging import Staging
from spark_kafka_eos.appending.staging_space import Space
from spark_kafka_eos.errors import ConfigurationError, PreflightFailed
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol import describe
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.facts import GroupFacts
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.options import ClientOptions, sink_options
from spark_kafka_eos.preflight import run
from spark_kafka_eos.preflight.findings import Finding, Severity
from spark_kafka_eos.preflight.run import examine_staging, preflight
from spark_kafka_eos.preflight.sources import check_source_cluster, refuse_members
from spark_kafka_eos.source_offset import Origin
from tests.batches import reads
from tests.model_kafka import KafkaModel

CLUSTER = Cluster(ClientOptions(bootstrap_servers=(("b", 1),)))  # never connected
OK = Finding(severity=Severity.OK, subject="cluster", found="reachable")
ERRORS = [
    Finding(severity=Severity.ERROR, subject=f"topic {name}", found="does not exist", action="Create it")
    for name in ("a", "b")
]


def warning(subject):
    return Finding(severity=Severity.WARNING, subject=subject, found="replication factor 1")


def check(*findings):
    """The preflight that finds this."""
    preflight(CLUSTER, options(), examine=lambda cluster, options: [OK, *findings])


def options(**more):
    return sink_options({"kafka.bootstrap.servers": "b:1", "kafka.transactional.id": "t", "topic": "a"} | more)


IN = TopicPartition("in", 0)


def first_batch(end, batch_id=0):
    return MicroBatch(query_id="q", batch_id=batch_id, digest="", sources=reads({IN: 0}, {IN: end}))


@pytest.mark.parametrize(
    ("given", "batch", "refused"),
    [
        ({}, first_batch(7), False),
        ({}, first_batch(8), True),
        ({}, first_batch(8, batch_id=1), False),
        ({"sourceClusters": "there"}, first_batch(8), False),
    ],
    ids=["it ends there", "it ends before", "not the first batch", "the user says so"],
)
def test_a_first_batch_that_reads_further_than_the_sinks_own_topic_shows_another_cluster(given, batch, refused):
    kafka = KafkaModel(2, {"in": 1})
    kafka.partitions[IN].append_plain((None,) * 7)
    if not refused:
        check_source_cluster(kafka.cluster(), options(**given), batch)
        return
    with pytest.raises(
        ConfigurationError, match=r"in-0 up to offset 8, .* ends at 7, so the source is on another cluster"
    ) as error:
        check_source_cluster(kafka.cluster(), options(**given), batch)
    assert error.value.option == "sourceClusters"
    assert "Nothing was committed" in str(error.value)


@pytest.mark.parametrize("topics", [{"in": 1}, {}], ids=["a topic of that name", "none"])
@pytest.mark.parametrize("cluster_id", ["there", "model"])
def test_a_source_that_says_which_cluster_it_reads_is_not_in_doubt(topics, cluster_id):
    kafka = KafkaModel(2, topics)
    source = replace(first_batch(8).sources[0], origin=Origin(cluster=cluster_id))
    check_source_cluster(kafka.cluster(), options(), replace(first_batch(8), sources=(source,)))
    assert kafka.requests == []


def test_a_first_batch_that_ends_before_the_sinks_own_topic_begins_is_in_doubt():
    kafka = KafkaModel(2, {"in": 1})
    kafka.partitions[IN].append_plain((None,) * 7)
    kafka.partitions[IN].start_offset = 5
    with pytest.raises(
        ConfigurationError, match="up to offset 4, .* begins at 5: the source is on another cluster, un"
    ):
        check_source_cluster(kafka.cluster(), options(), first_batch(4))
    check_source_cluster(kafka.cluster(), options(), first_batch(5))


@pytest.mark.parametrize(("group", "refused"), [("g", True), (None, False)])
def test_also_without_transactions_no_offset_goes_to_the_group_in_doubt(group, refused):
    kafka = KafkaModel(2, {"in": 1})
    relaxed = options(**{"deliveryGuarantee": "at-least-once", "kafka.group.id": group, "kafka.transactional.id": None})
    with pytest.raises(ConfigurationError, match="sourceClusters") if refused else nullcontext():
        check_source_cluster(kafka.cluster(), relaxed, first_batch(1))


def test_nothing_wrong_is_silent(caplog):
    check()
    assert not caplog.records


def test_errors_stop_the_query_all_in_one_message():
    with pytest.raises(PreflightFailed) as caught:
        check(*ERRORS)
    assert str(caught.value) == (
        "the preflight found 2 errors:\n- topic a: does not exist. Create it\n- topic b: does not exist. Create it. "
        "Nothing was committed. Fix this and restart; with preflight=false, the query starts in spite of it. "
        "More: kafka-eos explain PreflightFailed"
    )
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_one_error_is_enough_to_stop_the_query():
    with pytest.raises(PreflightFailed, match="found 1 error:"):
        check(ERRORS[0])


def test_a_warning_is_logged_once_in_a_process(caplog):
    for _ in range(3):
        check(warning("topic logged-once"))
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage() == "preflight: topic logged-once: replication factor 1"


def test_warnings_are_logged_next_to_errors(caplog):
    with pytest.raises(PreflightFailed):
        check(warning("topic beside"), *ERRORS)
    assert "topic beside" in caplog.text


def test_preflight_false_asks_nothing():
    preflight(CLUSTER, options(preflight=False), examine=lambda cluster, options: pytest.fail("asked"))
    here = {IN.topic: 1}
    for given, requests in ({}, 1), ({"preflight": False}, 0):
        kafka = KafkaModel(topics=here)
        origin = Origin(cluster=kafka.cluster().cluster_id())
        batch = first_batch(5, batch_id=3)
        (source,) = batch.sources
        refuse_members(kafka.cluster(), options(**given), replace(batch, sources=(replace(source, origin=origin),)))
        assert len(kafka.sent("DescribeGroups")) == requests


def test_a_staging_directory_is_tried_and_left_empty(tmp_path):
    finding = examine_staging(Staging(str(tmp_path / "new")))
    assert finding.severity is Severity.OK
    assert list((tmp_path / "new").iterdir()) == []


@pytest.mark.parametrize(
    ("directory", "why"),
    [("{here}/file/staging", "NotADirectoryError"), ("nowhere://staging", "neither pyarrow.fs .* supports 'nowhere:'")],
)
def test_a_staging_directory_that_cannot_be_used_is_one_of_the_errors(tmp_path, directory, why):
    (tmp_path / "file").touch()
    staging = Staging(directory.format(here=tmp_path))
    with pytest.raises(
        PreflightFailed, match=rf"(?s)found 2 errors:.*cannot be written \(.*{why}.*Set stagingDir"
    ) as error:
        preflight(CLUSTER, options(), staging, examine=lambda cluster, options: ERRORS[:1])
    assert "topic a: does not exist" in str(error.value)


def test_a_staging_directory_on_a_full_disk_is_a_warning_because_small_batches_need_none(tmp_path, monkeypatch):
    monkeypatch.setattr(LocalFiles, "space", lambda _: Space(free=1, total=1_000_000_000))
    finding = examine_staging(Staging(str(tmp_path)))
    assert finding.severity is Severity.WARNING
    assert "has 0.0 MB of 1,000.0 MB free" in finding.found and finding.action.startswith("Make room")


@pytest.mark.parametrize("transactional_id", ["t", None])
def test_a_group_is_read_as_it_is_also_while_somebody_holds_a_transaction_open(monkeypatch, transactional_id):
    """Who waits for stable offsets waits for whoever opened it; and without transactions nobody else's matter."""
    read = []

    class Group:
        def __init__(self, _, name):
            self.name = name

        def fetch_all(self, *, require_stable):
            read.append((self.name, require_stable))
            return {}

    class Stop(Exception):
        """Enough was seen."""

    def stop(*_, **__):
        raise Stop

    facts = GroupFacts(state="Empty", members=(), operations=None, sinks=())
    monkeypatch.setattr(run, "sink_findings", lambda *_, **__: [])
    monkeypatch.setattr(run, "service_of", lambda _: None)
    for name, answer in (("abilities", None), ("group", facts)):
        monkeypatch.setattr(describe, name, lambda *_, answer=answer, **__: answer)
    for name in ("transaction", "topics"):
        monkeypatch.setattr(describe, name, stop)
    monkeypatch.setattr(run, "GroupCoordinator", Group)
    given = {"kafka.transactional.id": "t"} if transactional_id else {"deliveryGuarantee": "at-least-once"}
    wanted = sink_options({"kafka.bootstrap.servers": "b:1", "topic": "a", "kafka.group.id": "g", **given})
    with pytest.raises(Stop):
        run.examine(CLUSTER, wanted)
    assert read == ([("g", False)] if transactional_id else [])
