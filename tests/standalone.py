"""A standalone Spark cluster: a master and workers as processes on the loopback interface, from the installed PySpark.

The workers have an environment of their own, and no more of Python in it than what a test puts there: no PYTHONPATH,
and a `python3` without packages.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from importlib.metadata import Distribution, distribution
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from spark_kafka_eos.testing.driver import spark_submit
from spark_kafka_eos.testing.supervised import SupervisedProcesses
from tests.pages import ROOT

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
        """What the pattern finds in the log, as soon as it finds it so often."""
        deadline = time.monotonic() + _START_S
        while len(found := re.findall(pattern, log.read_text() if log.exists() else "")) < times:
            assert time.monotonic() < deadline, f"{log} does not show {pattern!r}: {log.read_text()[-2000:]}"
            time.sleep(0.05)
        return found


def bare_environment(folder: Path, requirements: Iterable[str] = ()) -> Path:
    """Make a virtual environment with the named packages and what they need, and nothing else: not even pip, and not
    this package. They are links to the files of the tests' own environment, so that nothing is downloaded. Returns its
    folder for packages.
    """
    # Not `python -m venv`, whose base would be the tests' environment.
    base = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
    (folder / "bin").mkdir(parents=True)
    for name in ("python", "python3"):
        (folder / "bin" / name).symlink_to(base)
    (folder / "pyvenv.cfg").write_text(f"home = {base.parent}\ninclude-system-site-packages = false\n")
    packages = folder / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    packages.mkdir(parents=True)
    for found in _needed(requirements):
        for file in found.files or []:
            if not {"..", "tests"} & set(file.parts):  # scripts; half of NumPy and pandas
                _link(Path(str(found.locate_file(file))), packages / file)
    return packages


def install_package(packages: Path) -> None:
    """Install this package, as it is in the checkout, into an environment's folder for packages; with its script, if
    the folder is that of an environment.
    """
    for name in ("spark_kafka_eos", "pyspark_kafka_eos", "kafka_eos_python"):
        shutil.copytree(ROOT / name, packages / name, ignore=shutil.ignore_patterns("__pycache__"))
    if (commands := packages.parents[2] / "bin").is_dir():
        shutil.copy(ROOT / "kafka_eos_python" / "bin" / "kafka-eos-python", commands)


def _needed(requirements: Iterable[str]) -> list[Distribution]:
    """The installed distributions of these requirements and of what they require in turn, without extras."""
    found: dict[str, Distribution] = {}
    left = list(requirements)
    while left:
        requirement = Requirement(left.pop())
        name = canonicalize_name(requirement.name)
        if name in found or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        found[name] = distribution(name)
        left += found[name].requires or []
    return list(found.values())


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:  # on another file system
        shutil.copy2(source, target)
