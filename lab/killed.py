"""Runs a query to the end of its source, while its drivers and a local cluster's executors are killed."""

from __future__ import annotations

import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.failpoints import POINTS
from spark_kafka_eos.testing.driver import (
    Driver,
    Kill,
    batch_in_flight,
    committed_batches,
    python_environment,
    spark_home,
)

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
BETWEEN, WITHIN = "between batches", "anywhere in a batch"
PLACES = (BETWEEN, WITHIN, *POINTS)
_AT_POINTS = 3  # every third kill, if checkpoints are lost
_FIRST_POINT = POINTS.index("half appended")


@dataclass(slots=True, kw_only=True)
class KilledQuery:
    """A query whose drivers run `job` with `arguments`, among them its `checkpoint`. `folder` is for the drivers' log.

    There are `kills` in all: of executors and drivers in turn with `cluster`, else of drivers. A kill is up to a second
    after a commit, or once there is an executor. One that hits no process is none. The last driver may take `patience`
    seconds more than a batch.

    With `lose_checkpoint`, each killed driver's checkpoint is deleted, and kills are in turn: after a commit; at one of
    the failpoints, each in turn; up to a second after the first batch was planned. `hits` counts the drivers' kills by
    where they hit: `BETWEEN` batches, `WITHIN` one, or at a failpoint.
    """

    job: Path
    arguments: Sequence[str]
    checkpoint: Path
    folder: Path
    kills: int
    cluster: bool = False
    seed: int
    say: Callable[[str], object]
    lose_checkpoint: bool = False
    patience: float = 0.0
    killed: Counter[str] = field(default_factory=Counter)
    hits: Counter[str] = field(default_factory=Counter)
    _batches_lost: int = 0  # that were recorded in deleted checkpoints

    @property
    def log(self) -> Path:
        return self.folder / "driver.log"

    @property
    def batches(self) -> int:
        """The number of micro-batches that Spark has recorded as done, also in checkpoints that were deleted."""
        return self._batches_lost + committed_batches(self.checkpoint)

    def drive(self) -> None:
        """Run drivers, one after the other, until one reaches the end of the source. Raises ToolFailed if one ends by
        itself, or if the end is reached before the last kill.
        """
        home = spark_home(self.folder / "spark")
        plan = self._plan()
        while True:
            point = self._point()
            with self._start(home, point) as driver:
                if self._live(driver, plan, point):
                    break
            if self.lose_checkpoint:
                self._batches_lost = self.batches
                shutil.rmtree(self.checkpoint)
        if missing := self.kills - self.killed.total():
            raise ToolFailed(f"the source ended {missing} kills too early", action="Use more records.")

    def _plan(self) -> Iterator[tuple[str, float]]:
        """What to kill next, and how many seconds after the next commit."""
        chance = random.Random(self.seed)  # noqa: S311 - it chooses times, not keys
        victims = ("executor", "driver") if self.cluster else ("driver",)
        for number in range(self.kills):
            yield victims[number % len(victims)], chance.uniform(0.0, 1.0)

    def _point(self) -> Kill | None:
        """Where the next driver is to be held and killed, in its first or second batch; None: by time."""
        number = self.killed.total()
        if not self.lose_checkpoint or number >= self.kills or number % _AT_POINTS != 1:
            return None
        turn = number // _AT_POINTS
        return Kill(point=POINTS[(_FIRST_POINT + turn) % len(POINTS)], batch=turn % 2)

    def _live(self, driver: Driver, plan: Iterator[tuple[str, float]], point: Kill | None) -> bool:
        """A driver's life, until it is killed (False) or has reached the end of the source (True)."""
        for victim, seconds in plan:
            if not self._advances(driver, point):
                return True
            if point is None:
                time.sleep(seconds)  # to anywhere in a batch
            processes = self._kill(driver, victim)
            if not processes:
                driver.wait(timeout=0.1)  # it has ended by itself: raises, unless it has reached the end
                return True
            self.killed[victim] += 1
            number, where = self.killed.total(), ""
            if victim == "driver":
                where = point.point if point else WITHIN if batch_in_flight(self.checkpoint) is not None else BETWEEN
                self.hits[where] += 1
            kill = f"{victim}, {processes} processes, after {self.batches} batches"
            self.say(f"kill {number} of {self.kills}: {kill}{where and f', {where}'}")
            if victim == "driver":
                return False
        driver.wait(timeout=_TIMEOUT + self.patience)
        return True

    def _kill(self, driver: Driver, victim: str) -> int:
        """Kill the driver, or an executor once there is one, because the last one has just been killed; the number of
        processes that were alive, 0 if the driver has ended. Raises ToolFailed if no executor comes.
        """
        if victim == "driver":
            return driver.kill()
        deadline = time.monotonic() + _TIMEOUT
        while not (processes := driver.kill_an_executor()) and driver.running:
            if time.monotonic() > deadline:
                raise ToolFailed(f"there was no executor to kill within {_TIMEOUT:g} s")
            time.sleep(_POLL_SECONDS)  # there is no event for an executor that starts
        return processes

    def _advances(self, driver: Driver, point: Kill | None) -> bool:
        """Wait until the driver has committed a batch, planned its first one, or reached `point`; False if it has ended
        instead, at the end of the source.
        """
        before, deadline = self._standing(point), time.monotonic() + _TIMEOUT
        while self._standing(point) == before:
            if not driver.running or time.monotonic() > deadline:
                driver.wait(timeout=0.1)  # raises, unless it has reached the end
                return False
            time.sleep(_POLL_SECONDS)
        return True

    def _standing(self, point: Kill | None) -> object:
        if point is not None:
            return (self._held / "reached").exists()
        early = self.lose_checkpoint and self.killed.total() % _AT_POINTS == 2
        return early and batch_in_flight(self.checkpoint) is not None, committed_batches(self.checkpoint)

    @property
    def _held(self) -> Path:
        """The folder of the present driver's failpoint."""
        return self.folder / f"held-{self.killed.total()}"

    def _start(self, home: Path, point: Kill | None) -> Driver:
        environment = python_environment()
        if point is not None:
            self._held.mkdir()
            environment |= point.environment(self._held)
        settings = _SPARK | {"spark.executorEnv.PYTHONPATH": environment["PYTHONPATH"]}
        return Driver(
            self.job,
            self.arguments,
            conf=[
                *("--master", _CLUSTER if self.cluster else "local[2]"),
                *(word for pair in settings.items() for word in ("--conf", "=".join(pair))),
            ],
            env=environment | {"SPARK_HOME": str(home)},
            log=self.log,
        )
