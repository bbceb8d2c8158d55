"""The foreachBatch writer on real Spark and a real broker, behind a source that is not Kafka."""

from __future__ import annotations

import json
import re
import shutil
import threading
import zlib
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_END, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from spark_kafka_eos.appending.append_mode import SessionKind
from spark_kafka_eos.appending.report import CommitReport
from spark_kafka_eos.options import sink_options
from spark_kafka_eos.spark.micro_batch_writer import MicroBatchWriter
from spark_kafka_eos.spark.writer import TransactionalWriter
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from spark_kafka_eos.testing.topic_reader import read_topic
from spark_kafka_eos.transaction import shared
from spark_kafka_eos.transaction.idempotent import AtLeastOnceProducer
from tests.failing_calls import FAILURES
from tests.reading import read_committed

pytestmark = [pytest.mark.spark, pytest.mark.broker]

MODES = pytest.mark.parametrize("mode", ["driver", "executors"])


@pytest.fixture
def options(bootstrap: str, topic: Callable[..., str]) -> dict[str, str]:
    name = topic("out", partitions=3)
    return {"kafka.bootstrap.servers": bootstrap, "kafka.transactional.id": name, "topic": name}


@pytest.fixture
def numbers(spark: SparkSession, tmp_path: Path) -> Callable[[int, int], DataFrame]:
    """`numbers(first, last)` adds a file with these numbers and returns the stream over all files, one per batch."""
    folder = tmp_path / "in"
    folder.mkdir()

    def stream(first: int, last: int) -> DataFrame:
        lines = "".join(json.dumps({"n": n}) + "\n" for n in range(first, last))
        (folder / f"{first:09}.json").write_text(lines)
        return (
            spark.readStream.schema("n long")
            .option("maxFilesPerTrigger", 1)
            .json(str(folder))
            .select(F.col("n").cast("string").alias("key"), F.col("n").cast("string").alias("value"))
        )

    return stream


def run(frame: DataFrame, function: Callable[[DataFrame, int], None], checkpoint: Path) -> StreamingQuery:
    query = (
        frame.writeStream.foreachBatch(function)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return query


def written(options: dict[str, str], topic: str | None = None) -> list[int]:
    messages = read_committed(options["kafka.bootstrap.servers"], topic or options["topic"])
    return sorted(int(message.value() or b"") for message in messages)


@MODES
def test_each_micro_batch_is_one_transaction_and_all_rows_are_there_once(options, numbers, tmp_path, mode):
    numbers(0, 1000)
    writer = TransactionalWriter(options | {"appendMode": mode})
    reports: list[CommitReport] = []

    def process(batch_df: DataFrame, batch_id: int) -> None:
        writer(batch_df, batch_id)
        assert writer.last_commit is not None
        reports.append(writer.last_commit)

    run(numbers(1000, 2500), process, tmp_path / "checkpoint")
    assert written(options) == list(range(2500))
    assert [(r.batch_id, r.outcome, r.records, r.append_mode) for r in reports] == [
        (0, "committed", 1000, mode),
        (1, "committed", 1500, mode),
    ]
    assert reports[0].producer_id == reports[1].producer_id
    assert reports[0].epoch != reports[1].epoch
    assert set(reports[0].milliseconds) == {"begin", "encode", "append", "offsets", "end"}


@MODES
def test_a_batch_that_spark_runs_again_is_skipped(options, numbers, tmp_path, mode):
    checkpoint = tmp_path / "checkpoint"
    frame = numbers(0, 300)
    run(frame, TransactionalWriter(options | {"appendMode": mode}), checkpoint)
    for name in ("0", ".0.crc"):
        (checkpoint / "commits" / name).unlink()  # as if the driver had died before noting the commit
    writer = TransactionalWriter(options | {"appendMode": mode})
    run(frame, writer, checkpoint)
    assert writer.last_commit is not None and writer.last_commit.outcome == "skipped"
    assert written(options) == list(range(300))


def test_a_stale_checksum_beside_a_plan_stops_the_writer_as_little_as_spark(options, numbers, tmp_path):
    """Neither verifies it on a local disk: a file that an operator has restored need not fit its `.crc`."""
    checkpoint, plans = tmp_path / "checkpoint", tmp_path / "checkpoint" / "offsets"
    for first in (0, 100):
        run(numbers(first, first + 100), TransactionalWriter(options), checkpoint)
    shutil.copy(plans / ".0.crc", plans / ".1.crc")
    for name in ("1", ".1.crc"):
        (checkpoint / "commits" / name).unlink()
    writer = TransactionalWriter(options)
    run(numbers(200, 300), writer, checkpoint)
    assert writer.last_commit is not None and writer.last_commit.batch_id == 2
    assert written(options) == list(range(300))


@MODES
def test_several_frames_and_topics_share_one_transaction(options, numbers, topic, tmp_path, mode):
    odd = topic("odd", partitions=2)
    writer = TransactionalWriter(options | {"appendMode": mode})

    def process(batch_df: DataFrame, batch_id: int) -> None:
        with writer.transaction(batch_df, batch_id) as txn:
            txn.write(batch_df)
            txn.write(batch_df.where("value % 2 = 1"), topic=odd)

    run(numbers(0, 100), process, tmp_path / "checkpoint")
    assert written(options) == list(range(100))
    assert written(options, odd) == list(range(1, 100, 2))
    assert writer.last_commit is not None and writer.last_commit.records == 150


@MODES
@pytest.mark.parametrize("named", ["row", "write"])
def test_a_topic_that_the_transaction_did_not_declare_is_refused_before_anything_is_sent(
    options, numbers, topic, tmp_path, mode, named
):
    other = topic("other")
    by_row = {name: value for name, value in options.items() if name != "topic"}
    writer = TransactionalWriter(by_row | {"outputTopics": f"{options['topic']},{other}", "appendMode": mode})

    def process(batch_df: DataFrame, batch_id: int) -> None:
        with writer.transaction(batch_df, batch_id, output_topics=[options["topic"]]) as txn:
            txn.write(batch_df, topic=options["topic"])
            if named == "write":
                txn.write(batch_df, topic=other)
            else:
                txn.write(batch_df.withColumn("topic", F.lit(other)))

    with pytest.raises(Exception, match=f"{other}.* is not in outputTopics"):
        run(numbers(0, 10), process, tmp_path / "checkpoint")
    for name in (options["topic"], other):
        assert list(read_topic(options["kafka.bootstrap.servers"], name, "read_uncommitted")) == []


def test_a_body_that_raises_writes_nothing(options, numbers, tmp_path):
    writer = TransactionalWriter(options)

    def process(batch_df: DataFrame, batch_id: int) -> None:
        with writer.transaction(batch_df, batch_id) as txn:
            txn.write(batch_df)
            raise RuntimeError("the user's own error")

    with pytest.raises(Exception, match="the user's own error"):
        run(numbers(0, 10), process, tmp_path / "checkpoint")
    assert written(options) == []


def test_what_a_function_does_besides_is_done_again_with_its_batch_and_the_topics_have_it_once(
    options, numbers, topic, tmp_path
):
    """A file of the user's own, two topics, and a step between them that fails once."""
    odd, table = topic("besides", partitions=2), tmp_path / "table"
    writer = TransactionalWriter(options)
    failing = iter([True])

    def process(batch_df: DataFrame, batch_id: int) -> None:
        with table.open("a") as rows:
            rows.writelines(f"{row.value}\n" for row in batch_df.collect())
        with writer.transaction(batch_df, batch_id) as txn:
            txn.write(batch_df)
            if next(failing, False):
                raise RuntimeError("the last step fails")
            txn.write(batch_df, topic=odd)

    frame = numbers(0, 10)
    with pytest.raises(Exception, match="the last step fails"):
        run(frame, process, tmp_path / "checkpoint")
    assert written(options) == written(options, odd) == []
    run(frame, process, tmp_path / "checkpoint")
    assert written(options) == written(options, odd) == list(range(10))
    assert sorted(map(int, table.read_text().split())) == sorted([*range(10)] * 2)


@MODES
def test_a_row_that_cannot_be_sent_fails_the_batch_with_its_reason_and_nothing_is_visible(
    options, numbers, tmp_path, mode
):
    frame = numbers(0, 100).withColumn("partition", F.expr("if(value = 57, 9, cast(null as int))"))
    with pytest.raises(Exception, match="partition 9 of topic") as raised:
        run(frame, TransactionalWriter(options | {"appendMode": mode}), tmp_path / "checkpoint")
    assert "Nothing was committed" in str(raised.value)
    assert written(options) == []


@MODES
def test_a_batch_without_rows_is_committed_too(options, numbers, tmp_path, mode):
    writer = TransactionalWriter(options | {"appendMode": mode})
    run(numbers(0, 10).where("value > 100"), writer, tmp_path / "checkpoint")
    assert writer.last_commit is not None
    assert (writer.last_commit.outcome, writer.last_commit.records) == ("committed", 0)
    run(
        numbers(200, 210).where("value > 100"),
        TransactionalWriter(options | {"appendMode": mode}),
        tmp_path / "checkpoint",
    )
    assert written(options) == list(range(200, 210)), "the ledger goes on"


def test_another_query_under_the_same_transactional_id_is_refused(options, numbers, tmp_path):
    frame = numbers(0, 10)
    run(frame, TransactionalWriter(options), tmp_path / "one")
    with pytest.raises(Exception, match="kafka.transactional.id"):
        run(frame, TransactionalWriter(options), tmp_path / "two")
    assert written(options) == list(range(10))


@MODES
def test_no_staging_file_is_left_behind(options, numbers, tmp_path, mode):
    frame = numbers(0, 3000).withColumn("value", F.concat("value", F.lit(" " * 100)))
    run(frame, TransactionalWriter(options | {"appendMode": mode}), tmp_path / "checkpoint")
    staging = tmp_path / "checkpoint" / "kafka-eos-staging"
    assert not [path for path in staging.rglob("*") if path.is_file()]
    assert len(written(options)) == 3000


@MODES
def test_at_least_once_needs_no_transactional_id_and_writes_again_what_spark_runs_again(
    options, numbers, tmp_path, mode
):
    checkpoint = tmp_path / "checkpoint"
    plain = {name: value for name, value in options.items() if name != "kafka.transactional.id"}
    writer = TransactionalWriter(plain | {"deliveryGuarantee": "at-least-once", "appendMode": mode})
    frame = numbers(0, 300)
    run(frame, writer, checkpoint)
    assert written(options) == list(range(300))
    for name in ("0", ".0.crc"):
        (checkpoint / "commits" / name).unlink()
    run(frame, writer, checkpoint)
    assert written(options) == sorted([*range(300), *range(300)])


@pytest.mark.parametrize("partitioner", ["consistent", "roundrobin"])
def test_the_partitioner_is_an_option(options, numbers, tmp_path, partitioner):
    run(numbers(0, 300), TransactionalWriter(options | {"partitioner": partitioner}), tmp_path / "checkpoint")
    records = read_committed(options["kafka.bootstrap.servers"], options["topic"])
    for record in records:
        if partitioner == "consistent":
            assert record.partition() == zlib.crc32(record.key() or b"") % 3
    sizes = Counter(record.partition() for record in records)
    assert sum(sizes.values()) == 300
    if partitioner == "roundrobin":
        assert max(sizes.values()) - min(sizes.values()) <= 1


@pytest.fixture
def source(bootstrap: str, topic: Callable[..., str]) -> Callable[[int, int], str]:
    """`source(first, last)` produces these numbers to a topic of its own and returns its name."""
    name = topic("in", partitions=2)

    def produce(first: int, last: int) -> str:
        producer = Producer({"bootstrap.servers": bootstrap})
        for number in range(first, last):
            producer.produce(name, key=b"%d" % number, value=b"%d" % number)
        assert producer.flush(30) == 0
        return name

    return produce


def test_on_a_cluster_small_batches_go_by_the_driver_and_others_by_the_executors(spark, options, source, tmp_path):
    name = source(0, 10)
    stream = spark.readStream.format("kafka-eos").option("subscribe", name).option("startingOffsets", "earliest")
    stream = stream.option("kafka.bootstrap.servers", options["kafka.bootstrap.servers"]).load()
    large = F.expr("if(int(string(value)) < 10, '', repeat('x', 300000))")
    frame = stream.select(F.col("value").alias("key"), F.concat("value", large).alias("value"))
    staging = tmp_path / "staging"
    writer = TransactionalWriter(options | {"stagingDir": str(staging)})
    on_cluster = SessionKind(classic=True, local=False, speculates=False)
    writer._writer = MicroBatchWriter(
        sink_options(options | {"stagingDir": str(staging)}), session_kind=lambda _: on_cluster
    )
    found = []
    for first, last in [(10, 20), (20, 30), (30, 31)]:
        run(frame, writer, tmp_path / "checkpoint")
        assert writer.last_commit is not None
        found.append((writer.last_commit.append_mode, writer.last_commit.append_reason))
        source(first, last)
    assert [mode for mode, _ in found] == ["driver", "executors", "executors"]
    assert "at most 1,000,000" in found[0][1], "batch 0 is small"
    assert "unexpectedly" in found[1][1], "batch 1 looks as small"
    assert "more than 1,000,000" in found[2][1], "and batch 2 does not"
    assert not (tmp_path / "checkpoint" / "kafka-eos-staging").exists(), "which executors may not share with the driver"
    messages = read_committed(options["kafka.bootstrap.servers"], options["topic"])
    assert sorted(int(message.key() or b"") for message in messages) == list(range(30))
    assert not staging.exists(), "so executors need not share a disk"


def start(frame: DataFrame, options: dict[str, str], way: str, checkpoint: Path) -> None:
    if way == "foreachBatch":
        run(frame, TransactionalWriter(options), checkpoint)
        return
    stream = frame.writeStream.format("kafka-eos").options(**options).trigger(availableNow=True)
    stream.option("checkpointLocation", str(checkpoint)).start().awaitTermination()


WAYS = pytest.mark.parametrize("way", ["foreachBatch", "sink"])


@WAYS
def test_rows_without_a_key_reach_other_partitions_in_each_batch(spark, options, topic, source, tmp_path, way):
    reader = spark.readStream.format("kafka-eos").options(subscribe=source(0, 8), startingOffsets="earliest")
    bootstrap, name = options["kafka.bootstrap.servers"], topic("spread", partitions=12)
    reader = reader.options(**{"kafka.bootstrap.servers": bootstrap, "maxOffsetsPerTrigger": "1"})
    start(reader.load().select("value"), options | {"topic": name}, way, tmp_path / "checkpoint")
    partitions = [record.partition() for record in read_committed(bootstrap, name)]
    assert len(partitions) == 8
    assert len(set(partitions)) > 2, "by chance, that fails once in 20,000 runs"


@WAYS
def test_a_lost_checkpoint_continues_where_the_last_transaction_ended(spark, options, source, tmp_path, way):
    def stream(**starting: str) -> DataFrame:
        reader = spark.readStream.format("kafka-eos").options(**starting)
        bootstrap = options["kafka.bootstrap.servers"]
        frame: DataFrame = reader.option("kafka.bootstrap.servers", bootstrap).option("subscribe", name).load()
        return frame

    name = source(0, 500)
    start(stream(startingOffsets="earliest"), options, way, tmp_path / "lost")
    source(500, 800)
    group = options["kafka.transactional.id"]
    resumed = stream(startingOffsets="committed", **{"kafka.group.id": group})
    start(resumed, options, way, tmp_path / "new")
    assert written(options) == list(range(800))


@WAYS
def test_a_new_query_that_would_repeat_records_is_refused(spark, options, source, tmp_path, way):
    name = source(0, 100)
    stream = (
        spark.readStream.format("kafka-eos")
        .option("kafka.bootstrap.servers", options["kafka.bootstrap.servers"])
        .options(subscribe=name, startingOffsets="earliest")
        .load()
    )
    start(stream, options, way, tmp_path / "one")
    with pytest.raises(Exception, match="kafka.transactional.id") as raised:
        start(stream, options, way, tmp_path / "two")
    assert "Nothing was committed" in str(raised.value)
    assert written(options) == list(range(100))


@WAYS
def test_record_batches_are_cut_to_what_the_topic_takes_and_a_row_too_large_for_it_names_it(
    options, numbers, topic, tmp_path, way
):
    small = topic("small", config={"max.message.bytes": 1_000})
    options |= {"topic": small}
    frame = numbers(0, 300).withColumn("value", F.expr("if(value = '305', repeat('x', 1000), value)"))
    start(frame, options, way, tmp_path / "checkpoint")
    assert written(options) == list(range(300))
    numbers(300, 310)
    with pytest.raises(Exception, match=f"{small}-0 .*max.message.bytes") as raised:
        start(frame, options, way, tmp_path / "checkpoint")
    assert "Nothing was committed" in str(raised.value)
    assert written(options) == list(range(300))


def test_a_second_call_for_a_batch_is_refused_and_its_frames_are_not_lost_unnoticed(options, numbers, tmp_path):
    frame, checkpoint = numbers(0, 100), tmp_path / "checkpoint"

    def program() -> Callable[[DataFrame, int], None]:
        one, other = TransactionalWriter(options), TransactionalWriter(options)

        def process(batch_df: DataFrame, batch_id: int) -> None:
            one(batch_df.where("value < 50"), batch_id)
            other(batch_df.where("value >= 50"), batch_id)

        return process

    with pytest.raises(Exception, match="a second call for batch 0 .*first call's rows.*ONE `with writer"):
        run(frame, program(), checkpoint)
    # Neither that program nor a right one takes the batch for done from then on.
    for again in (program(), TransactionalWriter(options)):
        with pytest.raises(Exception, match="batch 0 is incomplete: the writer's first call was committed") as refused:
            run(frame, again, checkpoint)
    assert written(options) == list(range(50))
    (word,) = re.findall(r"resolve='(skip:[^']+)'", str(refused.value))
    run(frame, TransactionalWriter(options | {"resolve": word}), checkpoint)
    assert written(options) == list(range(50))


# A batch that failed, in a function that goes on


@pytest.fixture
def twelve(numbers: Callable[[int, int], DataFrame]) -> DataFrame:
    """Twelve records in four batches."""
    return [numbers(first, first + 3) for first in range(0, 12, 3)][-1]


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
@pytest.mark.parametrize("fails", FAILURES, ids=lambda each: each.__name__)
def test_no_batch_follows_one_that_failed_although_the_function_caught_the_error(
    options, twelve, tmp_path, fails, guarantee
):
    if guarantee == "at-least-once":
        del options["kafka.transactional.id"]
        options |= {"deliveryGuarantee": guarantee}
    caught: list[Exception] = []

    def process(batch_df: DataFrame, batch_id: int) -> None:
        try:
            if batch_id == 1:
                fails(options, batch_df, batch_id)
            else:
                TransactionalWriter(options)(batch_df, batch_id)
        except Exception as error:
            caught.append(error)
            if batch_id != 1:
                raise

    with pytest.raises(
        Exception, match="in this run, batch 1 began and did not end in a commit.*Nothing was committed"
    ):
        run(twelve, process, tmp_path / "checkpoint")
    assert len(caught) == 2, "what failed, and the refusal of the batch after it"
    assert written(options) == [0, 1, 2]
    if guarantee == "exactly-once":
        with pytest.raises(Exception, match="the last committed batch is 0, but the checkpoint is at batch 2"):
            run(twelve, TransactionalWriter(options), tmp_path / "checkpoint")
        assert written(options) == [0, 1, 2]
    else:  # nothing knows of it any more
        run(twelve, TransactionalWriter(options), tmp_path / "checkpoint")
        assert written(options) == [0, 1, 2, *range(6, 12)]


def test_a_batch_that_is_written_again_after_its_failure_is_followed_by_the_next_ones(options, twelve, tmp_path):
    def process(batch_df: DataFrame, batch_id: int) -> None:
        for fails in FAILURES if batch_id == 1 else ():
            with pytest.raises(Exception, match="."):
                fails(options, batch_df, batch_id)
        TransactionalWriter(options)(batch_df, batch_id)

    run(twelve, process, tmp_path / "checkpoint")
    assert written(options) == list(range(12))


def test_no_batch_follows_one_whose_call_a_thread_has_not_ended(options, twelve, tmp_path):
    writer, begun, release = TransactionalWriter(options), threading.Event(), threading.Event()

    def slowly(batch_df: DataFrame, batch_id: int) -> None:
        with writer.transaction(batch_df, batch_id) as transaction:
            begun.set()
            assert release.wait(60)
            transaction.write(batch_df)

    def process(batch_df: DataFrame, batch_id: int) -> None:
        if batch_id == 1:
            calls.append(pool.submit(slowly, batch_df, batch_id))
            assert begun.wait(60)
        else:
            TransactionalWriter(options)(batch_df, batch_id)

    calls: list[Future[None]] = []
    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(Exception, match="in this run, batch 1 began and did not end in a commit"):
            run(twelve, process, tmp_path / "checkpoint")
        release.set()
    assert written(options) == [0, 1, 2]
    assert calls[0].exception() is not None, "it came too late"


def test_a_thread_that_comes_after_the_next_batch_was_written_stops_the_one_after_that(options, twelve, tmp_path):
    """Nobody knows of a call before it is made: until then, the function seems to have made none."""

    def process(batch_df: DataFrame, batch_id: int) -> None:
        if batch_id == 1:
            late.append(batch_df)
            return
        if batch_id == 3:
            assert pool.submit(TransactionalWriter(options), late[0], 1).exception(60) is not None
        TransactionalWriter(options)(batch_df, batch_id)

    late: list[DataFrame] = []
    with (
        ThreadPoolExecutor(1) as pool,
        pytest.raises(Exception, match="in this run, batch 1 began and did not end in a commit"),
    ):
        run(twelve, process, tmp_path / "checkpoint")
    assert written(options) == [0, 1, 2, 6, 7, 8]


def test_a_function_that_makes_no_call_for_a_batch_does_not_stop_the_query(options, twelve, tmp_path):
    def process(batch_df: DataFrame, batch_id: int) -> None:
        if batch_id not in (0, 2):
            TransactionalWriter(options)(batch_df, batch_id)

    run(twelve, process, tmp_path / "checkpoint")
    assert written(options) == [3, 4, 5, 9, 10, 11]


def test_a_batch_id_that_is_not_the_running_one_is_refused_before_anything_is_sent(options, numbers, tmp_path):
    writer = TransactionalWriter(options)
    numbers(0, 10)
    frame = numbers(10, 20)
    with pytest.raises(Exception, match="called with batch_id 0, but the query runs batch 1.*Nothing was committed"):
        run(frame, lambda batch_df, batch_id: writer(batch_df, 0), tmp_path / "checkpoint")
    assert written(options) == list(range(10))


def test_a_query_started_again_with_the_same_writer_in_the_same_process_continues(options, numbers, tmp_path):
    checkpoint, writer = tmp_path / "checkpoint", TransactionalWriter(options)
    run(numbers(0, 10), writer, checkpoint)
    for name in ("0", ".0.crc"):
        (checkpoint / "commits" / name).unlink()
    run(numbers(10, 20), writer, checkpoint)
    assert written(options) == list(range(20))


def test_a_skipped_stateless_batch_no_longer_needs_its_source_records(spark, kafka, options, source, tmp_path):
    name, checkpoint = source(0, 100), tmp_path / "checkpoint"
    stream = spark.readStream.format("kafka-eos").option("kafka.bootstrap.servers", kafka.bootstrap)
    frame = stream.options(subscribe=name, startingOffsets="earliest").load().select("key", "value")
    run(frame, TransactionalWriter(options), checkpoint)
    for left in ("0", ".0.crc"):
        (checkpoint / "commits" / left).unlink()
    gone = [TopicPartition(name, partition, OFFSET_END) for partition in range(2)]
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for deleted in admin.delete_records(gone).values():
        deleted.result()
    source(100, 120)
    writer, outcomes = TransactionalWriter(options), []

    def process(batch_df: DataFrame, batch_id: int) -> None:
        writer(batch_df, batch_id)
        assert writer.last_commit is not None
        outcomes.append(writer.last_commit.outcome)

    run(frame, process, checkpoint)
    assert outcomes == ["skipped", "committed"]
    assert written(options) == list(range(120))


@MODES
def test_at_least_once_a_topic_that_is_deleted_after_its_records_were_acknowledged_has_them_nevertheless(
    kafka, options, numbers, tmp_path, monkeypatch, mode
):
    append = AtLeastOnceProducer.append
    times: list[int] = []

    def append_and_delete(self, write):
        appended = append(self, write)
        if not times:
            kafka.delete_topic(options["topic"])
            kafka.create_topic(options["topic"], 3)
        times.append(appended.records)
        return appended

    monkeypatch.setattr(AtLeastOnceProducer, "append", append_and_delete)
    del options["kafka.transactional.id"]
    writer = TransactionalWriter(options | {"appendMode": mode, "deliveryGuarantee": "at-least-once"})
    run(numbers(0, 100), writer, tmp_path / "checkpoint")
    assert times == [100, 100]
    assert written(options) == list(range(100))


@MODES
@pytest.mark.parametrize("named_by", ["option", pytest.param("row", marks=pytest.mark.slow)])
def test_a_topic_that_is_deleted_while_its_batch_is_committed_is_written_again_or_lost_aloud(
    kafka: EmbeddedKafka,
    options: dict[str, str],
    numbers: Callable[[int, int], DataFrame],
    topic: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    named_by: str,
) -> None:
    """Executors keep what they know of topics for minutes, and so do not know of the new one. With `row`, the odd
    numbers go to another topic, which is not deleted.
    """
    points: list[str] = []
    names, step = [options["topic"]], 1
    if named_by == "row":
        names, step = [*names, topic("out", partitions=3)], 2
        del options["topic"]

    def failpoint(name: str, _batch_id: int | None = None) -> None:
        if points and name == points[0]:
            points.pop()
            kafka.delete_topic(names[0])
            kafka.create_topic(names[0], 3)

    def frame(first: int, last: int) -> DataFrame:
        named = F.element_at(F.array(*map(F.lit, names)), F.col("value").cast("int") % step + 1)
        rows = numbers(first, last)
        return rows if step == 1 else rows.withColumn("topic", named)

    def there() -> list[list[int]]:
        return [written(options | {"topic": name}) for name in names]

    monkeypatch.setattr(shared, "failpoint", failpoint)
    writer, checkpoint = TransactionalWriter(options | {"appendMode": mode}), tmp_path / "checkpoint"
    run(frame(0, 100), writer, checkpoint)
    points.append("all appended")
    run(frame(100, 200), writer, checkpoint)
    assert writer.last_commit is not None
    assert [f"topic {names[0]!r} was deleted" in why for why in writer.last_commit.redone] == [True]
    kept = [list(range(1, 200, 2))] if step == 2 else []
    assert there() == [list(range(100, 200, step)), *kept]

    points.append("offsets committed")
    lost = f"OutputLost: batch 2 .* lost are {100 // step} records in 3 partitions of topic '{names[0]}'"
    for what in (lost, "LedgerRefused: batch 2 is incomplete"):
        with pytest.raises(StreamingQueryException, match=what):
            run(frame(200, 300), writer, checkpoint)
    assert writer.last_commit.batch_id == 1
    assert there() == [[], *([list(range(1, 300, 2))] if step == 2 else [])]
