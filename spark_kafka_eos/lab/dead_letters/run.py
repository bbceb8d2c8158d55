"""Runs the query to the end of its source while drivers and executors are killed, and checks what it wrote."""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from spark_kafka_eos.broker.cluster import Cluster
from spark_kafka_eos.dead_letters.stored import letters, ranges_of
from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.lab.dead_letters import query
from spark_kafka_eos.lab.dead_letters.orders import LARGEST, expected, produce, register
from spark_kafka_eos.lab.redone import redone
from spark_kafka_eos.options import source_options
from spark_kafka_eos.testing.driver import Driver, committed_batches, python_environment, spark_home
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from spark_kafka_eos.testing.registry import RegistryServer
from spark_kafka_eos.verify.findings import Invariant
from spark_kafka_eos.verify.verification import Report, verify

JOB = Path(query.__file__)

_SPARK = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.minBatchesToRetain": "1000000",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
}
_CLUSTER = "local-cluster[2,1,1024]"  # executors, cores per executor, MiB per executor
_TIMEOUT = 300.0  # seconds for a batch, or for a driver to start, on a slow machine
_POLL_SECONDS = 0.05
_BATCHES_PER_LIFE = 3  # that a driver has until it is killed, at least


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """`records` in the source, and `kills` in all: of executors and drivers in turn with `cluster`, else of drivers."""

    records: int
    kills: int
    cluster: bool
    seed: int
    kafka_version: str
    append_mode: str = "auto"
    keep: bool = False

    @property
    def offsets_per_trigger(self) -> int:
        """So few that the source lasts until the last kill."""
        return max(200, self.records // (10 + _BATCHES_PER_LIFE * self.kills))


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What was killed and what was found. `made` and `found` have the numbers of bad records and of dead letters, by
    cause.
    """

    records: int
    killed: Mapping[str, int]
    batches: int
    redone: int
    made: Mapping[str, int]
    found: Mapping[str, int]
    report: Report
    seconds: float

    @property
    def holds(self) -> bool:
        return self.report.holds and self.made == self.found

    def wrong(self, kind: str) -> int:
        """The number of violations of this kind of invariant 1."""
        once = self.report.findings[Invariant.ONCE - 1]
        return sum(violation.count for violation in once.violations if violation.kind == kind)


def prove(settings: Settings, console: Console) -> bool:
    """Run everything on a broker and a registry of its own, and show the outcome; whether all of it holds."""
    folder = Path(tempfile.mkdtemp(prefix="kafka-eos-dead-letters-"))
    with EmbeddedKafka(settings.kafka_version) as kafka, RegistryServer() as registry:
        kafka.create_topic(query.SOURCE, partitions=4)
        kafka.create_topic(query.GOOD, partitions=3, config={"max.message.bytes": LARGEST})
        kafka.create_topic(query.DEAD, partitions=2)
        started = time.monotonic()
        produce(kafka.bootstrap, query.SOURCE, settings.records, register(registry.url))
        console.print(f"{settings.records:,} records sent in {time.monotonic() - started:.0f} s")
        run = Run(settings=settings, bootstrap=kafka.bootstrap, registry=registry.url, folder=folder, say=console.print)
        run.drive()
        proof = run.check()
    console.print(table(proof))
    if settings.keep or not proof.holds:
        console.print(f"Checkpoint and driver's log: {folder}", soft_wrap=True)
    else:
        shutil.rmtree(folder)
    return proof.holds


@dataclass(slots=True, kw_only=True)
class Run:
    """One run of the query on topics that exist. `folder` is for its checkpoint and the drivers' log."""

    settings: Settings
    bootstrap: str
    registry: str
    folder: Path
    say: Callable[[str], object]
    killed: Counter[str] = field(default_factory=Counter)
    _started: float = field(default_factory=time.monotonic)

    @property
    def _checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    @property
    def _log(self) -> Path:
        return self.folder / "driver.log"

    def drive(self) -> None:
        """Run drivers, one after the other, until one reaches the end of the source. Raises ToolFailed if one ends by
        itself, or if the end is reached before the last kill.
        """
        home = spark_home(self.folder / "spark")
        plan = self._plan()
        while True:
            with self._start(home) as driver:
                if self._live(driver, plan):
                    break
        if left := self.settings.kills - self.killed.total():
            raise ToolFailed(f"the source ended {left} kills too early", action="Use more records.")

    def _plan(self) -> Iterator[tuple[str, float]]:
        """What to kill next, and how many seconds after the next commit."""
        chance = random.Random(self.settings.seed)  # noqa: S311 - it chooses times, not keys
        victims = ("executor", "driver") if self.settings.cluster else ("driver",)
        for number in range(self.settings.kills):
            yield victims[number % len(victims)], chance.uniform(0.0, 1.0)

    def _live(self, driver: Driver, plan: Iterator[tuple[str, float]]) -> bool:
        """A driver's life, until it is killed (False) or has reached the end of the source (True)."""
        for victim, seconds in plan:
            if not self._commits(driver):
                return True
            time.sleep(seconds)  # to anywhere in a batch
            batch = committed_batches(self._checkpoint)
            processes = driver.kill() if victim == "driver" else driver.kill_an_executor()
            self.killed[victim] += 1
            number = self.killed.total()
            self.say(f"kill {number} of {self.settings.kills}: {victim}, {processes} processes, after {batch} batches")
            if victim == "driver":
                return False
        driver.wait(meanwhile=lambda: None, timeout=_TIMEOUT + self.settings.records / 1_000)
        return True

    def _commits(self, driver: Driver) -> bool:
        """Wait until the driver has committed a batch; False if it has ended instead, at the end of the source."""
        before, deadline = committed_batches(self._checkpoint), time.monotonic() + _TIMEOUT
        while committed_batches(self._checkpoint) == before:
            if not driver.running or time.monotonic() > deadline:
                driver.wait(meanwhile=lambda: None, timeout=0.1)  # raises, unless it has reached the end
                return False
            time.sleep(_POLL_SECONDS)
        return True

    def _start(self, home: Path) -> Driver:
        environment = python_environment()
        settings = _SPARK | {"spark.executorEnv.PYTHONPATH": environment["PYTHONPATH"]}
        wanted = self.settings
        arguments = [self.bootstrap, self.registry, str(self._checkpoint), str(wanted.offsets_per_trigger)]
        return Driver(
            JOB,
            [*arguments, wanted.append_mode],
            conf=[
                *("--master", _CLUSTER if wanted.cluster else "local[2]"),
                *(word for pair in settings.items() for word in ("--conf", "=".join(pair))),
            ],
            env=environment | {"SPARK_HOME": str(home)},
            log=self._log,
        )

    def check(self) -> Proof:
        """Compare good records and dead letters with the source, and the dead letters' causes with what was made."""
        client = source_options({"kafka.bootstrap.servers": self.bootstrap, "subscribe": query.DEAD}).client
        seconds = time.monotonic() - self._started
        report = verify(client, [query.GOOD, query.DEAD], source=query.SOURCE, transactional_id=query.TRANSACTIONAL_ID)
        with Cluster(client) as cluster:
            found = Counter(each.letter.cause for each in letters(cluster, ranges_of(cluster, query.DEAD)))
        return Proof(
            records=self.settings.records,
            killed=self.killed,
            batches=committed_batches(self._checkpoint),
            redone=len(redone(self._log.read_text(errors="replace").splitlines())),
            made={str(cause): count for cause, count in expected(self.settings.records).items()},
            found=dict(found),
            report=report,
            seconds=seconds,
        )


def table(proof: Proof) -> RenderableType:
    """Bad records and dead letters by cause, and the figures."""
    causes = Table("cause", *(Column(name, justify="right") for name in ("bad records", "dead letters")))
    for cause in sorted(proof.made.keys() | proof.found.keys()):
        made, found = proof.made.get(cause, 0), proof.found.get(cause, 0)
        causes.add_row(cause, f"{made:,}", Text(f"{found:,}", "green" if made == found else "bold red"))
    figures = Table.grid(padding=(0, 2))
    good, dead = (proof.report.topics[topic] for topic in (query.GOOD, query.DEAD))
    for name, value in (
        ("source records", proof.records),
        ("good", good),
        ("dead letters", dead),
        ("missing", proof.wrong("missing")),
        ("more than once", proof.wrong("more than once")),
        ("drivers killed", proof.killed.get("driver", 0)),
        ("executors killed", proof.killed.get("executor", 0)),
        ("batches", proof.batches),
        ("batches written again", proof.redone),
    ):
        figures.add_row(name, Text(f"{value:,}", justify="right"))
    verdict = "holds" if proof.holds else "violated"
    return Group(causes, figures, Text(f"{verdict}, after {proof.seconds:.0f} s\n{proof.report}"))
