"""Runs a query's driver, and restarts it whenever it has ended, as a cluster manager would."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from lab.soak import queries
from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.testing.driver import Driver, batch_in_flight, committed_batches, python_environment
from spark_kafka_eos.testing.redone import redone

JOB = Path(queries.__file__)

_SPARK = {
    "spark.ui.enabled": "false",
    "spark.log.level": "WARN",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.minBatchesToRetain": "1000000",  # the check needs every batch's plan
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
}
_MASTER = {
    queries.STATELESS: "local[2]",
    queries.STATEFUL: "local-cluster[2,1,1024]",
    queries.MIRROR: "local[2]",
}
_CAUSE = re.compile(r"spark_kafka_eos\.errors\.(\w+): (.+)|^pyspark\.\S+: (.+)")


@dataclass(slots=True)
class Query:
    """One query and its current driver. `source` and `sink` are the addresses of the clusters that it reads and writes.
    `folder` is for its checkpoints and its drivers' logs, one log per checkpoint. `way`: how it writes.

    Thread-safe for one fault at a time, with `revive` in another thread.
    """

    name: str
    source: str
    sink: str
    folder: Path
    spark_home: Path
    way: queries.Way = queries.Way.OWN
    driver: Callable[..., Driver] = Driver
    started: int = 0
    lost: int = 0  # checkpoints
    ended: list[str] = field(default_factory=list)  # why drivers ended without being killed
    _driver: Driver | None = None
    _logged: int = 0  # the log's size at the start of the current driver
    _stopped: bool = False
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def checkpoints(self) -> list[Path]:
        """The lost ones, which the check needs, and the current one."""
        return [self.folder / f"checkpoint-{self.name}-{number}" for number in range(self.lost + 1)]

    @property
    def checkpoint(self) -> Path:
        return self.checkpoints[-1]

    @property
    def logs(self) -> list[Path]:
        return [self.folder / f"driver-{self.name}-{number}.log" for number in range(self.lost + 1)]

    @property
    def log(self) -> Path:
        return self.logs[-1]

    @property
    def batches(self) -> int:
        """The number of micro-batches that Spark has recorded as done in the current checkpoint."""
        return committed_batches(self.checkpoint)

    @property
    def redone(self) -> int:
        """The number of batches that a driver wrote again, because an attempt was aborted."""
        by_log = [redone(log.read_text(errors="replace").splitlines()) for log in self.logs if log.exists()]
        return sum(map(len, by_log))

    def start(self) -> None:
        """Start a driver, which continues from the checkpoint."""
        environment = python_environment()
        with self._lock:
            self._logged = self.log.stat().st_size if self.log.exists() else 0
            self._driver = self.driver(
                JOB,
                [self.name, self.source, self.sink, str(self.lost), str(self.checkpoint), self.way],
                conf=submit_arguments(self.name, environment["PYTHONPATH"]),
                env=environment | {"SPARK_HOME": str(self.spark_home)},
                log=self.log,
            )
            self.started += 1

    def revive(self) -> str | None:
        """Start another driver if the current one has ended by itself; return why it ended, None if it is alive."""
        with self._lock:
            if self._stopped or self._driver is None or self._driver.running:
                return None
            self._driver.kill()  # its remaining processes
            with self.log.open("rb") as log:
                log.seek(self._logged)
                why = cause(log.read().decode(errors="replace").splitlines())
            self.ended.append(why)
            self.start()
            return why

    @property
    def at_work(self) -> bool:
        """Whether the driver has finished starting."""
        with self._lock:
            return self._current().at_work

    def kill(self, *, lose_checkpoint: bool = False) -> str | None:
        """Kill the driver with all its processes and start a new one, if required with a new checkpoint; return where
        the query was. None if the driver had ended by itself: then `revive` starts a new one.
        """
        with self._lock:
            processes = self._current().kill()
            if not processes:
                return None
            batch = batch_in_flight(self.checkpoint)
            self.lost += lose_checkpoint
            self.start()
        where = "between two batches" if batch is None else f"in batch {batch}"
        return f"{processes} processes, {where}"

    def kill_executor(self) -> str | None:
        """Kill an executor; return where the query was, None if there is no executor because the driver is starting."""
        with self._lock:
            processes = self._current().kill_an_executor()
            batch = batch_in_flight(self.checkpoint)
        where = "between two batches" if batch is None else f"in batch {batch}"
        return f"{processes} processes, {where}" if processes else None

    def pause(self) -> bool:
        """Send SIGSTOP to the driver and all its processes; whether the driver was alive."""
        with self._lock:
            running = self._current().running
            self._current().pause()
            return running

    def resume(self) -> None:
        """Send SIGCONT to the driver and all its processes, paused or not."""
        with self._lock:
            self._current().resume()

    def stop(self) -> None:
        """Kill the driver, and do not restart it."""
        with self._lock:
            self._stopped = True
            if self._driver is not None:
                self._driver.kill()

    @property
    def at_rest(self) -> bool:
        """Whether Spark has recorded all planned batches as done, at least one."""
        return self.batches > 0 and batch_in_flight(self.checkpoint) is None

    def _current(self) -> Driver:
        if self._driver is None:
            raise ToolFailed(f"the {self.name} query was never started")
        return self._driver


def submit_arguments(name: str, python_path: str) -> list[str]:
    """The query's arguments for spark-submit; `python_path` is for executors in separate processes."""
    settings = _SPARK | {"spark.executorEnv.PYTHONPATH": python_path}
    return ["--master", _MASTER[name], *(word for pair in settings.items() for word in ("--conf", "=".join(pair)))]


def cause(lines: Iterable[str]) -> str:
    """Why a driver ended, from its log: the last error of this package, else Spark's last error."""
    ours = spark = ""
    for line in lines:
        if match := _CAUSE.search(line):
            if match[1]:
                ours = f"{match[1]}: {match[2]}"
            else:
                spark = match[3]
    return (ours or spark or "the log does not say why")[:200].strip()
