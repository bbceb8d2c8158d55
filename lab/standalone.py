"""A standalone Spark cluster: a master and workers as processes on the loopback interface, from the installed PySpark.

The workers have an environment of their own, and no more of Python in it than what a session puts there: no PYTHONPATH,
and the system's `python3`.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.testing.driver import spark_submit
from spark_kafka_eos.testing.supervised import SupervisedProcesses

_SPARK = spark_submit().parent.parent
_START_S = 120


class StandaloneCluster:
    """A master and `workers` workers with one core each, as a context manager. `url` is the master's."""

    def __init__(self, folder: Path, *, workers: int = 2) -> None:
        self.folder, self._started = folder, 0
        self._processes: list[subprocess.Popen[bytes]] = []
        self._workers: dict[int, psutil.Process] = {}
        self._supervised = SupervisedProcesses()
        folder.mkdir()
        self._master_log = folder / "master.log"
        self._start("master.Master", [], self._master_log)
        self.url = self._await(self._master_log, r"Starting Spark master at (spark://\S+)", 1)[0]
        for _ in range(workers):
            self.start_worker()

    def start_worker(self) -> None:
        """Start one more worker; returns once the master knows it."""
        self._started += 1
        number = self._started
        work = self.folder / f"worker-{number}"
        arguments = ["--cores", "1", "--memory", "1g", "--work-dir", str(work), self.url]
        pid = self._start("worker.Worker", arguments, self.folder / f"worker-{number}.log")
        self._workers[pid] = psutil.Process(pid)
        self._await(self._master_log, r"Registering worker", number)

    def kill_worker_of(self, pid: int) -> int:
        """Send SIGKILL to the worker that runs this process, and to everything that it started, as if its machine had
        failed. Returns the number of killed processes.
        """
        [worker] = [found for found in psutil.Process(pid).parents() if found.pid in self._workers]
        del self._workers[worker.pid]
        killed = [worker, *worker.children(recursive=True)]
        for process in killed:
            process.kill()
        return len(killed)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._workers.values():  # before the group: PySpark's daemon leads one of its own
            for process in [worker, *worker.children(recursive=True)]:
                process.kill()
        self._supervised.close()
        for process in self._processes:
            process.wait(30)

    def _start(self, main: str, arguments: Sequence[str], log: Path) -> int:
        environment = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(self.folder),
            "JAVA_HOME": os.environ.get("JAVA_HOME", ""),
            "SPARK_HOME": str(_SPARK),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(self.folder / "scratch"),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",  # its port is a fixed one
        }
        where = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        command = ["env", "-i", *(f"{name}={value}" for name, value in environment.items() if value)]
        command += [str(_SPARK / "bin" / "spark-class"), f"org.apache.spark.deploy.{main}", *where, *arguments]
        process = self._supervised.spawn(command, log=log)
        self._processes.append(process)
        return process.pid

    def _await(self, log: Path, pattern: str, times: int) -> list[str]:
        """What the pattern finds in the log, as soon as it finds it so often. Raises ToolFailed."""
        deadline = time.monotonic() + _START_S
        while len(found := re.findall(pattern, log.read_text() if log.exists() else "")) < times:
            if time.monotonic() > deadline:
                raise ToolFailed(f"{log} does not show {pattern!r}: {log.read_text()[-2000:]}")
            time.sleep(0.05)
        return found
