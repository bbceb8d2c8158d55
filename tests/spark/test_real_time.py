"""`arrow_stream` in real time on Spark: each record once, through stops, kills, lost checkpoints, changes of mode."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pyspark import RDD
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from spark_kafka_eos import ProgressListener, TransactionalWriter, arrow_stream
from spark_kafka_eos.real_time.driver import RealTimeDriver
from spark_kafka_eos.spark import real_time
from spark_kafka_eos.spark.real_time import RealTimeWriter
from spark_kafka_eos.testing.driver import Driver, Kill, python_environment
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from spark_kafka_eos.testing.process_tree import process_tree
from spark_kafka_eos.testing.topic_reader import read_topic
from spark_kafka_eos.transaction.buckets import Buckets
from tests.matrix import Cell
from tests.producing import transact
from tests.reading import await_stable

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.timeout(600)]

_numbers = itertools.count(1)
JOB = Path(__file__).parent / "jobs" / "real_time.py"
PARTITIONS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipe:
    """A topic to read and one to write, and a query between them with that one's name as its id."""

    spark: SparkSession
    kafka: EmbeddedKafka
    folder: Path
    source: str
    target: str
    producer: Producer

    def start(self, checkpoint: str = "checkpoint", once: bool = False, **settings: Any) -> StreamingQuery:
        return self.stream(checkpoint, once, **settings).start()

    def stream(self, checkpoint: str = "checkpoint", once: bool = False, **settings: Any) -> DataStreamWriter:
        reads = {"kafka.bootstrap.servers": self.kafka.bootstrap, "subscribe": self.source}
        reads |= settings.pop("reads", {"startingOffsets": "earliest"})
        trigger = settings.pop("trigger", {"availableNow": True} if once else {})
        writer = TransactionalWriter(
            {
                "kafka.bootstrap.servers": self.kafka.bootstrap,
                "kafka.transactional.id": self.target,
                "topic": self.target,
            }
            | settings.pop("sink", {})
        )
        stream = arrow_stream(self.spark, reads, writer, **{"real_time": "2 seconds", **settings})
        stream = stream.option("checkpointLocation", str(self.folder / checkpoint))
        return stream.trigger(**trigger) if trigger else stream

    def produce(self, first: int, count: int, topic: str | None = None) -> None:
        for number in range(first, first + count):
            self.producer.produce(topic or self.source, str(number).encode(), partition=number % PARTITIONS)
        self.producer.flush()

    def written(self) -> list[int]:
        return sorted(values(self.kafka, self.target))

    def await_written(self, count: int, query: StreamingQuery) -> None:
        deadline = time.monotonic() + 90
        while len(self.written()) < count:
            assert query.isActive, query.exception()
            assert time.monotonic() < deadline, f"{len(self.written())} of {count} records"
            time.sleep(0.1)


def values(kafka: EmbeddedKafka, topic: str) -> list[int]:
    """The numbers in a topic that a read_committed consumer sees."""
    return [int(message.value() or b"") for message in read_topic(kafka.bootstrap, topic, "read_committed")]


@pytest.fixture
def pipe(spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path) -> Iterator[Pipe]:
    number = next(_numbers)
    pipe = Pipe(
        spark=spark,
        kafka=kafka,
        folder=tmp_path,
        source=kafka.create_topic(f"real-time-spark-in-{number}", PARTITIONS),
        target=kafka.create_topic(f"real-time-spark-out-{number}", PARTITIONS),
        producer=Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 0}),
    )
    yield pipe
    for query in spark.streams.active:
        query.stop()


def test_records_come_through_over_several_batches_and_a_stop_leaves_nothing_open(pipe: Pipe) -> None:
    pipe.produce(0, 30)
    query = pipe.start()
    pipe.await_written(30, query)
    produced = 30
    while query.lastProgress is None or query.lastProgress["batchId"] < 2:  # some in each of several batches
        pipe.produce(produced, 30)
        produced += 30
        pipe.await_written(produced, query)
    pipe.produce(produced, 300)
    query.stop()
    assert query.exception() is None
    await_stable(pipe.kafka.bootstrap, pipe.target)
    again = pipe.start(once=True)
    assert again.awaitTermination(60)
    assert pipe.written() == list(range(produced + 300))


def with_pid(records: pa.RecordBatch) -> pa.RecordBatch:
    pids = pa.array([str(os.getpid()).encode()] * records.num_rows, pa.binary())
    return pa.record_batch({"key": pids, "value": records["value"]})


def await_batch(query: StreamingQuery, number: int) -> None:
    """Wait until the function of this batch has returned. Spark can only be asked for the progress."""
    deadline = time.monotonic() + 90
    while query.lastProgress is None or query.lastProgress["batchId"] < number:
        assert query.isActive, query.exception()
        assert time.monotonic() < deadline, query.lastProgress
        time.sleep(0.05)


def test_a_worker_outlives_its_long_batch(pipe: Pipe) -> None:
    query = pipe.start(transform=with_pid)
    for number in range(3):
        pipe.produce(30 * number, 30)
        pipe.await_written(30 * (number + 1), query)
        await_batch(query, number)
    messages = read_topic(pipe.kafka.bootstrap, pipe.target, "read_committed")
    workers = {int(message.key() or b"0") for message in messages}
    assert all(psutil.pid_exists(pid) for pid in workers), "the next one takes a second to start"


def test_the_first_task_waits_for_the_workers_that_begin_beside_the_buckets(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = list[str]()

    def noted(owner: Any, name: str) -> None:
        function = getattr(owner, name)

        def run(*arguments: Any) -> Any:
            result = function(*arguments)
            steps.append(name)
            return result

        monkeypatch.setattr(owner, name, run)

    noted(real_time, "_begin_workers")
    noted(RealTimeWriter, "_task")
    pipe.produce(0, 10)
    query = pipe.start()
    pipe.await_written(10, query)
    await_batch(query, 1)
    assert steps[:2] == ["_begin_workers", "_task"]
    assert steps.count("_begin_workers") == 1


def test_the_next_long_batch_goes_on_without_taking_the_buckets(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    take = Buckets.take

    def noted(self: Buckets, numbers: Iterable[int]) -> None:
        taken.append(1)
        take(self, numbers)

    monkeypatch.setattr(Buckets, "take", noted)
    query = pipe.start()
    for number in range(3):
        pipe.produce(30 * number, 30)
        pipe.await_written(30 * (number + 1), query)
        await_batch(query, number)
    assert len(taken) == 1


def test_the_function_of_a_batch_returns_before_its_tasks_end_and_a_stop_ends_them(pipe: Pipe) -> None:
    query = pipe.start(real_time="20 seconds")
    await_batch(query, 0)
    pipe.produce(0, 30)
    pipe.await_written(30, query)
    pipe.produce(30, 300)
    query.stop()
    assert query.exception() is None
    await_stable(pipe.kafka.bootstrap, pipe.target)
    assert pipe.start(once=True).awaitTermination(60)
    assert pipe.written() == list(range(330))


def test_a_stop_between_two_batches_starts_no_task_again(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """No batch's function runs then, so Spark may forget the query before a task's thread hears of the end."""
    starts, stopped = list[int](), threading.Event()
    start, collect = RealTimeDriver.start, RDD.collect

    def heard_late(self: RDD[Any]) -> list[Any]:
        try:
            return collect(self)
        except Exception:  # the stop, whatever Spark calls it: it is only raised later
            assert stopped.wait(60)
            raise

    def noted(self: RealTimeDriver, *arguments: Any, **options: Any) -> Any:
        starts.append(1)
        return start(self, *arguments, **options)

    monkeypatch.setattr(RealTimeDriver, "start", noted)
    monkeypatch.setattr(RDD, "collect", heard_late)
    query = pipe.start(real_time="20 seconds", trigger={"processingTime": "1 hour"})
    await_batch(query, 0)
    batches = [thread for thread in threading.enumerate() if thread.name.startswith("kafka-eos-long-batch")]
    assert batches, "it runs on for some seconds"
    query.stop()
    stopped.set()
    for batch in batches:
        batch.join(60)
    assert len(starts) == 1


def test_a_stop_while_a_long_batch_begins_does_not_wait_for_its_end(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark cancels the jobs that run when it is told to stop, and the tasks begin after that."""
    starting, stopped = threading.Event(), threading.Event()
    start = RealTimeDriver.start

    def start_buckets(self: RealTimeDriver, *arguments: Any, **options: Any) -> Any:
        starting.set()
        assert stopped.wait(60)
        return start(self, *arguments, **options)

    monkeypatch.setattr(RealTimeDriver, "start", start_buckets)
    query = pipe.start(real_time="5 minutes")
    assert starting.wait(60)
    stopping = threading.Thread(target=query.stop, daemon=True)
    stopping.start()
    while query.isActive:
        time.sleep(0.05)  # whether the stop has begun, Spark can only be asked
    stopped.set()
    stopping.join(60)
    assert not stopping.is_alive(), "it waits for the long batch"
    assert query.exception() is None
    pipe.produce(0, 30)
    again = pipe.start(once=True)
    assert again.awaitTermination(60)
    assert pipe.written() == list(range(30))


def test_an_error_after_the_function_of_the_batch_has_returned_ends_the_query(pipe: Pipe) -> None:
    def broken(records: pa.RecordBatch) -> pa.RecordBatch:
        assert b"7" not in records["value"].to_pylist(), "seven"
        return records.select(["key", "value"])

    query = pipe.start(transform=broken, real_time="20 seconds")
    await_batch(query, 0)
    pipe.produce(0, 10)
    with pytest.raises(StreamingQueryException, match="AssertionError: seven"):
        query.awaitTermination(60)


def test_with_the_trigger_once_the_query_ends_with_its_tasks(pipe: Pipe) -> None:
    pipe.produce(0, 30)
    query = pipe.start(trigger={"once": True}, real_time="6 seconds")
    pipe.await_written(30, query)
    pipe.produce(30, 30)
    pipe.await_written(60, query)
    assert query.awaitTermination(60)
    assert not pipe.spark.sparkContext.statusTracker().getActiveJobsIds()


ENDS = """
import sys, time
from pyspark.sql import SparkSession
from spark_kafka_eos import TransactionalWriter, arrow_stream

bootstrap, source, target, checkpoint = sys.argv[1:]
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
servers = {"kafka.bootstrap.servers": bootstrap}
writer = TransactionalWriter(servers | {"kafka.transactional.id": target, "topic": target})
stream = arrow_stream(spark, servers | {"subscribe": source}, writer, real_time="10 minutes")
stream.option("checkpointLocation", checkpoint).start()
while not spark.sparkContext.statusTracker().getActiveJobsIds():  # which can only be asked
    time.sleep(0.1)
"""


def test_a_driver_whose_program_ends_does_not_wait_for_the_long_batch(pipe: Pipe) -> None:
    arguments = [pipe.kafka.bootstrap, pipe.source, pipe.target, str(pipe.folder / "checkpoint")]
    subprocess.run([sys.executable, "-c", ENDS, *arguments], env=python_environment(), timeout=240, check=True)


def test_rows_without_a_key_stay_together(pipe: Pipe) -> None:
    pipe.produce(0, 240)
    assert pipe.start(once=True).awaitTermination(60)
    messages = read_topic(pipe.kafka.bootstrap, pipe.target, "read_committed")
    counts = Counter(message.partition() for message in messages)
    assert sorted(counts.values()) == [40, 100, 100], "which partition is the first one differs by batch"


def test_a_stream_ends_at_its_last_offsets_or_is_refused(pipe: Pipe) -> None:
    pipe.produce(0, 60)
    ends = ",".join(f'"{partition}": 10' for partition in range(PARTITIONS))
    reads = {"startingOffsets": "earliest", "endingOffsets": f'{{"{pipe.source}": {{{ends}}}}}'}
    with pytest.raises(StreamingQueryException, match="reads on for ever, but the source's options set an end"):
        pipe.start(reads=reads).awaitTermination(60)
    assert pipe.written() == []
    assert pipe.start("another", once=True, reads=reads).awaitTermination(60)
    assert pipe.written() == list(range(30))


def test_a_lost_checkpoint_loses_and_repeats_nothing(pipe: Pipe) -> None:
    pipe.produce(0, 50)
    pipe.start(once=True).awaitTermination(60)
    pipe.produce(50, 50)
    pipe.start("another", once=True, reads={"startingOffsets": "latest"}).awaitTermination(60)
    assert pipe.written() == list(range(100)), "where it goes on is in Kafka"


def test_a_second_query_of_the_same_stream_ends_the_first_one(pipe: Pipe) -> None:
    stream = pipe.stream()
    pipe.produce(0, 30)
    first = stream.start()
    pipe.await_written(30, first)
    second = stream.option("checkpointLocation", str(pipe.folder / "another")).start()
    with pytest.raises(StreamingQueryException, match="another query was started from the same stream"):
        first.awaitTermination(60)
    pipe.produce(30, 30)
    pipe.await_written(60, second)
    await_batch(second, 1)
    assert pipe.written() == list(range(60))


@pytest.mark.parametrize("created_again", [False, True], ids=["kept", "created again"])
def test_a_topic_that_is_left_out_for_a_while_goes_on_where_it_ended(pipe: Pipe, created_again: bool) -> None:
    other = pipe.kafka.create_topic(f"{pipe.source}-other", PARTITIONS)
    both = {"subscribe": f"{pipe.source},{other}"}

    def ends(reads: dict[str, str]) -> None:
        assert pipe.start(once=True, reads={"startingOffsets": "earliest", **reads}).awaitTermination(90)

    for first in (0, 30):
        pipe.produce(first, 30)
        pipe.produce(1000 + first, 30, other)
        ends(both)
    assert pipe.written() == [*range(60), *range(1000, 1060)]
    pipe.produce(60, 30)
    if created_again:
        pipe.kafka.delete_topic(other)
    ends({})
    if created_again:
        pipe.kafka.create_topic(other, PARTITIONS)
    pipe.produce(90, 30)
    pipe.produce(1060, 90, other)
    if created_again:
        with pytest.raises(StreamingQueryException, match="was created again since this query has read it"):
            ends(both)
        assert pipe.written() == [*range(90), *range(1000, 1060)]
    else:
        ends(both)
        assert pipe.written() == [*range(120), *range(1000, 1150)]


def test_a_worker_that_is_killed_is_replaced_and_the_query_runs_on(pipe: Pipe) -> None:
    pipe.produce(0, 30)
    query = pipe.start(transform=with_pid, real_time="5 minutes", buckets=2)
    pipe.await_written(30, query)
    messages = read_topic(pipe.kafka.bootstrap, pipe.target, "read_committed")
    workers = {int(message.key() or b"0") for message in messages}
    assert len(workers) == 2
    os.kill(min(workers), signal.SIGKILL)
    pipe.produce(30, 60)
    pipe.await_written(90, query)
    query.stop()
    assert pipe.written() == list(range(90))


def test_an_error_of_the_function_ends_the_query_with_its_traceback(pipe: Pipe) -> None:
    def broken(records: pa.RecordBatch) -> pa.RecordBatch:
        raise ZeroDivisionError(f"{records.num_rows} rows")

    pipe.produce(0, 3)
    query = pipe.start(transform=broken)
    with pytest.raises(
        StreamingQueryException, match="ZeroDivisionError(?s:.*)What earlier transactions committed stays"
    ):
        query.awaitTermination(60)
    await_stable(pipe.kafka.bootstrap, pipe.target)
    assert pipe.written() == []


def test_a_task_that_cannot_begin_ends_the_query_with_what_its_worker_said(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    (pipe.folder / "only_the_driver_has_it.py").write_text("def copied(rows):\n    return rows\n")
    monkeypatch.syspath_prepend(str(pipe.folder))
    query = pipe.start(transform=importlib.import_module("only_the_driver_has_it").copied)
    with pytest.raises(StreamingQueryException, match="No module named 'only_the_driver_has_it'") as failed:
        query.awaitTermination(90)
    assert "are started again" not in str(failed.value)


def test_sql_and_dead_letters_are_those_of_micro_batches(pipe: Pipe) -> None:
    dead = pipe.kafka.create_topic(f"{pipe.target}-dead", 1)
    pipe.produce(0, 30)
    text = """
        SELECT key, value, CASE WHEN decode(value)::int % 10 = 0 THEN {'cause': 'round'} END AS error FROM records
    """
    assert pipe.start(once=True, sql=text, sink={"deadLetterTopic": dead}).awaitTermination(60)
    assert pipe.written() == [number for number in range(30) if number % 10]
    assert sorted(values(pipe.kafka, dead)) == [0, 10, 20]


def test_a_query_changes_from_micro_batches_to_real_time_and_back(pipe: Pipe) -> None:
    pipe.produce(0, 40)
    assert pipe.start(once=True, real_time=None).awaitTermination(60)
    pipe.produce(40, 40)
    assert pipe.start(once=True).awaitTermination(60), "with the same checkpoint"
    assert pipe.written() == list(range(80))
    pipe.produce(80, 40)
    with pytest.raises(StreamingQueryException, match="has run in real time"):
        pipe.start(once=True, real_time=None).awaitTermination(60)
    ledger = {"startingOffsets": "committed", "sink.kafka.transactional.id": pipe.target}
    assert pipe.start("back", once=True, real_time=None, reads=ledger).awaitTermination(60)
    assert pipe.written() == list(range(120))


# What each leaves behind: an open transaction with records, one with the group's copy, and a commit of which nobody
# heard; and buckets that were taken by a driver that never used them.
@pytest.mark.parametrize(
    "point",
    [
        pytest.param("bucket appended", marks=pytest.mark.slow),
        "bucket offsets sent",
        pytest.param("bucket committed", marks=pytest.mark.slow),
        pytest.param("buckets taken", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("fixture", ["kafka", pytest.param("kafka39", marks=pytest.mark.slow)])
def test_a_driver_killed_in_each_state_of_a_bucket_writes_each_record_once(
    request: pytest.FixtureRequest, fixture: str, point: str, tmp_path: Path
) -> None:
    kafka: EmbeddedKafka = request.getfixturevalue(fixture)
    number = next(_numbers)
    source = kafka.create_topic(f"real-time-kill-in-{number}", PARTITIONS)
    target = kafka.create_topic(f"real-time-kill-out-{number}", PARTITIONS)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for value in range(1_000):
        producer.produce(source, str(value).encode(), partition=value % PARTITIONS)
    producer.flush()

    def driver(*conf: str, **environment: str) -> Driver:
        return Driver(
            JOB,
            [kafka.bootstrap, source, target, str(tmp_path / "checkpoint")],
            conf=["--master", "local[2]", "--conf", "spark.ui.enabled=false", *conf],
            env=python_environment() | environment,
            log=tmp_path / "driver.log",
        )

    folder = tmp_path / "held"
    folder.mkdir()
    environment = Kill(point=point, batch=0).environment(folder) | {"KAFKA_EOS_FAILPOINT": point}
    with driver(**environment) as killed:
        killed.wait_until((folder / "reached").exists, timeout=120)
        assert killed.kill() >= 2
    with driver() as last:
        last.wait(timeout=180)
    await_stable(kafka.bootstrap, target)
    assert Counter(values(kafka, target)) == Counter(range(1_000))


def test_log_and_metrics_show_a_query_in_real_time_while_its_batch_lasts(
    pipe: Pipe, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"kafka.bootstrap.servers": pipe.kafka.bootstrap, "subscribe": pipe.source, "metricsPort": "0"}
    listener = ProgressListener(options, spark=pipe.spark)
    pipe.spark.streams.addListener(listener)
    caplog.set_level(logging.INFO, "spark_kafka_eos.writing.commit")
    holder = None
    try:
        pipe.produce(0, 30)
        query = pipe.start(real_time="5 minutes")
        pipe.await_written(30, query)
        holder = transact(pipe.kafka.bootstrap, pipe.source, [b"30"], "leave open", partition=0)
        for first in range(31, 61, 10):  # several transactions
            pipe.produce(first, 10)
            pipe.await_written(30 + sum(number % PARTITIONS != 0 for number in range(31, first + 10)), query)
        shown: dict[str, float] = {}
        deadline = time.monotonic() + 60
        while shown.get("kafka_eos_read_records_total", 0) < 30 or not shown.get("kafka_eos_lso_lag_offsets"):
            assert time.monotonic() < deadline, shown
            assert query.isActive, query.exception()
            time.sleep(0.5)
            shown = scraped(str(listener.metrics_address), str(query.id))
        assert query.lastProgress is None, "the batch is not over"
        assert 30 <= shown["kafka_eos_read_records_total"] <= 60
        assert shown["kafka_eos_written_records_total"] == shown["kafka_eos_read_records_total"]
        assert 2 <= shown["kafka_eos_real_time_transactions_total"] <= 60
        assert shown["kafka_eos_real_time_latency_seconds_count"] == shown["kafka_eos_read_records_total"]
        assert shown["kafka_eos_real_time_transaction_seconds_count"] == shown["kafka_eos_real_time_transactions_total"]
        assert shown["kafka_eos_lso_lag_offsets"] >= 1, "what the open transaction holds"
        lines = [record.getMessage() for record in caplog.records if "in real time: seconds=" in record.getMessage()]
        assert lines and all(re.search(r"latency_p50=[\d.]+ms latency_p95=[\d.]+ms", each) for each in lines), lines
    finally:
        if holder is not None:
            holder.abort_transaction(30)
        for query in pipe.spark.streams.active:
            query.stop()
        pipe.spark.streams.removeListener(listener)
        listener.close()


def scraped(address: str, query_id: str) -> dict[str, float]:
    """By name the value of each sample of a query."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    samples = re.findall(r"^(\w+)\{([^}]*)\} ([\d.e+-]+)$", text, re.MULTILINE)
    return {name: float(value) for name, labels, value in samples if query_id in labels and "le=" not in labels}


@pytest.mark.slow
def test_an_idle_query_of_a_hundred_partitions_uses_less_than_3_percent_of_a_core(pipe: Pipe, cell: Cell) -> None:
    pipe = replace(pipe, source=pipe.kafka.create_topic(f"{pipe.source}-wide", 100))
    pipe.produce(0, 30)
    query = pipe.start(real_time="5 minutes")
    pipe.await_written(30, query)
    shares = [cpu_share(os.getpid(), {pipe.kafka.pid()}, seconds=20) for _ in range(3)]  # at first, Java compiles
    cell("real time, idle with 100 partitions", "all processes of Spark", "of a core", f"{shares[-1]:.1%}")
    assert shares[-1] < 0.03
    assert query.isActive


def cpu_share(root: int, others: set[int], *, seconds: float) -> float:
    """The CPU time of a process and its descendants, but for `others` and theirs, in parts of a core.

    Spark ends Python workers that nobody has used for a minute: those of earlier tests may end while this measures.
    """
    excluded = {process.pid for other in others for process in process_tree(other)}
    processes = [process for process in process_tree(root) if process.pid not in excluded]

    def used() -> dict[int, float]:
        times = {}
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                times[process.pid] = sum(process.cpu_times()[:2])
        return times

    before = used()
    time.sleep(seconds)  # what is measured takes this time
    return sum(after - before[pid] for pid, after in used().items()) / seconds
