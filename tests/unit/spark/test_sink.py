"""When the sink runs the preflight, whose checkpoint it believes and which files it removes; what a commit does is
tested on a broker (tests/spark)."""

from __future__ import annotations

import json
import logging
import signal
import tempfile
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.types import BinaryType, StructField, StructType

from lab.simulation.chance import Seeded
from spark_kafka_eos.appending.files import LocalFiles
from spark_kafka_eos.appending.report import EncodedBlock, EncodeReport
from spark_kafka_eos.appending.staging import Staging
from spark_kafka_eos.errors import (
    CheckpointUnusable,
    ConfigurationError,
    InvalidRow,
    KafkaEosError,
    LedgerRefused,
    PreflightFailed,
    ProducerFenced,
    UnknownTopic,
)
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.wire.encode import encode
from spark_kafka_eos.ledger import entry_format
from spark_kafka_eos.micro_batch import MicroBatch, SourceRange
from spark_kafka_eos.options import sink_options
from spark_kafka_eos.spark import sink
from spark_kafka_eos.spark.plan_registry import digest_of, publish
from spark_kafka_eos.spark.sink import KafkaEosBatchWriter, KafkaEosStreamWriter
from spark_kafka_eos.spark.sink_commit import commit_batch_write, kept_cluster, pinned
from spark_kafka_eos.spark.staged_message import StagedMessage
from tests.coordinating import TransactionCoordinator
from tests.model_kafka import KafkaModel, lost

SCHEMA = StructType([StructField("value", BinaryType())])
QUERY = "11111111-1111-1111-1111-111111111111"
RUN = "33333333-3333-3333-3333-333333333333"


@pytest.fixture
def options(tmp_path):
    """Of a sink whose query has planned the batches 0 and 1."""
    (tmp_path / "offsets").mkdir()
    (tmp_path / "metadata").write_text(json.dumps({"id": QUERY}))
    for number in range(2):
        offsets = json.dumps({"orders": {"0": 10 * number}})
        (tmp_path / "offsets" / str(number)).write_text(f"v1\n{{}}\n{offsets}")
    return sink_options(
        {
            "kafka.bootstrap.servers": "b:1",
            "kafka.transactional.id": "t",
            "topic": "a",
            "checkpointLocation": str(tmp_path),
            "sourceClusters": "there",
        }
    )


class Kafka(KafkaModel):
    """The model, and how often the preflight ran."""

    def __init__(self, **more):
        super().__init__(2, {"orders": 1, "a": 1}, **more)
        self.preflights = 0

    def preflight(self, cluster, options, staging):
        self.preflights += 1

    def numbers(self):
        """The batches that are committed."""
        log = self.partitions.get(TopicPartition("kafka-eos-ledger", 0))
        return [entry_format.decode_record(entry.content[0]).batch_id for entry in log.committed()] if log else []

    def records(self):
        return sum(len(entry.content) for entry in self.partitions[TopicPartition("a", 0)].committed())


@pytest.fixture
def kafka(caplog):
    caplog.set_level(logging.INFO, "spark_kafka_eos")  # the commit sets it; afterwards it is what it was
    return Kafka()


class StreamWriter(KafkaEosStreamWriter):
    """Whose tasks leave a file each, with a record unless there is an `error`."""

    error: KafkaEosError | None = None

    def _stage(self, batches, folder, query_id, batch_id):
        place = staging_folder(self._options) / folder
        place.mkdir(parents=True)
        record = bytes(encode(pa.nulls(1, pa.binary()), pa.array([b"v"]), 0))
        (place / "file").write_bytes(record)
        block = EncodedBlock(partition=TopicPartition("a", 0), records=1, offset=0, length=len(record), data=None)
        path = None if self.error else f"{folder}/file"
        return EncodeReport(task=0, path=path, blocks=() if self.error else (block,), error=self.error)


@pytest.fixture
def writer(options, kafka):
    """`writer()`: another of the writers that Spark makes for planning and for each commit."""
    return lambda: StreamWriter(options, SCHEMA, connect=kafka.cluster, preflight=kafka.preflight)


@pytest.fixture
def write(writer):
    """`write(batch, query)`: what a write task of that batch and query tells, which has left a file."""

    def write(batch: int, query: str | None = QUERY, error: KafkaEosError | None = None) -> StagedMessage:
        TaskContext._getOrCreate()._localProperties = {
            "streaming.sql.batchId": str(batch),
        } | ({} if query is None else {"sql.streaming.queryId": query})
        task = writer()
        task.error = error
        message = task.write(iter(()))
        assert isinstance(message, StagedMessage)
        return message

    yield write
    TaskContext._setTaskContext(None)


def test_a_process_that_plans_micro_batches_checks_a_query_once(options, writer, kafka):
    for _ in range(2):
        writer().check()
    assert kafka.preflights == 1
    StreamWriter(
        replace(options, topic="b"), SCHEMA, connect=kafka.cluster, preflight=kafka.preflight
    ).check()  # another query's
    assert kafka.preflights == 2


def test_a_commit_does_not_repeat_the_preflight(writer, kafka):
    for number in range(2):
        writer().commit([], number)
    assert (kafka.preflights, kafka.numbers()) == (0, [0, 1])


def apis(kafka) -> list[str]:
    return [api for api, _ in kafka.requests]


def test_a_process_that_commits_again_asks_only_who_owns_the_id_and_what_is_committed(writer, write, kafka):
    writer().commit([write(0)], 0)
    kafka.requests.clear()
    writer().commit([write(1)], 1)
    assert kafka.numbers() == [0, 1]
    assert "FindCoordinator" not in apis(kafka)
    assert apis(kafka)[:3] == ["DescribeTransactions", "Metadata", "OffsetFetch"]  # the second: is the ledger there?
    ends = apis(kafka).index("EndTxn")
    assert apis(kafka)[ends - 1 :] == ["Metadata", "EndTxn", "Metadata"], "have the topics the ids that they had?"
    assert apis(kafka).count("Metadata") == 3


def test_a_process_that_commits_again_notices_that_another_driver_has_taken_the_id(options, planned, writer, kafka):
    (Path(options.checkpoint_location) / "offsets" / "1").unlink()
    writer().commit([task_of(planned(), 0)], 0)
    plan(options, 1, 10)
    message = task_of(planned(), 1)
    TransactionCoordinator(kafka.cluster(), "t", 60_000).init_producer_id()
    kafka.requests.clear()
    with pytest.raises(ProducerFenced, match="since this run committed batch 0"):
        writer().commit([message], 1)
    assert kafka.numbers() == [0]
    assert {"InitProducerId", "Produce", "EndTxn"}.isdisjoint(apis(kafka))


def test_a_process_that_commits_again_finds_brokers_that_have_changed_places(options, writer, write, kafka):
    writer().commit([write(0)], 0)
    kafka.requests.clear()
    for number in range(1, 6):
        plan(options, number, 10 * number)
        kafka.move(Seeded(number))
        writer().commit([write(number)], number)
    assert (kafka.numbers(), kafka.records()) == ([0, 1, 2, 3, 4, 5], 6)
    assert "FindCoordinator" in apis(kafka)  # so there was something to notice


def test_a_process_keeps_no_connections_for_long_nor_after_an_error(options, kafka):
    now, made = [0.0], []

    def connect(client):
        made.append(kafka.cluster(client))
        return made[-1]

    def use():
        with kept_cluster(connect, options.client, lambda: now[0]) as cluster:
            return cluster

    first = use()
    assert use() is first
    now[0] = 61.0
    second = use()
    assert second is not first
    with pytest.raises(KafkaEosError), kept_cluster(connect, options.client, lambda: now[0]):
        raise InvalidRow("no topic")
    assert use() not in (first, second)


def test_a_failed_check_is_repeated(options, kafka):
    def fail(cluster, options, staging):
        raise PreflightFailed("the preflight found 1 error")

    with pytest.raises(PreflightFailed):
        StreamWriter(options, SCHEMA, connect=kafka.cluster, preflight=fail).check()
    StreamWriter(options, SCHEMA, connect=kafka.cluster, preflight=kafka.preflight).check()
    assert kafka.preflights == 1


def test_a_checkpoint_that_is_not_on_this_disk_is_noticed_before_any_task(options, writer, kafka):
    (Path(options.checkpoint_location) / "metadata").unlink()
    with pytest.raises(ConfigurationError, match="on the driver's local disk.*Add the scheme.*hdfs://"):
        writer().check()
    assert (kafka.preflights, kafka.requests) == (0, [])


@pytest.mark.parametrize(
    ("location", "found"),
    [("", "as Python opens it, does not contain metadata"), ("/file", r"cannot read file:.*Not a directory")],
)
def test_a_checkpoint_that_python_cannot_read_as_spark_does_is_noticed_before_any_task(
    options, kafka, tmp_path, location, found
):
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "file").touch()
    given = replace(options, checkpoint_location=f"file:{tmp_path}/empty{location}")
    writer = StreamWriter(given, SCHEMA, connect=kafka.cluster, preflight=kafka.preflight)
    with pytest.raises(ConfigurationError, match=f"{found}.*Give Python the credentials.*TransactionalWriter"):
        writer.check()
    assert (kafka.preflights, kafka.requests) == (0, [])


@pytest.mark.parametrize("first", [True, False])
def test_a_first_batch_whose_source_the_sinks_cluster_lacks_is_noticed_before_any_task(options, kafka, first):
    (Path(options.checkpoint_location) / "offsets" / "0").write_text('v1\n{}\n{"elsewhere": {"0": 1}}')
    if not first:
        (Path(options.checkpoint_location) / "commits").mkdir()
        (Path(options.checkpoint_location) / "commits" / "0").write_text("v1\n{}")
    given = replace(options, source_clusters=())
    writer = StreamWriter(given, SCHEMA, connect=kafka.cluster, preflight=kafka.preflight)
    with pytest.raises(UnknownTopic, match="elsewhere.*set sourceClusters") if first else nullcontext():
        writer.check()


def test_every_batch_write_is_checked_and_leaves_nothing_if_it_is_refused(options, kafka, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    given = replace(options, checkpoint_location=None)

    def fail(cluster, options, staging):
        assert list((tmp_path / "temporary").iterdir())
        raise PreflightFailed("the preflight found 1 error")

    for _ in range(2):
        with pytest.raises(PreflightFailed):
            KafkaEosBatchWriter(given, SCHEMA, connect=kafka.cluster, preflight=fail).check()
    assert list((tmp_path / "temporary").iterdir()) == []


def batch_write(options, kafka):
    record = bytes(encode(pa.nulls(1, pa.binary()), pa.array([b"v"]), 0))
    block = EncodedBlock(partition=TopicPartition("a", 0), records=1, offset=0, length=len(record), data=record)
    message = StagedMessage(EncodeReport(task=0, path=None, blocks=(block,)))
    commit_batch_write(options, kafka.cluster, Staging("unused"), [message], run="run", planned_under=None)


def test_a_batch_write_returns_when_readers_see_all_of_it(options):
    brokers: Kafka = Kafka(later=lambda why, action: brokers.world.after(2.0, why, action))
    batch_write(options, brokers)
    assert brokers.records() == 1


def test_a_batch_write_whose_readers_have_to_wait_is_no_failure(options, kafka, caplog):
    kafka.before("EndTxn", lambda: kafka.meets.update(DescribeTransactions=lost))
    batch_write(options, kafka)
    assert kafka.records() == 1
    assert "the write is committed, but readers may not see all of it yet" in caplog.text


def test_an_at_least_once_write_has_no_transaction_to_wait_for(options, kafka):
    batch_write(replace(options, delivery_guarantee="at-least-once"), kafka)
    assert kafka.sent("Produce")
    assert kafka.sent("DescribeTransactions") == []


@pytest.mark.parametrize("blocks", [0, 1])
def test_a_first_batch_that_writes_nothing_starts_where_it_ends_in_each_source(blocks):
    """As that of a query with startingOffsets=committed, which the ledger lets go on where another one ended."""
    block = EncodedBlock(partition=TopicPartition("a", 0), records=1, offset=0, length=0, data=b"")
    end = {TopicPartition("orders", 0): 0}
    first = MicroBatch(query_id=QUERY, batch_id=0, digest="", sources=(SourceRange(start=None, end=end), None))
    batch = pinned(first, [EncodeReport(task=0, path=None, blocks=(block,) * blocks)])
    start = None if blocks else end
    assert (batch.start, batch.end, batch.sources) == (start, end, (SourceRange(start=start, end=end), None))
    later = replace(first, batch_id=1)  # of a source that is new in it
    assert pinned(later, []) == later


def staging_folder(options) -> Path:
    return Path(options.checkpoint_location) / "kafka-eos-staging" / "t"


def left(options) -> list[str]:
    """The batches of the folders that are there."""
    return sorted(folder.name.split("-")[0] for folder in staging_folder(options).iterdir())


def test_a_commit_removes_its_tasks_files_and_those_of_earlier_batches(options, writer, write, kafka):
    write(0)
    writer().commit([], 0)
    write(0)
    writer().commit([write(1)], 1)
    assert (left(options), kafka.records()) == ([], 1)


def test_a_zombie_leaves_its_successors_files_alone(options, writer, write, kafka):
    writer().commit([], 0)
    write(0)
    zombies = write(1)
    successors = write(1)
    kafka.before("EndTxn", TransactionCoordinator(kafka.cluster(), "t", 60_000).init_producer_id)
    with pytest.raises(ProducerFenced):
        writer().commit([zombies], 1)
    writer().abort([zombies, None], 1)
    assert (staging_folder(options) / successors.folder / "file").exists()
    assert left(options) == ["0", "1"]


def test_what_a_task_wrote_before_its_error_is_removed_too(options, writer, write):
    writer().abort([write(1, error=InvalidRow("no topic"))], 1)
    assert left(options) == []


def test_a_committed_batch_does_not_fail_because_files_remain(options, writer, write, kafka, tmp_path):
    message = write(0)
    (staging_folder(options) / message.folder).rename(tmp_path / "elsewhere")
    (staging_folder(options) / message.folder).symlink_to(tmp_path / "elsewhere")  # is not removed
    writer().commit([message], 0)
    assert (left(options), kafka.numbers()) == (["0"], [0])


def test_another_querys_checkpoint_at_that_path_is_not_believed(writer, write, kafka):
    another = "22222222-2222-2222-2222-222222222222"
    with pytest.raises(ConfigurationError, match=f"{QUERY}, but this is query {another}.*hdfs://") as raised:
        writer().commit([write(1, another)], 1)
    assert raised.value.option == "checkpointLocation"
    assert kafka.requests == []


@pytest.mark.parametrize("missing", ["metadata", "offsets/1"])
def test_a_path_without_a_scheme_that_is_not_on_this_disk_asks_for_one(options, writer, write, kafka, missing):
    (Path(options.checkpoint_location) / missing).unlink()
    with pytest.raises(ConfigurationError, match="on the driver's local disk.*Add the scheme.*hdfs://"):
        writer().commit([write(1)], 1)
    assert kafka.requests == []


def test_a_checkpoint_that_cannot_be_read_for_the_moment_says_that_nothing_was_committed(options, writer, write, kafka):
    plans = Path(options.checkpoint_location) / "offsets"
    plans.rename(plans.with_name("kept"))
    plans.touch()
    with pytest.raises(CheckpointUnusable, match="cannot be read.*Not a directory.*Nothing was committed.*again"):
        writer().commit([write(1)], 1)
    assert kafka.requests == []


def test_a_checkpoint_is_believed_if_no_task_names_its_query(writer, write, kafka):
    writer().commit([write(0, query=None)], 0)
    assert kafka.numbers() == [0]


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_a_commit_whose_process_is_ended_while_it_appends_is_aborted(writer, write, kafka, number):
    before = signal.getsignal(number)
    kafka.before("TxnOffsetCommit", lambda: signal.raise_signal(number))
    with pytest.raises(SystemExit):
        writer().commit([write(0)], 0)
    assert [request.committed for request in kafka.sent("EndTxn")] == [False]
    assert (kafka.numbers(), kafka.records()) == ([], 0)
    assert signal.getsignal(number) is before


def test_a_commit_whose_process_is_ended_after_it_was_sent_is_not_aborted(writer, write, kafka):
    kafka.before("EndTxn", lambda: signal.raise_signal(signal.SIGHUP))
    with pytest.raises(SystemExit):
        writer().commit([write(0)], 0)
    assert [request.committed for request in kafka.sent("EndTxn")] == [True]


def plan(options, number, end):
    (Path(options.checkpoint_location) / "offsets" / str(number)).write_text(
        f"v1\n{{}}\n{json.dumps({'orders': {'0': end}})}"
    )


@pytest.fixture
def planned(options, writer, monkeypatch):
    """`planned()`: the writer that Spark's planning process makes, which tasks get as a copy."""
    monkeypatch.setattr(sink, "_planned", {})
    monkeypatch.setattr(sink, "_checked", {options})

    def planned():
        made = writer()
        made.check()
        return made

    return planned


@pytest.fixture
def no_micro_batch(options, request):
    """A checkpoint as it is when a query that runs in no micro-batches plans its write."""
    for file in (Path(options.checkpoint_location) / "offsets").iterdir():
        if request.param == "none ever was":
            file.unlink()
    if request.param == "the last one is done":
        commits = Path(options.checkpoint_location) / "commits"
        commits.mkdir()
        for number in range(2):
            (commits / str(number)).write_text("v1\n{}")


@pytest.mark.parametrize("no_micro_batch", ["none ever was", "the last one is done"], indirect=True)
def test_a_query_that_runs_in_no_micro_batches_is_refused_when_its_write_is_planned(no_micro_batch, planned, kafka):
    """Spark ignores what a commit raises there, so the query would stay alive and write nothing."""
    with pytest.raises(ConfigurationError, match="option 'trigger'.*in micro-batches.*Nothing was committed"):
        planned()
    assert kafka.requests == []


def test_the_same_process_notices_that_the_query_was_started_again_without_micro_batches(options, planned):
    planned()
    commits = Path(options.checkpoint_location) / "commits"
    commits.mkdir()
    (commits / "1").write_text("v1\n{}")
    with pytest.raises(ConfigurationError, match="option 'trigger'"):
        planned()


def task_of(made, batch, group=RUN):
    TaskContext._getOrCreate()._localProperties = {
        "streaming.sql.batchId": str(batch),
        "sql.streaming.queryId": QUERY,
        "spark.jobGroup.id": group,
    }
    try:
        return made.write(iter(()))
    finally:
        TaskContext._setTaskContext(None)


def test_a_plan_that_was_replaced_while_the_tasks_ran_is_not_committed(options, planned, writer, kafka):
    """The tasks read up to offset 10. Another driver planned up to 80: the records between would be lost."""
    message = task_of(planned(), 1)
    plan(options, 1, 80)
    with pytest.raises(CheckpointUnusable, match="another driver writes to this checkpoint.*Nothing was committed"):
        writer().commit([message], 1)
    assert kafka.requests == []


def test_a_plan_that_was_replaced_before_the_tasks_ran_is_not_committed(
    options, planned, writer, kafka, tmp_path, monkeypatch
):
    """The source's tasks read up to offset 10, and no process of the sink has seen that plan."""
    (tmp_path / "blockmgr-1").mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path}/blockmgr-1")
    plan(options, 0, 5)
    writer().commit([], 0)
    before = len(kafka.requests)
    publish(digest_of({"orders": {"0": 5}}, {"orders": {"0": 10}}))
    plan(options, 1, 80)
    message = task_of(planned(), 1)
    with pytest.raises(CheckpointUnusable, match="another driver writes to this checkpoint.*Nothing was committed"):
        writer().commit([message], 1)
    assert len(kafka.requests) == before
    plan(options, 1, 10)
    writer().commit([task_of(planned(), 1)], 1)
    assert kafka.numbers() == [0, 1]


def test_a_plan_of_which_the_source_left_no_note_is_compared_with_the_ledger_as_the_checkpoint_has_it(
    options, planned, writer, kafka, monkeypatch
):
    """As of any other source, and where Spark has no folder of its own."""
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    publish(digest_of({"orders": {"0": 5}}, {"orders": {"0": 7}}))
    writer().commit([], 0)
    writer().commit([task_of(planned(), 1)], 1)
    assert kafka.numbers() == [0, 1]
    plan(options, 1, 80)
    with pytest.raises(LedgerRefused, match="other source offsets.*Nothing was committed"):
        writer().commit([task_of(planned(), 1)], 1)
    plan(options, 1, 10)
    writer().commit([task_of(planned(), 1)], 1)
    assert (kafka.numbers(), kafka.records()) == ([0, 1], 1), "it is the same, and skipped"


def test_a_late_driver_whose_checkpoint_has_a_later_plan_commits_nothing(options, planned, writer, kafka):
    plan(options, 2, 30)
    message = task_of(planned(), 1)
    with pytest.raises(CheckpointUnusable, match="batch_id=2"):
        writer().commit([message], 1)
    assert kafka.requests == []


def test_a_process_that_did_not_plan_every_batch_finds_the_plan_of_this_one(
    options, planned, writer, kafka, monkeypatch
):
    """Where several queries run, Spark plans each batch in whatever process is idle."""
    here: dict[str, int] = {}
    elsewhere: dict[str, int] = {}
    for number, process in enumerate([here, here, elsewhere, here]):
        if number > 1:
            plan(options, number, 10 * number)
        monkeypatch.setattr(sink, "_planned", process)
        writer().commit([task_of(planned(), number)] if number else [], number)
    assert kafka.numbers() == [0, 1, 2, 3]


def test_the_plans_of_a_query_are_followed_without_listing_them(options, planned, writer, kafka, monkeypatch):
    for number in range(2):
        if number:  # Spark plans one batch after the other
            monkeypatch.setattr(LocalFiles, "names", lambda *_: pytest.fail("it was listed"))
        else:
            (Path(options.checkpoint_location) / "offsets" / "1").unlink()
        message = task_of(planned(), number)
        writer().commit([message], number)
        plan(options, number + 1, 10 * (number + 1))
    assert kafka.numbers() == [0, 1]


def test_a_commit_notes_the_run_of_its_query(planned, writer, kafka):
    writer().commit([], 0)
    writer().commit([task_of(planned(), 1)], 1)
    log = kafka.partitions[TopicPartition("kafka-eos-ledger", 0)]
    assert [entry_format.decode_record(entry.content[0]).run_id for entry in log.committed()] == [None, RUN]


@pytest.mark.parametrize("group", [None, "", "a platform's own"])
def test_a_job_group_that_is_no_id_of_a_run_does_not_make_two_starts_one_run(options, planned, writer, kafka, group):
    """Another start took the id in between, and wrote nothing."""
    writer().commit([], 0)
    writer().commit([task_of(planned(), 1, group)], 1)
    plan(options, 2, 30)
    TransactionCoordinator(kafka.cluster(), "t", 60_000).init_producer_id()
    writer().commit([task_of(planned(), 2, group)], 2)
    assert kafka.numbers() == [0, 1, 2]
