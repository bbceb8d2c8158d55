"""A query whose driver is started again whenever it is gone, killed or by itself, as a cluster manager would do it."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.lab.redone import redone
from spark_kafka_eos.lab.soak import queries
from spark_kafka_eos.testing.driver import Driver, batch_in_flight, committed_batches, python_environment

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
    """One query and its present driver. `source` and `sink`: addresses of the clusters that it reads and writes.
    `folder` takes its checkpoints, and its drivers' logs, one for each checkpoint.

    Threads may call: one fault at a time for each query, and `revive` from another thread.
    """

    name: str
    source: str
    sink: str
    folder: Path
    spark_home: Path
    started: int = 0
    lost: int = 0  # checkpoints
    ended: list[str] = field(default_factory=list)  # why drivers ended that nobody killed
    _driver: Driver | None = None
    _logged: int = 0  # the log's size when the present driver was started
    _stopped: bool = False
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def checkpoints(self) -> list[Path]:
        """The lost ones, which the check needs, and the present one."""
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
        """Micro-batches that Spark has noted as done in the present checkpoint."""
        return committed_batches(self.checkpoint)

    @property
    def redone(self) -> int:
        """Batches that were written again within a driver's life, because a try was aborted."""
        found = [redone(log.read_text(errors="replace").splitlines()) for log in self.logs if log.exists()]
        return sum(map(len, found))

    def start(self) -> None:
        """Start a driver, which goes on where the checkpoint stands."""
        environment = python_environment()
        with self._lock:
            self._logged = self.log.stat().st_size if self.log.exists() else 0
            self._driver = Driver(
                JOB,
                [self.name, self.source, self.sink, str(self.lost), str(self.checkpoint)],
                conf=submit_arguments(self.name, environment["PYTHONPATH"]),
                env=environment | {"SPARK_HOME": str(self.spark_home)},
                log=self.log,
            )
            self.started += 1

    def revive(self) -> str | None:
        """Start another driver if the present one has ended by itself: why it did, None if it lives."""
        with self._lock:
            if self._stopped or self._driver is None or self._driver.running:
                return None
            self._driver.kill()  # what is left of its processes
            with self.log.open("rb") as log:
                log.seek(self._logged)
                why = cause(log.read().decode(errors="replace").splitlines())
            self.ended.append(why)
            self.start()
            return why

    @property
    def at_work(self) -> bool:
        """Whether the driver has got over its start."""
        with self._lock:
            return self._present().at_work

    def kill(self, *, lose_checkpoint: bool = False) -> str:
        """SIGKILL to the driver and all its processes, and a new driver, perhaps with a new checkpoint; where it was
        when it died."""
        with self._lock:
            processes = self._present().kill()
            batch = batch_in_flight(self.checkpoint)
            self.lost += lose_checkpoint
            self.start()
        where = "between two batches" if batch is None else f"in batch {batch}"
        return f"{processes} processes, {where}"

    def kill_executor(self) -> str | None:
        """SIGKILL to an executor; where the query was. None if there is none: the driver is just starting."""
        with self._lock:
            processes = self._present().kill_an_executor()
            batch = batch_in_flight(self.checkpoint)
        where = "between two batches" if batch is None else f"in batch {batch}"
        return f"{processes} processes, {where}" if processes else None

    def pause(self) -> None:
        """SIGSTOP to the driver and all its processes."""
        with self._lock:
            self._present().pause()

    def resume(self) -> None:
        """SIGCONT to the same. Harmless when there was no pause."""
        with self._lock:
            self._present().resume()

    def stop(self) -> None:
        """Kill the driver for good."""
        with self._lock:
            self._stopped = True
            if self._driver is not None:
                self._driver.kill()

    @property
    def at_rest(self) -> bool:
        """Whether Spark has noted all batches as done that it has planned, one at least."""
        return self.batches > 0 and batch_in_flight(self.checkpoint) is None

    def _present(self) -> Driver:
        if self._driver is None:
            raise ToolFailed(f"the {self.name} query was never started")
        return self._driver


def submit_arguments(name: str, python_path: str) -> list[str]:
    """What spark-submit is told of the query's Spark; `python_path` is for executors in processes of their own."""
    settings = _SPARK | {"spark.executorEnv.PYTHONPATH": python_path}
    return ["--master", _MASTER[name], *(word for pair in settings.items() for word in ("--conf", "=".join(pair)))]


def cause(lines: Iterable[str]) -> str:
    """Why a driver ended, from its log: the last error of this package, or else Spark's last word."""
    ours = spark = ""
    for line in lines:
        if match := _CAUSE.search(line):
            if match[1]:
                ours = f"{match[1]}: {match[2]}"
            else:
                spark = match[3]
    return (ours or spark or "it does not say why")[:200].strip()
