"""`kafka-eos demo`: computes late departures from New York exactly-once, while the driver is killed during batches.

It starts an embedded broker, sends input with aborted transactions, and runs a streaming job (`flight_delays.py`),
which it kills with SIGKILL at chosen points and restarts. Then it compares the output with the data set. On a cluster,
it also kills executors, and the job continues without a restart.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Message
from rich.console import Console

from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.describe import settled, transaction
from spark_kafka_eos.ledger.progress import last_entry
from spark_kafka_eos.options import sink_options
from spark_kafka_eos.testing.demo.check import (
    ConsumedCounts,
    Crashes,
    Figure,
    TableComparison,
    compare,
    compare_table,
    figures,
)
from spark_kafka_eos.testing.demo.flights import late_flights, read_airlines, read_flights
from spark_kafka_eos.testing.demo.flights_producer import produce
from spark_kafka_eos.testing.demo.plan import DemoPlan, Life, plan
from spark_kafka_eos.testing.demo.screen import Screen, table
from spark_kafka_eos.testing.driver import (
    Driver,
    Kill,
    batch_in_flight,
    committed_batches,
    python_environment,
    spark_home,
)
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from spark_kafka_eos.testing.read_offsets import ends, group_offsets
from spark_kafka_eos.testing.redone import redone
from spark_kafka_eos.testing.topic_reader import read_topic

INPUT, OUTPUT = "flights", "flights-delayed"
TRANSACTIONAL_ID = "flight-delays"
JOB = Path(__file__).with_name("flight_delays.py")

_SPARK = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",  # saves a third of the CPU if a driver runs a minute
}
_CLUSTER = "local-cluster[2,1,1024]"  # executors, cores per executor, MiB per executor
_PATIENCE = 300.0  # seconds without any progress, however slow the machine is


def run(
    *,
    fast: bool,
    cluster: bool,
    kafka_version: str,
    append_mode: str,
    keep: bool,
    console: Console,
    with_table: bool = False,
) -> bool:
    """Run the demo; return whether every figure holds. If not, or with `keep`, checkpoint and driver's log are kept.
    `with_table`: the job also writes to a table in SQLite, in the same batches.
    """
    folder = Path(tempfile.mkdtemp(prefix="kafka-eos-demo-"))
    with Screen(console) as screen, _broker(kafka_version, screen) as kafka:
        screen.say(f"Apache Kafka {kafka_version} runs at {kafka.bootstrap}")
        kafka.create_topic(INPUT, partitions=4)
        kafka.create_topic(OUTPUT, partitions=3)
        demo = Demo(
            plan=plan(fast=fast, cluster=cluster),
            bootstrap=kafka.bootstrap,
            cluster=cluster,
            append_mode=append_mode,
            with_table=with_table,
            folder=folder,
            spark_home=spark_home(folder / "spark"),
            screen=screen,
        )
        results = demo.play()
    console.print(table(results))
    holds = all(figure.holds for figure in results)
    if keep or not holds:
        console.print(f"Checkpoint and driver's log: {folder}", soft_wrap=True)
    else:
        shutil.rmtree(folder)
    return holds


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo:
    """One run on a broker with empty topics. `folder` is for the checkpoint and the driver's log, `spark_home` for the
    executors' logs (in `work`).
    """

    plan: DemoPlan
    bootstrap: str
    cluster: bool
    append_mode: str
    with_table: bool
    folder: Path
    spark_home: Path
    screen: Screen

    def play(self) -> list[Figure]:
        """Send the input, run the job and kill it as planned, and compare the output with the data set."""
        self.screen.doing("reading the data set and sending it to Kafka")
        flights = read_flights(self.plan.month)
        expected = late_flights(flights, read_airlines())
        self.screen.expect_flights(len(flights))
        sent = produce(
            self.bootstrap,
            INPUT,
            flights,
            size=self.plan.flights_per_transaction,
            progress=lambda sent: self.screen.sent(sent.committed),
        )
        self.screen.say(f"{sent.committed:,} departures sent, and {sent.aborted:,} copies in aborted transactions")
        self._drive()
        self.screen.say("reading the output with librdkafka's consumer")
        self.screen.doing("comparing the output with the data set")
        return figures(
            flights=len(flights),
            late=len(expected),
            aborted_sent=sent.aborted,
            crashes=self._crashes(),
            survey=self._survey(expected),
            table=self._compare_table() if self.with_table else None,
        )

    @property
    def _database(self) -> Path:
        return self.folder / "flights.db"

    @property
    def _checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    @property
    def _log(self) -> Path:
        return self.folder / "driver.log"

    def _drive(self) -> None:
        """Run the job to the end of the input, one driver after another, and kill processes as planned."""
        offsets = sum(ends(self.bootstrap, INPUT, "read_committed").values())
        self.screen.expect_batches(-(-offsets // self.plan.offsets_per_trigger))
        self.screen.expect_kills(len(self.plan.driver_kills) + len(self.plan.executor_kills))
        for number, life in enumerate(self.plan.lives, start=1):
            dying, losing = self.folder / f"driver-{number}", self.folder / f"executor-of-{number}"
            with self._start(
                life.driver.environment(_made(dying)) if life.driver else {},
                life.executor.environment(_made(losing)) if life.executor else {},
            ) as driver:
                self.screen.say(f"driver {number} (pid {driver.pid}) will {_fate(life)}")
                if life.executor is not None:
                    self._kill_executor(driver, life.executor, losing / "reached")
                if life.driver is not None:
                    self._kill_driver(driver, life.driver, dying / "reached")
                else:
                    driver.wait(meanwhile=self._look, timeout=_PATIENCE, progress=lambda: self._doing(driver))

    def _await(self, driver: Driver, reached: Path) -> None:
        """Return when a process of the driver is where it is to be killed."""
        driver.wait_until(reached.exists, meanwhile=self._look, timeout=_PATIENCE, progress=lambda: self._doing(driver))

    def _kill_executor(self, driver: Driver, kill: Kill, reached: Path) -> None:
        self._await(driver, reached)
        evidence = self._evidence(kill)  # before the kill: the driver aborts soon after
        processes = driver.kill_executor(int(reached.read_text()))
        self.screen.killed(f"SIGKILL to the {processes} processes of an executor {evidence}")

    def _kill_driver(self, driver: Driver, kill: Kill, reached: Path) -> None:
        self._await(driver, reached)
        processes = driver.kill()
        self.screen.killed(f"SIGKILL to {processes} processes {self._evidence(kill)}")

    def _start(self, driver: Mapping[str, str], executors: Mapping[str, str]) -> Driver:
        """Start the job; the two mappings are added to the environment of the driver and of a cluster's executors."""
        arguments = ["--bootstrap-servers", self.bootstrap, "--checkpoint", str(self._checkpoint), "--available-now"]
        arguments += ["--from", INPUT, "--to", OUTPUT, "--transactional-id", TRANSACTIONAL_ID]
        arguments += ["--append-mode", self.append_mode]
        arguments += ["--table", str(self._database)] if self.with_table else []
        arguments += ["--max-offsets-per-trigger", str(self.plan.offsets_per_trigger)]
        environment = python_environment()
        executors = {"PYTHONPATH": environment["PYTHONPATH"], **executors}
        settings = _SPARK | {f"spark.executorEnv.{name}": value for name, value in executors.items()}
        return Driver(
            JOB,
            arguments,
            conf=[
                *("--master", _CLUSTER if self.cluster else "local[2]"),
                *(word for pair in settings.items() for word in ("--conf", "=".join(pair))),
            ],
            env=environment | {"SPARK_HOME": str(self.spark_home)} | dict(driver),
            log=self._log,
        )

    def _look(self) -> None:
        self.screen.committed(committed_batches(self._checkpoint))

    def _doing(self, driver: Driver) -> str:
        """Show what the driver does now, and return it."""
        batch = batch_in_flight(self._checkpoint)
        if not driver.at_work:
            doing = "Spark starts its JVM and its first Python process"
        elif batch is None:
            doing = f"Spark plans batch {committed_batches(self._checkpoint)}"
        else:
            doing = f"the job computes and writes batch {batch}"
        self.screen.doing(doing)
        return doing

    def _evidence(self, kill: Kill) -> str:
        """What shows that the process was killed during the batch: checkpoint, ledger and Kafka's log."""
        batch = batch_in_flight(self._checkpoint)
        if batch != kill.batch:
            raise ToolFailed(f"the kill was planned for batch {kill.batch}, but the checkpoint is at batch {batch}")
        if self._is_committed(batch):
            return f"in batch {batch}: committed in Kafka, but not yet recorded by Spark"
        written, visible = (
            sum(ends(self.bootstrap, OUTPUT, level).values()) for level in ("read_uncommitted", "read_committed")
        )
        return f"in batch {batch}: {written - visible:,} offsets of {OUTPUT} belong to its open transaction"

    def _is_committed(self, batch: int) -> bool:
        """Whether the ledger's last entry is this batch's. Waits for an end that is decided, and not for that of an
        open transaction, which nobody ends.
        """
        sink = {"kafka.bootstrap.servers": self.bootstrap, "kafka.transactional.id": TRANSACTIONAL_ID, "topic": OUTPUT}
        options = sink_options(sink)
        with Cluster(options.client) as cluster:
            settled(cluster, lambda: transaction(cluster, TRANSACTIONAL_ID, now_ms=0))
            entry = last_entry(cluster, options.ledger_topic, TRANSACTIONAL_ID, ignore_open=True)
        return entry is not None and entry.batch_id == batch

    def _crashes(self) -> Crashes:
        aborted = redone(self._log.read_text(errors="replace").splitlines())
        for batch, reasons in aborted.items():
            self.screen.say(f"batch {batch} was written again: {'; '.join(reasons)}")
        return Crashes(
            drivers=tuple(kill.batch for kill in self.plan.driver_kills),
            executors=tuple(kill.batch for kill in self.plan.executor_kills),
            committed=committed_batches(self._checkpoint),
            redone=frozenset(aborted),
        )

    def _survey(self, expected: Mapping[int, Mapping[str, object]]) -> ConsumedCounts:
        """Read input and output to their ends, with a read_committed and with a read_uncommitted consumer."""
        done = group_offsets(self.bootstrap, TRANSACTIONAL_ID, INPUT)
        read = visible = 0
        for message in read_topic(self.bootstrap, INPUT, "read_committed"):
            visible += bool(_value(message)["aborted"])
            read += (message.offset() or 0) < done.get(message.partition() or 0, 0)
        return ConsumedCounts(
            flights_read=read,
            input_aborted_visible=visible,
            input_aborted_uncommitted=sum(
                bool(_value(message)["aborted"]) for message in read_topic(self.bootstrap, INPUT, "read_uncommitted")
            ),
            output=compare(expected, _records(read_topic(self.bootstrap, OUTPUT, "read_committed"))),
            output_uncommitted=sum(1 for _ in read_topic(self.bootstrap, OUTPUT, "read_uncommitted")),
        )

    def _compare_table(self) -> TableComparison:
        self.screen.say("comparing the table with the topic, row by row")
        topic = read_topic(self.bootstrap, OUTPUT, "read_committed")
        with closing(sqlite3.connect(self._database)) as database:
            rows = [row for (row,) in database.execute("SELECT value FROM late_flights")]
        return compare_table(rows, (bytes(message.value() or b"").decode() for message in topic))


@contextmanager
def _broker(version: str, screen: Screen) -> Iterator[EmbeddedKafka]:
    screen.doing(f"Apache Kafka {version} starts; the first time it is downloaded before")
    with EmbeddedKafka(version, start_timeout=_PATIENCE) as kafka:
        yield kafka


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _fate(life: Life) -> str:
    executor, driver = life.executor, life.driver
    loses = f"lose an executor in batch {executor.batch} at {executor.point!r}, and " if executor else ""
    return loses + (f"be killed in batch {driver.batch} at {driver.point!r}" if driver else "run to the end")


def _records(messages: Iterator[Message]) -> Iterator[tuple[str, dict[str, object]]]:
    for message in messages:
        yield bytes(message.key() or b"").decode(), _value(message)


def _value(message: Message) -> dict[str, object]:
    value: dict[str, object] = json.loads(message.value() or b"{}")
    return value
