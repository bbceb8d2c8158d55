"""Append tasks that run again, on real executors: each makes the whole batch be written again under a new epoch, and
none is seen.

One query feeds all scenarios of a setting; each gives it one batch, whose append tasks are held at a failpoint until
the scenario has done its harm.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer, TopicPartition

from spark_kafka_eos.testing.driver import Driver, python_environment, spark_submit
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from spark_kafka_eos.testing.ports import free_ports, is_free
from spark_kafka_eos.testing.supervised import SupervisedProcesses
from spark_kafka_eos.testing.topic_reader import read_topic
from tests.matrix import Cell
from tests.producing import transact
from tests.reading import await_stable
from tests.spark.test_local_cluster import identities_of

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.timeout(600)]

JOB = Path(__file__).parent / "jobs" / "redo_batches.py"
RECORDS, PARTITIONS = 200, 4  # of a batch; of the target topic: two to each of the two append tasks
SECONDS = 240


@dataclass(kw_only=True)
class Query:
    """A running query of the job, whose append tasks are held."""

    driver: Driver
    bootstrap: str
    source: str
    target: str
    folder: Path
    numbers: Iterator[int] = field(default_factory=count)
    batch: int = -1
    fed: list[int] = field(default_factory=list)

    def feed(self) -> None:
        """One more micro-batch: the records become visible together."""
        for reached in self.folder.glob("reached*"):
            reached.unlink()
        self.batch += 1
        self.fed = [next(self.numbers) for _ in range(RECORDS)]
        transact(self.bootstrap, self.source, [b"%d" % number for number in self.fed], "commit")

    def held(self, name: str = "reached") -> psutil.Process:
        """The Python worker that is held at the failpoint."""
        self._wait(self.folder / name)
        return psutil.Process(int((self.folder / name).read_text()))

    def release(self, worker: psutil.Process) -> None:
        (self.folder / f"release-{worker.pid}").write_text("go on")

    def outcome(self) -> dict[str, Any]:
        """The batch's CommitReport."""
        return self._read(f"{self.batch}.json")

    def failure(self) -> dict[str, Any]:
        """The error that the batch ended with."""
        return self._read(f"{self.batch}.failed")

    def wait_until_logged(self, log: Path, words: str) -> str:
        """The line of an executor's log that has these words, as soon as it is there."""
        self.driver.wait_until(lambda: words in log.read_text(), timeout=SECONDS)
        return next(line for line in log.read_text().splitlines() if words in line)

    def records(self, isolation_level: Any) -> Counter[int]:
        """The numbers in the output; whenever it is asked for, no transaction that has records is open."""
        await_stable(self.bootstrap, self.target)
        return Counter(int(m.value() or b"") for m in read_topic(self.bootstrap, self.target, isolation_level))

    def committed_offset(self) -> int:
        """Where the next batch starts, as the consumer group has it; 0 before the first."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": f"redo-{self.target}"})
        (at,) = consumer.committed([TopicPartition(self.source, 0)], timeout=30)
        consumer.close()
        return max(0, int(at.offset))

    def _wait(self, path: Path) -> None:
        self.driver.wait_until(path.exists, timeout=SECONDS)

    def _read(self, name: str) -> dict[str, Any]:
        self._wait(self.folder / name)
        found: dict[str, Any] = json.loads((self.folder / name).read_text())
        return found


@contextmanager
def running(
    kafka: EmbeddedKafka, folder: Path, point: str, holds: int, master: str, settings: dict[str, str]
) -> Iterator[Query]:
    name = folder.name
    source, target = kafka.create_topic(f"{name}-in", 1), kafka.create_topic(f"{name}-out", PARTITIONS)
    environment = python_environment()
    executor = {
        "PYTHONPATH": environment["PYTHONPATH"],
        "KAFKA_EOS_FAILPOINT": point,
        "KAFKA_EOS_FAILPOINT_DIR": str(folder),
        "KAFKA_EOS_FAILPOINT_HOLDS": str(holds),
    }
    settings = {
        "spark.ui.enabled": "false",
        "spark.local.dir": str(folder / "local"),
        "spark.python.task.killTimeout": "1h",  # what Spark gives up lives on: a straggler
        "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "1s",  # for the job's await_executors
        **settings,
        **{f"spark.executorEnv.{key}": value for key, value in executor.items()},
    }
    with Driver(
        JOB,
        [kafka.bootstrap, source, target, str(folder / "checkpoint"), str(folder)],
        conf=[
            *("--master", master),
            *(word for pair in settings.items() for word in ("--conf", "=".join(pair))),
        ],
        env=environment | {"SPARK_HOME": str(spark_submit().parent.parent)},
        log=folder / "driver.log",
    ) as driver:
        yield Query(driver=driver, bootstrap=kafka.bootstrap, source=source, target=target, folder=folder)


@pytest.fixture
def protocol(kafka: EmbeddedKafka) -> str:
    """Which of the two transaction protocols the broker speaks."""
    return "TV1" if kafka.version.startswith("3") else "TV2"


@pytest.fixture(scope="module")
def query(kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Query]:
    """Both append tasks of a batch's first attempt, one on each executor, are held before they append."""
    folder = tmp_path_factory.mktemp("barrier")
    with running(kafka, folder, "before append", 2, "local-cluster[2,1,1024]", {}) as query:
        yield query


@pytest.fixture(scope="module")
def speculating(kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Query]:
    """One append task of a batch's first attempt is held with one record batch appended; Spark starts a copy of it."""
    folder = tmp_path_factory.mktemp("speculation")
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "1024m",
        "spark.speculation": "true",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.minTaskRuntime": "4s",  # so that the second attempt is left alone
    }
    with two_hosts(folder) as master, running(kafka, folder, "half appended", 1, master, settings) as query:
        yield query


@contextmanager
def two_hosts(folder: Path) -> Iterator[str]:
    """A cluster with a worker on each of two addresses: no speculative copy runs on the host of its original."""
    (port,) = free_ports(1)
    spark_class = spark_submit().with_name("spark-class")
    supervised, started = SupervisedProcesses(), list[subprocess.Popen[bytes]]()

    def start(kind: str, host: str, *arguments: str) -> None:
        name = f"org.apache.spark.deploy.{kind.lower()}.{kind}"
        command: list[str | Path] = [spark_class, name, "--host", host, "--webui-port", "0", *arguments]
        started.append(supervised.spawn(command, log=folder / f"{kind}-{host}.log"))

    try:
        start("Master", "127.0.0.1", "--port", str(port))
        while is_free(port):
            time.sleep(0.05)
        for host in ("127.0.0.1", "127.0.0.2"):
            work = ("--cores", "1", "--memory", "1024m", "--work-dir", str(folder / host))
            start("Worker", host, *work, f"spark://127.0.0.1:{port}")
        yield f"spark://127.0.0.1:{port}"
    finally:
        supervised.close()
        for process in started:
            process.wait()


@pytest.mark.slow
def test_a_task_that_failed_and_ran_again_makes_the_batch_be_written_again(
    query: Query, cell: Cell, protocol: str
) -> None:
    cell(f"Fault matrix, {protocol}", "4 half appended", "task retry", "redone")
    with batch_written_twice(query, because="1 tasks of append stage") as seen:
        first, second = query.held(), query.held("reached-2")
        first.kill()
        query.release(second)
    assert 0 < seen["aborted"] < RECORDS, "the other task's records only"


def test_an_executor_killed_between_encoding_and_appending_makes_the_batch_be_written_again(
    query: Query, cell: Cell, protocol: str
) -> None:
    cell(f"Fault matrix, {protocol}", "4 half appended", "executor SIGKILL", "redone")
    with batch_written_twice(query, because="lost encoded blocks after an append task had finished") as seen:
        first, second = query.held(), query.held("reached-2")
        query.release(second)
        kill_executor_of(first)
    assert 0 < seen["aborted"] < RECORDS, "the other task's records only"


@pytest.mark.slow
def test_a_fetch_failure_that_runs_the_append_stage_again_leaves_a_straggler_that_is_refused(
    query: Query, cell: Cell, protocol: str
) -> None:
    cell(f"Fault matrix, {protocol}", "5 all appended", "stage re-attempt", "redone")
    with batch_written_twice(query, because="was attempted 2 times") as seen:
        straggler, other = query.held(), query.held("reached-2")
        kill_executor_of(other)  # and with it the blocks that its next attempt must fetch
    assert seen["aborted"] == RECORDS, "the stage's second attempt appended everything"
    # TV1 adds the partitions first, which the coordinator refuses; in TV2 the append itself is refused.
    refused = {"TV1": "PRODUCER_FENCED", "TV2": "INVALID_PRODUCER_EPOCH"}[protocol]
    assert_late_append_is_refused(query, straggler, seen["epoch"], refused)


@pytest.mark.slow
def test_a_speculative_copy_makes_the_batch_be_written_again_and_the_slow_original_is_refused(
    speculating: Query, cell: Cell, protocol: str
) -> None:
    cell(f"Fault matrix, {protocol}", "4 half appended", "speculative copy", "redone")
    with batch_written_twice(speculating, because="ran again (attempt 1)") as seen:
        straggler = speculating.held()
    assert 0 < seen["aborted"] < RECORDS, "the fast task's records, and one record batch of the slow one"
    assert_late_append_is_refused(speculating, straggler, seen["epoch"], "INVALID_PRODUCER_EPOCH")  # after registration


@pytest.mark.slow
def test_a_batch_aborted_max_attempts_times_fails_with_nothing_committed_and_is_written_by_the_next_run(
    query: Query,
) -> None:
    committed, offset = query.records("read_committed"), query.committed_offset()
    query.feed()
    for _ in range(3):
        first, second = query.held(), query.held("reached-2")
        for reached in query.folder.glob("reached*"):
            reached.unlink()  # the next attempt's tasks are held too
        first.kill()
        query.release(second)
    failure = query.failure()
    assert failure["error"] == "AttemptsExhausted"
    assert f"batch {query.batch} was aborted 3 times" in failure["text"]
    assert "tasks of append stage" in failure["text"]
    assert "Nothing was committed." in failure["text"]
    assert "maxAttempts" in failure["text"]
    # The query was started again, and its first attempt is held: what is committed is what was before.
    first, second = query.held(), query.held("reached-2")
    assert query.records("read_committed") == committed
    assert query.committed_offset() == offset
    query.release(first)
    query.release(second)
    assert query.outcome()["redone"] == []
    assert query.records("read_committed") == committed + Counter(query.fed)
    assert query.committed_offset() == offset + RECORDS + 1, "the transaction's marker in the source counts too"


@contextmanager
def batch_written_twice(query: Query, *, because: str) -> Iterator[dict[str, int]]:
    """Feed a batch; when the block has provoked the harm, the batch must be committed by its second attempt."""
    before, owners = query.records("read_uncommitted"), set(identities_of(query.bootstrap, query.target))
    committed = query.records("read_committed")
    query.feed()
    seen: dict[str, int] = {}
    yield seen
    report = query.outcome()
    assert (report["outcome"], report["records"], report["append_mode"]) == ("committed", RECORDS, "executors")
    (reason,) = report["redone"]
    assert because in reason
    assert query.records("read_committed") == committed + Counter(query.fed), "each record once"
    aborted = query.records("read_uncommitted") - before - Counter(query.fed)
    assert set(aborted) <= set(query.fed)
    new = identities_of(query.bootstrap, query.target).keys() - owners
    (old,) = new - {(report["producer_id"], report["epoch"])}
    assert len(new) == 2, "a new epoch for the second attempt"
    seen["aborted"], seen["epoch"] = aborted.total(), old[1]


def assert_late_append_is_refused(query: Query, straggler: psutil.Process, epoch: int, error: str) -> None:
    log = Path(straggler.cwd()) / "stderr"
    before = {
        isolation_level: query.records(isolation_level) for isolation_level in ("read_committed", "read_uncommitted")
    }
    query.release(straggler)
    line = query.wait_until_logged(log, f"batch {query.batch}, epoch {epoch}: ")
    assert error in line
    assert {isolation_level: query.records(isolation_level) for isolation_level in before} == before


def kill_executor_of(worker: psutil.Process) -> None:
    """SIGKILL to the executor's JVM and all its Python workers."""
    jvm = next(parent for parent in worker.parents() if parent.name() == "java")
    for process in [jvm, *jvm.children(recursive=True)]:
        process.kill()
