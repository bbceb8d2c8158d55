"""What the ledger knows of who wrote what, and to where: second calls, several targets, batches without a call."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_kafka_eos import KafkaEosError, TransactionalWriter
from tests.producing import produce, transact
from tests.reading import read_committed

pytestmark = [pytest.mark.spark, pytest.mark.broker]

Query = Callable[[Callable[[DataFrame, int], None]], None]


@pytest.fixture
def into(topic: Callable[[str], str]) -> str:
    return topic("in")


@pytest.fixture
def query(spark: SparkSession, bootstrap: str, into: str, tmp_path: Path) -> Query:
    """`query(function)` runs the query on what is in the topic, from its checkpoint on, in batches of 100 records."""

    def run(function: Callable[[DataFrame, int], None], checkpoint: str = "checkpoint", **options: str) -> None:
        given = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "100"} | options
        reader = spark.readStream.format("kafka-eos").option("kafka.bootstrap.servers", bootstrap)
        stream = reader.option("subscribe", into).options(**given).load()
        started = stream.writeStream.foreachBatch(function).trigger(availableNow=True)
        started.option("checkpointLocation", str(tmp_path / checkpoint)).start().awaitTermination()

    return run


@pytest.fixture
def writer_of(bootstrap: str, into: str, tmp_path: Path) -> Callable[..., TransactionalWriter]:
    """`writer_of(topic)`: a writer under the query's transactional.id, with another output topic."""

    def make(topic: str, **options: str) -> TransactionalWriter:
        given = {"kafka.bootstrap.servers": bootstrap, "kafka.transactional.id": into, "topic": topic}
        return TransactionalWriter(given | {"checkpointLocation": str(tmp_path / "checkpoint")} | options)

    return make


def count(bootstrap: str, topic: str) -> tuple[int, int]:
    """The number of records, and of different ones."""
    values = [message.value() for message in read_committed(bootstrap, topic)]
    return len(values), len(set(values))


def numbers(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]


def in_thread(call: Callable[[], None]) -> list[Exception]:
    """Run `call` in a plain thread; what it raised."""
    errors: list[Exception] = []

    def run() -> None:
        try:
            call()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the test's
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return errors


def test_several_targets_with_one_version_are_several_writes(spark, bootstrap, topic):
    """Delta's idiom: `txnAppId` and `txnVersion` are those of the batch, whatever the number of targets."""
    a, b, c, d = topic("a"), topic("b", partitions=2), topic("c"), topic("d")
    rows = spark.range(200).select(F.col("id").cast("string").alias("value"))
    writes = [
        (rows, {"topic": a}),
        (rows.where("value % 2 = 0"), {"topic": b}),
        (rows.where("value % 4 = 0").withColumn("topic", F.lit(c)), {"outputTopics": f"{a},{c}"}),
        (rows.where("value % 5 = 0").withColumn("topic", F.lit(d)), {}),
    ]

    def write(version: int) -> None:
        for frame, destination in writes:
            options = {"kafka.bootstrap.servers": bootstrap, "txnAppId": a, "txnVersion": str(version)} | destination
            frame.write.format("kafka-eos").options(**options).mode("append").save()

    def counts() -> list[tuple[int, int]]:
        return [count(bootstrap, target) for target in (a, b, c, d)]

    write(7)
    assert counts() == [(200, 200), (100, 100), (50, 50), (40, 40)]
    write(7)  # the whole job runs again
    assert counts() == [(200, 200), (100, 100), (50, 50), (40, 40)]
    write(8)
    assert [records for records, _ in counts()] == [400, 200, 100, 80]
    with pytest.raises(Exception, match="txnVersion 3 is lower than 8"):
        write(3)


def test_several_targets_of_a_micro_batch_are_several_writes(bootstrap, topic, into, query):
    p, q = topic("p"), topic("q")
    produce(bootstrap, into, numbers(0, 250))

    def process(frame: DataFrame, batch_id: int) -> None:
        for target, rows in ((p, frame), (q, frame.where("cast(cast(value as string) as int) % 5 = 0"))):
            options = {"kafka.bootstrap.servers": bootstrap, "txnAppId": into, "txnVersion": str(batch_id)}
            rows.select("value").write.format("kafka-eos").options(**options, topic=target).mode("append").save()

    query(process)
    assert (count(bootstrap, p), count(bootstrap, q)) == ((250, 250), (50, 50))


def test_a_topic_that_was_created_again_is_another_destination(spark, bootstrap, kafka, topic):
    name = topic("again")
    options = {"kafka.bootstrap.servers": bootstrap, "topic": name, "txnAppId": name, "txnVersion": "1"}

    def write() -> None:
        spark.range(10).selectExpr("cast(id as string) value").write.format("kafka-eos").options(**options).mode(
            "append"
        ).save()

    write()
    kafka.delete_topic(name)
    kafka.create_topic(name, 1)
    write()
    write()
    assert count(bootstrap, name) == (10, 10)


def test_a_version_that_two_jobs_write_at_once_is_written_once(spark, bootstrap, topic, tmp_path):
    """The second one begins and ends while the first one computes its rows."""
    target = topic("at-once")
    options = {"kafka.bootstrap.servers": bootstrap, "topic": target, "txnAppId": target, "txnVersion": "7"}

    def hold(number: int) -> str:
        (tmp_path / "computing").touch()
        while not (tmp_path / "go").exists():
            time.sleep(0.02)
        return str(number)

    def write(frame: DataFrame) -> None:
        frame.write.format("kafka-eos").options(**options).mode("append").save()

    slow = spark.range(10).coalesce(1).select(F.udf(hold, "string", useArrow=False)("id").alias("value"))
    with ThreadPoolExecutor(1) as pool:
        pool.submit(spark.createDataFrame, [], "id int").result()  # gives the thread an active session
        first = pool.submit(write, slow)
        while not (tmp_path / "computing").exists():
            assert not first.done(), first.exception()
            time.sleep(0.02)
        write(spark.range(10).selectExpr("string(id) AS value"))
        (tmp_path / "go").touch()
        assert first.exception(120) is None
    assert count(bootstrap, target) == (10, 10)


@pytest.mark.parametrize("way", ["thread and callback", "two addresses"])
def test_a_second_call_is_refused_wherever_it_comes_from(bootstrap, topic, into, query, writer_of, way):
    one, other = topic("one"), topic("other")
    address = {"kafka.bootstrap.servers": bootstrap.replace("127.0.0.1", "localhost")} if way == "two addresses" else {}
    assert way != "two addresses" or address["kafka.bootstrap.servers"] != bootstrap
    produce(bootstrap, into, numbers(0, 50))

    def process(
        frame: DataFrame,
        batch_id: int,
        first: TransactionalWriter,
        second: TransactionalWriter,
    ) -> None:
        if way == "two addresses":
            first(frame, batch_id)
        else:
            for error in in_thread(lambda: first(frame, batch_id)):
                raise error
        second(frame, batch_id)

    # The ledger keeps it: also the next start is refused.
    for refusal in (r"a second call for batch 0 of query .* in the same run", "batch 0 is incomplete"):
        with pytest.raises(Exception, match=refusal):
            query(functools.partial(process, first=writer_of(one), second=writer_of(other, **address)))
        assert (count(bootstrap, one)[0], count(bootstrap, other)[0]) == (50, 0)


def test_calls_in_two_threads_at_once_commit_neither(bootstrap, topic, into, query, writer_of):
    targets = [topic("left"), topic("right")]
    writers = [writer_of(target) for target in targets]
    produce(bootstrap, into, numbers(0, 50))
    both = threading.Barrier(2)

    def process(frame: DataFrame, batch_id: int) -> None:
        def call(writer: TransactionalWriter) -> None:
            with writer.transaction(frame, batch_id) as transaction:
                transaction.write(frame)
                both.wait(60)

        threads = [threading.Thread(target=in_thread, args=(functools.partial(call, each),)) for each in writers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    query(process)  # its threads swallow the errors
    assert [count(bootstrap, target)[0] for target in targets] == [0, 0]
    produce(bootstrap, into, numbers(50, 60))
    with pytest.raises(Exception, match="the ledger has no entry"):
        query(writers[0])
    assert [count(bootstrap, target)[0] for target in targets] == [0, 0]


def test_a_batch_that_the_next_run_in_the_same_process_replays_is_skipped(bootstrap, topic, into, query, writer_of):
    """The writer is always called in a thread, and the function fails after the commit."""
    target = topic("out")
    writer, failures = writer_of(target), iter([True])
    produce(bootstrap, into, numbers(0, 150))

    def process(frame: DataFrame, batch_id: int) -> None:
        assert in_thread(lambda: writer(frame, batch_id)) == []
        if next(failures, False):
            raise ValueError("after the commit")

    with pytest.raises(Exception, match="after the commit"):
        query(process)
    query(process)
    assert count(bootstrap, target) == (150, 150)


def test_a_function_that_returns_without_a_call_for_an_empty_batch_goes_on(bootstrap, topic, into, query, writer_of):
    """With startingOffsets=latest, batch 0 is empty; and what users write first is `if df.isEmpty(): return`."""
    target = topic("out")
    writer, called = writer_of(target), []

    def process(frame: DataFrame, batch_id: int) -> None:
        if frame.isEmpty():
            return
        called.append(batch_id)
        writer(frame, batch_id)

    query(process, startingOffsets="latest")
    produce(bootstrap, into, numbers(0, 50))
    query(process)  # another run: batch 0 is done, and read nothing
    for producer in (
        transact(bootstrap, into, numbers(0, 5), "abort"),
        transact(bootstrap, into, numbers(0, 5), "abort"),
    ):
        del producer
    query(process)  # a batch of markers only
    produce(bootstrap, into, numbers(50, 80))
    query(process)  # another run: nothing but markers in between
    assert count(bootstrap, target) == (80, 80)
    assert called[0] > 0


def test_a_function_that_returns_without_a_call_for_some_batches_goes_on_in_its_run(
    bootstrap, topic, into, query, writer_of
):
    target = topic("out")
    writer = writer_of(target)
    produce(bootstrap, into, numbers(0, 1000))

    def process(frame: DataFrame, batch_id: int) -> None:
        rows = frame.where("cast(cast(value as string) as int) % 400 >= 300")
        if rows.isEmpty():
            return
        writer(rows, batch_id)

    query(process)
    assert count(bootstrap, target) == (200, 200)


def test_a_batch_whose_call_failed_in_silence_stops_the_query(bootstrap, topic, into, query, writer_of, tmp_path):
    target = topic("out")
    writer, broken = writer_of(target), writer_of(target, outputTopics=f"{target},another-that-is-not-there")
    produce(bootstrap, into, numbers(0, 300))

    def process(frame: DataFrame, batch_id: int) -> None:
        if batch_id != 1:
            writer(frame, batch_id)
            return
        with pytest.raises(KafkaEosError, match="another-that-is-not-there"):
            broken(frame, batch_id)

    with pytest.raises(Exception, match="batch 1 began and did not end in a commit"):
        query(process)
    assert count(bootstrap, target) == (100, 100)

    goes_on = {"startingOffsets": "committed", "sink.kafka.transactional.id": into}
    query(writer_of(target, checkpointLocation=str(tmp_path / "new")), checkpoint="new", **goes_on)
    assert count(bootstrap, target) == (300, 300)
