"""A query stopped in the middle of a batch, also by its driver's SIGTERM, ends cleanly: no error, nothing half."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_kafka_eos import Conflict, TableVersion, TransactionalWriter
from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.kafka.protocol import describe
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.facts import TransactionFacts, Unavailable
from spark_kafka_eos.options import sink_options
from spark_kafka_eos.testing.driver import Driver, Kill, python_environment
from spark_kafka_eos.transaction import shared
from tests.held import reached, release
from tests.pages import ROOT
from tests.producing import produce
from tests.reading import read_committed

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.timeout(600)]

ROWS = 40


class _Uncaught:
    """Collects what ends a thread of the JVM: Spark reports it nowhere but on standard error."""

    def __init__(self) -> None:
        self.errors: list[str] = []

    def uncaughtException(self, thread: object, error: object) -> None:
        self.errors.append(str(error.toString()))  # type: ignore[attr-defined]

    class Java:
        implements = ("java.lang.Thread$UncaughtExceptionHandler",)


@pytest.fixture
def uncaught(spark: SparkSession) -> Iterator[list[str]]:
    ensure_callback_server_started(spark.sparkContext._gateway)
    threads = spark.sparkContext._jvm.java.lang.Thread  # type: ignore[union-attr]
    before, handler = threads.getDefaultUncaughtExceptionHandler(), _Uncaught()
    threads.setDefaultUncaughtExceptionHandler(handler)
    yield handler.errors
    threads.setDefaultUncaughtExceptionHandler(before)


@pytest.fixture
def options(bootstrap: str, topic: Callable[..., str]) -> dict[str, str]:
    name = topic("stopped", partitions=2)
    return {"kafka.bootstrap.servers": bootstrap, "kafka.transactional.id": name, "topic": name}


@pytest.fixture
def numbers(spark: SparkSession, tmp_path: Path) -> DataFrame:
    """A stream of one batch."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "rows.json").write_text("".join(json.dumps({"n": n}) + "\n" for n in range(ROWS)))
    return spark.readStream.schema("n long").json(str(tmp_path / "in"))


@pytest.fixture
def hold(tmp_path: Path) -> Callable[[str], Column]:
    """A function of a number that returns once the file `go` exists; the file `computing` says that it was called."""

    def text(number: int) -> str:
        (tmp_path / "computing").touch()
        while not (tmp_path / "go").exists():
            time.sleep(0.02)
        return str(number)

    return F.udf(text, "string", useArrow=False)


@pytest.fixture
def slow(numbers: DataFrame, hold: Callable[[str], Column]) -> DataFrame:
    """A stream of one batch whose tasks run until the file `go` exists; the file `computing` says that one does."""
    return numbers.select(hold("n").alias("value"))


@pytest.mark.parametrize("way", ["driver", "executors", "count in the block"])
def test_stop_in_the_middle_of_a_batch_ends_foreach_batch_cleanly(slow, options, uncaught, tmp_path, way):
    writer = TransactionalWriter(options | {"appendMode": "driver" if way.startswith("count") else way})

    def count_first(batch_df: DataFrame, batch_id: int) -> None:
        with writer.transaction(batch_df, batch_id) as transaction:
            batch_df.count()
            transaction.write(batch_df)

    stream = slow.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
    stream = stream.foreachBatch(count_first if way.startswith("count") else writer)

    query = stream.start()
    while not (tmp_path / "computing").exists():
        assert query.isActive, query.exception()
        time.sleep(0.02)
    query.stop()

    assert not uncaught, uncaught
    assert query.exception() is None
    assert not read_committed(options["kafka.bootstrap.servers"], options["topic"])

    (tmp_path / "go").touch()
    stream.trigger(availableNow=True).start().awaitTermination()

    written = read_committed(options["kafka.bootstrap.servers"], options["topic"])
    assert sorted(int(message.value() or b"") for message in written) == list(range(ROWS))


class InMemory:
    """A table whose commit computes its rows; the file `go` lets that of a second attempt end."""

    def __init__(self, go: Path) -> None:
        self.go, self.rows, self.now, self.attempts = go, list[int](), TableVersion(), 0

    def held(self) -> TableVersion:
        return self.now

    def commit(self, rows: DataFrame | None, token: str | None, *, after: int) -> None:
        if self.now.version != after:
            raise Conflict
        if rows is not None:
            self.attempts += 1
            if self.attempts == 2:
                self.go.touch()
            self.rows += [int(row.value) for row in rows.collect()]
        self.now = TableVersion(version=after + 1, token=token)


def test_stop_while_a_table_commits_writes_the_batch_again_before_the_query_ends(
    numbers, hold, options, uncaught, tmp_path
):
    table, writer = InMemory(tmp_path / "go"), TransactionalWriter(options)

    def both(batch_df: DataFrame, batch_id: int) -> None:
        with writer.transaction(batch_df, batch_id, participant=table) as transaction:
            transaction.write(batch_df.selectExpr("string(n) AS value"))
            transaction.write_table(batch_df.select(hold("n").alias("value")))

    query = numbers.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint")).foreachBatch(both).start()
    while not (tmp_path / "computing").exists():
        assert query.isActive, query.exception()
        time.sleep(0.02)
    query.stop()
    assert (query.exception(), uncaught, table.attempts) == (None, [], 2)
    written = read_committed(options["kafka.bootstrap.servers"], options["topic"])
    assert sorted(int(message.value() or b"") for message in written) == sorted(table.rows) == list(range(ROWS))


def test_stop_while_a_table_commits_without_spark_completes_the_batch(numbers, options, uncaught, tmp_path):
    committing, go_on, errors = threading.Event(), threading.Event(), list[BaseException]()

    class Table(InMemory):
        def commit(self, rows: Any, token: str | None, *, after: int) -> None:
            if rows is not None:  # else it is fenced
                committing.set()
                assert go_on.wait(120)
                self.rows += rows
            self.now = TableVersion(version=after + 1, token=token)

    table, writer = Table(tmp_path), TransactionalWriter(options)

    def both(batch_df: DataFrame, batch_id: int) -> None:
        try:
            with writer.transaction(batch_df, batch_id, participant=table) as transaction:
                transaction.write(batch_df.selectExpr("string(n) AS value"))
                transaction.write_table([1])
        except BaseException as error:
            errors.append(error)
            raise

    query = numbers.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint")).foreachBatch(both).start()
    assert committing.wait(120), query.exception()
    stopping = threading.Thread(target=query.stop)
    stopping.start()
    while query.isActive:
        time.sleep(0.02)
    go_on.set()
    stopping.join(120)
    assert (errors, query.exception(), uncaught) == ([], None, [])
    assert writer.last_commit is not None
    assert (writer.last_commit.outcome, table.rows) == ("committed", [1])
    written = read_committed(options["kafka.bootstrap.servers"], options["topic"])
    assert sorted(int(message.value() or b"") for message in written) == list(range(ROWS))


def test_stop_while_a_batch_is_committed_completes_it_and_the_next_start_does_not_write_it_again(
    slow, options, uncaught, tmp_path, monkeypatch
):
    committing, go_on = threading.Event(), threading.Event()

    def failpoint(name: str, _batch_id: int | None = None) -> None:
        if name == "offsets committed":
            committing.set()
            assert go_on.wait(120)

    monkeypatch.setattr(shared, "failpoint", failpoint)
    (tmp_path / "go").touch()
    stream = slow.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
    stream = stream.foreachBatch(TransactionalWriter(options))
    query = stream.start()
    assert committing.wait(120), query.exception()
    stopping = threading.Thread(target=query.stop)
    stopping.start()
    stopping.join(2)
    assert stopping.is_alive(), "it waits for the batch"
    go_on.set()
    stopping.join(120)
    assert (query.isActive, query.exception(), uncaught) == (False, None, [])
    for _ in range(2):
        written = read_committed(options["kafka.bootstrap.servers"], options["topic"])
        assert sorted(int(message.value() or b"") for message in written) == list(range(ROWS))
        stream.trigger(availableNow=True).start().awaitTermination()


JOB = ROOT / "jobs" / "copy_topic.py"
SUBMITTED = {"conf": ["--master", "local[2]", "--conf", "spark.ui.enabled=false"]}
IN_PYTHON = {
    "conf": [],
    "submit": sys.executable,
    "env": {"PYSPARK_SUBMIT_ARGS": "--master local[2] --conf spark.ui.enabled=false pyspark-shell"},
}


@pytest.mark.parametrize(
    ("append_mode", "start", "exit_code"),
    [
        pytest.param("driver", SUBMITTED, 143, id="sink-jvm"),
        pytest.param("auto", IN_PYTHON, -15, id="writer-python", marks=pytest.mark.slow),
    ],
)
def test_a_job_that_gets_sigterm_completes_its_batch_and_leaves_no_transaction_open(
    options, tmp_path, topic, append_mode, start, exit_code
):
    source, log, held = topic("from", partitions=2), tmp_path / "log", tmp_path / "held"
    held.mkdir()
    for partition in (0, 1):
        produce(options["kafka.bootstrap.servers"], source, [b"%d" % n for n in range(ROWS)], partition=partition)
    arguments = ["--bootstrap-servers", options["kafka.bootstrap.servers"], "--from", source, "--to", options["topic"]]
    arguments += ["--transactional-id", options["kafka.transactional.id"], "--append-mode", append_mode]
    arguments += ["--checkpoint", str(tmp_path / "checkpoint")]
    armed = Kill(point="half appended", batch=0).environment(held)
    env = python_environment() | armed | start.get("env", {})

    with Driver(JOB, arguments, **(start | {"env": env}), log=log) as driver:
        driver.wait_until(lambda: reached(held), timeout=120)
        os.kill(driver.pid, signal.SIGTERM)
        driver.wait_until(lambda: "the driver received SIGTERM" in log.read_text(), timeout=30)
        release(held)
        with pytest.raises(ToolFailed, match=f"ended with exit code {exit_code}"):
            driver.wait(timeout=30)

    with Cluster(sink_options(options).client) as cluster:
        facts = describe.transaction(cluster, options["kafka.transactional.id"], now_ms=0)
    assert isinstance(facts, TransactionFacts)
    assert facts.state in ("PrepareCommit", "CompleteCommit")
    written = read_committed(options["kafka.bootstrap.servers"], options["topic"])
    assert sorted(int(message.value() or b"") for message in written) == sorted([*range(ROWS)] * 2)
    assert "py4j." not in log.read_text(), log.read_text()


@pytest.mark.slow
def test_a_driver_that_spark_ends_by_sigterm_aborts_the_batch_of_the_sink(options, tmp_path, topic):
    bootstrap, source, held = options["kafka.bootstrap.servers"], topic("from", partitions=2), tmp_path / "held"
    held.mkdir()
    for partition in (0, 1):
        produce(bootstrap, source, [b"%d" % n for n in range(ROWS)], partition=partition)
    job = ROOT / "tests" / "spark" / "jobs" / "copy_records.py"  # without stop_on_sigterm
    arguments = [bootstrap, source, options["topic"], str(tmp_path / "checkpoint"), "sink", str(2 * ROWS)]
    env = python_environment() | Kill(point="half appended", batch=0).environment(held)

    with Driver(job, arguments, conf=SUBMITTED["conf"], env=env, log=tmp_path / "log") as driver:
        driver.wait_until(lambda: reached(held), timeout=120)
        os.kill(driver.pid, signal.SIGTERM)
        with pytest.raises(ToolFailed, match="ended with exit code 143"):
            driver.wait(timeout=30)

    deadline = time.monotonic() + 30  # much less than transaction.timeout.ms
    with Cluster(sink_options(options).client) as cluster:
        while not _ended(describe.transaction(cluster, f"copy-{options['topic']}", now_ms=0)):
            assert time.monotonic() < deadline
            cluster.sleep(0.1)
    assert not read_committed(bootstrap, options["topic"])


def _ended(facts: TransactionFacts | Unavailable | None) -> bool:
    return isinstance(facts, TransactionFacts) and not facts.is_open
