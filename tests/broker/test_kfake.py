"""On kfake, franz-go's brokers for tests, written in Go: what another implementation makes of our requests, and what
librdkafka and Java's console consumer read of it (`tests/kfakes.py`).
"""

from __future__ import annotations

import functools
import itertools

import pyarrow as pa
import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as RdTopicPartition

from spark_kafka_eos.appending.append import BlockAppender, append
from spark_kafka_eos.appending.blocks import ROWS, BlockEncoder
from spark_kafka_eos.appending.encode_settings import encode_settings
from spark_kafka_eos.appending.report import Appended
from spark_kafka_eos.appending.staging import Staging
from spark_kafka_eos.errors import ProducerFenced
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.ledger.decide import decide_micro_batch
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.options import sink_options
from spark_kafka_eos.preflight.findings import Severity
from spark_kafka_eos.preflight.probe import probe
from spark_kafka_eos.preflight.run import examine
from spark_kafka_eos.testing.read_offsets import group_offsets
from spark_kafka_eos.transaction.commit import commit_batch
from spark_kafka_eos.transaction.shared import SharedTransaction
from tests.batches import BY_DRIVER, appended_to, reads
from tests.broker.conftest import batch_of
from tests.copying import Copy, Stage
from tests.kafka_tools import tool
from tests.kfakes import running
from tests.producing import transact
from tests.reading import librdkafkas, ours
from tests.workload import Workload

pytestmark = pytest.mark.broker

numbers = itertools.count(1)
FETCHED = (1_000, 8_000_000)  # bytes of a partition at a time
KEY_AND_VALUE = pa.schema([(name, ROWS[name]) for name in ("key", "value")])


@pytest.fixture(scope="module", params=["newest", "4.1", "3.9"], ids=["newest", "TV2", "TV1"])
def either_kafka(request, kfake_program):
    with running(kfake_program, request.param) as kfake:
        yield kfake


@pytest.fixture
def topic(either_kafka):
    return either_kafka.create_topic(f"t-{next(numbers)}", 2)


def javas(bootstrap, topic, records):
    """The values of committed records, as Java's console consumer prints them, sorted."""
    where = ["--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning", "--max-messages", records]
    return sorted(tool("consumer.ConsoleConsumer", *where, "--isolation-level", "read_committed").encode().split())


def test_a_random_workload_is_read_as_librdkafka_reads_it_and_as_it_was_sent(either_kafka):
    """Not with a small `fetch.max.bytes`: a response that it cuts lacks the aborted transactions of what it has."""
    topic = either_kafka.create_topic(f"workload-{next(numbers)}", 3)
    workload = Workload(either_kafka.bootstrap, topic, 3, seed=1)
    for _ in workload.run():
        pass

    def read(isolation_level, fetched):
        sizes = {"kafka.max.partition.fetch.bytes": str(fetched), "minPartitions": "10"}
        return ours(workload.bootstrap, topic, **sizes, **{"kafka.isolation.level": isolation_level})

    for level in ("read_committed", "read_uncommitted"):  # with transactions still open
        seen = librdkafkas(workload.bootstrap, topic, 3, isolation_level=level)
        for fetched in FETCHED:
            assert read(level, fetched) == seen
    workload.stop()
    for fetched in FETCHED:
        assert read("read_committed", fetched) == sorted(workload.committed, key=lambda row: row[:3])
        assert read("read_uncommitted", fetched) == sorted(workload.written, key=lambda row: row[:3])
    assert 0 < len(workload.committed) < len(workload.written), "some are aborted"


def test_a_query_copies_each_record_once_through_an_abort_and_to_another_driver(either_kafka, cluster, topic):
    here, source = either_kafka.bootstrap, either_kafka.create_topic(f"source-{topic}", 2)
    for partition in (0, 1):
        transact(here, source, [b"given up"] * 5, "abort", partition=partition)
        transact(here, source, [b"%d" % (10 * n + partition) for n in range(24)], "commit", partition=partition)
    query, other = (Copy(here, cluster, source, topic) for _ in range(2))
    query.write_as = other.write_as = lambda rows, _: rows

    def twice(stage: Stage) -> None:
        query.spark = Stage.run
        stage.run()
        stage.run([0])

    query.spark = twice
    assert len(query.run(0, 0, 12).redone) == 1
    assert query.run(1, 12, 20).outcome == "committed"
    assert other.run(1, 12, 20).outcome == "skipped"
    assert other.run(2, 20, 31).outcome == "committed"
    with pytest.raises(ProducerFenced):
        query.run(2, 20, 31)

    once = sorted(b"%d" % (10 * n + partition) for partition in (0, 1) for n in range(24))
    found = ours(here, topic)
    assert sorted(row[5] or b"" for row in found) == once == javas(here, topic, len(once))
    assert found == librdkafkas(here, topic, 2)
    assert len(librdkafkas(here, topic, 2, isolation_level="read_uncommitted")) > len(once), "an attempt was aborted"
    assert group_offsets(here, f"id-{topic}", source, "read_committed") == {0: 31, 1: 31}


@pytest.mark.parametrize("in_files", [False, True], ids=["inline", "in files"])
def test_what_tasks_stage_and_the_driver_appends_is_read_by_all(either_kafka, cluster, topic, tmp_path, in_files):
    options = sink_options(given(either_kafka, topic))
    rows = pa.RecordBatch.from_pydict({"key": [None] * 50, "value": [b"%d" % n for n in range(50)]}, KEY_AND_VALUE)
    staging = Staging(str(tmp_path), inline_bytes=0) if in_files else Staging(None)

    def stage():
        encoder = BlockEncoder(encode_settings(options, topic, cluster), 0, pytest.fail, lambda: 1_700_000_000_000)
        return [staging.stage("0", 0, itertools.chain(encoder.add(rows), encoder.finish()))]

    transaction = SharedTransaction(options, cluster, decide_micro_batch(options))
    staged = BlockAppender(cluster, options, staging, stage, 0)
    batch = MicroBatch(query_id="query", batch_id=0, digest="digest")
    assert commit_batch(transaction, batch, staged, max_attempts=1, choice=BY_DRIVER).outcome == "committed"
    assert ours(either_kafka.bootstrap, topic) == librdkafkas(either_kafka.bootstrap, topic, 2)
    assert sorted(row[5] or b"" for row in ours(either_kafka.bootstrap, topic)) == sorted(rows["value"].to_pylist())


def test_a_driver_whose_transaction_timed_out_ends_as_fenced_and_a_new_one_writes_the_batch(
    either_kafka, cluster, topic, await_state
):
    source = either_kafka.create_topic(f"source-{topic}", 2)
    options = sink_options(given(either_kafka, topic) | {"kafka.transaction.timeout.ms": "1000"})

    def driver():
        return SharedTransaction(options, cluster, decide_micro_batch(options))

    def write(identity, after=lambda: None):
        append(cluster, identity, [(tp, 1, batch_of(None, 0, [b"once"]))])
        after()
        return Appended(partitions=1, records=1, bytes=1, topics=appended_to(cluster, tp))

    tp = TopicPartition(topic, 0)
    batch = MicroBatch(
        query_id="query",
        batch_id=0,
        digest="",
        sources=reads({TopicPartition(source, 0): 0}, {TopicPartition(source, 0): 1}),
    )
    timed_out = functools.partial(write, after=lambda: await_state(options.transactional_id, "Empty"))
    with pytest.raises(ProducerFenced):
        commit_batch(driver(), batch, timed_out, max_attempts=2, choice=BY_DRIVER)
    assert commit_batch(driver(), batch, write, max_attempts=1, choice=BY_DRIVER).outcome == "committed"
    assert [row[5] for row in librdkafkas(either_kafka.bootstrap, topic, 2)] == [b"once"]


def test_a_small_fetch_max_bytes_shows_what_was_aborted_also_to_librdkafka(either_kafka, topic):
    for end in ("abort", "commit"):
        for _ in range(5):
            transact(either_kafka.bootstrap, topic, [end.encode() + b"x" * 500] * 5, end, partition=0)
    small = ours(either_kafka.bootstrap, topic, **{"kafka.fetch.max.bytes": "1000"})
    settings = {"fetch.max.bytes": 1_000, "message.max.bytes": 1_000, "group.id": "nobody"}
    consumer = Consumer({"bootstrap.servers": either_kafka.bootstrap, **settings})
    consumer.assign([RdTopicPartition(topic, 0, 0)])
    theirs = [message.value() or b"" for message in consumer.consume(25, timeout=20)]
    consumer.close()
    for values in ([row[5] or b"" for row in small], theirs):
        assert any(value.startswith(b"abort") for value in values)
    assert {(row[5] or b"")[:6] for row in ours(either_kafka.bootstrap, topic)} == {b"commit"}


def test_the_preflight_says_what_kfake_does_not_tell_and_its_probe_passes(request, either_kafka, cluster, topic):
    options = sink_options(given(either_kafka, topic))
    warned = [finding for finding in examine(cluster, options) if finding.severity is not Severity.OK]
    (untold,) = (finding.found for finding in warned if finding.subject == f"topic {topic}")
    assert untold.endswith("the broker does not return unclean.leader.election.enable")
    also = {"TV1": ["transaction.version"], "TV2": ["Kafka release"], "newest": []}  # 4.1 has KAFKA-20090
    release = request.node.callspec.params["either_kafka"]
    expected = also[{"3.9": "TV1", "4.1": "TV2"}.get(release, release)]
    assert [finding.subject for finding in warned if finding.subject != f"topic {topic}"] == expected
    assert probe(options).severity is Severity.OK


def given(kafka, topic):
    return {"kafka.bootstrap.servers": kafka.bootstrap, "kafka.transactional.id": f"id-{topic}", "topic": topic}
