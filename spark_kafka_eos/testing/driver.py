"""Runs a Spark driver as a process that can be killed, or can lose an executor, during a micro-batch; reads its
checkpoint.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from kafka_eos_python import beside
from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.testing.log_causes import causes
from spark_kafka_eos.testing.patience import Patience
from spark_kafka_eos.testing.process_tree import process_tree
from spark_kafka_eos.testing.supervised import SupervisedProcesses

EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"  # the main class of an executor's JVM

_WORKERS = "pyspark.daemon"  # the module that forks workers

_POLL_SECONDS = 0.1  # between two checks of files that the driver writes
_PROGRESS_SECONDS = 1.0  # between two looks at all of its processes


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """Where a driver or an executor is to be killed: at a failpoint of `failpoints.POINTS`, in micro-batch `batch`."""

    point: str
    batch: int

    def environment(self, folder: Path) -> dict[str, str]:
        """The variables that arm the failpoint in a driver or executor and its workers; `folder` must exist, empty."""
        return {"KAFKA_EOS_FAILPOINT": f"{self.point}@{self.batch}", "KAFKA_EOS_FAILPOINT_DIR": str(folder)}


def _nothing() -> None:
    """What there is to do while a driver runs, unless the caller says more."""


class Driver:
    """`spark-submit` of one job, as a context manager that kills all of its processes at the end.

    `conf` are the arguments of spark-submit, `arguments` those of the job; `env` is added to this process's
    environment. The driver's output is appended to `log`, and errors quote it. `submit` is the program, by default
    PySpark's `spark-submit`.
    """

    def __init__(
        self,
        job: Path,
        arguments: Sequence[str],
        *,
        conf: Sequence[str],
        env: Mapping[str, str],
        log: Path,
        submit: str | Path | None = None,
    ) -> None:
        self._log = log
        self._supervised = SupervisedProcesses()
        settings = [f"{name}={value}" for name, value in env.items()]
        # `env` and `spark-submit` use exec, so the process started here becomes the driver's JVM.
        command: list[str | Path] = ["env", *settings, submit or spark_submit(), *conf, job, *arguments]
        self._process = self._supervised.spawn(command, log=log)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the driver's process is alive."""
        return self._process.poll() is None

    @property
    def at_work(self) -> bool:
        """Whether the driver or an executor has Python workers yet."""
        return any(_runs(process, _WORKERS) for process in process_tree(self.pid))

    @property
    def cpu_seconds(self) -> float:
        """CPU time of the process tree as it is now; that of processes that have ended is lost, or their parent's."""
        return sum(map(_cpu_seconds, process_tree(self.pid)))

    def wait_until(
        self,
        condition: Callable[[], bool],
        *,
        meanwhile: Callable[[], None] = _nothing,
        timeout: float,
        progress: Callable[[], Hashable] | None = None,
    ) -> None:
        """Return when `condition` holds; until then, call `meanwhile` regularly.

        Raises ToolFailed if the driver ends first, or after `timeout` seconds: with `progress`, after as long without
        another result of it, in which the processes take hardly any CPU time either.
        """
        for ended in self._polls(meanwhile, timeout, progress):
            if condition():
                return
            if ended:
                raise self._failure(f"the driver ended by itself with exit code {self._process.returncode}")

    def wait(
        self,
        *,
        meanwhile: Callable[[], None] = _nothing,
        timeout: float,
        progress: Callable[[], Hashable] | None = None,
    ) -> None:
        """Return when the driver has ended with exit code 0. Raises ToolFailed for another code, and as `wait_until`
        does.
        """
        for ended in self._polls(meanwhile, timeout, progress):
            if ended and self._process.returncode == 0:
                return
            if ended:
                raise self._failure(f"the driver ended with exit code {self._process.returncode}")

    def _polls(
        self, meanwhile: Callable[[], None], timeout: float, progress: Callable[[], Hashable] | None
    ) -> Iterator[bool]:
        """Yield regularly whether the driver has ended. Raises ToolFailed."""
        patience = Patience(timeout, now=time.monotonic())
        state, worked, looked = None, 0.0, -_PROGRESS_SECONDS
        while not patience.ends(state, worked, now=time.monotonic()):
            if progress is not None and time.monotonic() - looked >= _PROGRESS_SECONDS:
                state, worked, looked = progress(), self.cpu_seconds, time.monotonic()
            ended = self._ended(_POLL_SECONDS)
            meanwhile()
            yield ended
        if progress is None:
            raise self._failure(f"the driver was not done within {timeout:g} s")
        raise self._failure(f"the driver made no progress for {timeout:g} s; it may still wait for something")

    def kill(self) -> int:
        """Send SIGKILL to the whole process tree (JVM, Python driver, workers, a local cluster's executors), the JVM
        first. Returns the number of processes that were alive. If the driver has ended, only what it has left behind:
        its process id may be another process's by now.
        """
        killed = _kill_tree(self.pid) if self.running else 0
        self._process.wait()
        self._supervised.close()
        return killed

    def kill_executor(self, worker: int) -> int:
        """Kill the executor of a `local-cluster` that owns a Python worker, as `kill` does; the driver continues.

        `worker` is a process id. The executor is a child of the driver's JVM. Returns the number of processes that were
        alive. Raises ToolFailed if there is no such executor, or the worker has ended.
        """
        try:
            parents = psutil.Process(worker).parents()
            executor = next((parent for parent in parents if parent.ppid() == self.pid), None)
        except psutil.NoSuchProcess as error:  # it, or one of its parents meanwhile
            raise self._failure(f"process {error.pid} has ended") from error
        if executor is None:
            raise self._failure(f"process {worker} is not a worker of an executor of this driver")
        return _kill_tree(executor.pid)

    def kill_an_executor(self) -> int:
        """Kill one executor of a `local-cluster`, as `kill` does; the driver continues. Returns the number of processes
        that were alive, 0 if there is no executor yet.
        """
        executor = next((child.pid for child in _children(self.pid) if _runs(child, EXECUTOR)), None)
        return 0 if executor is None else _kill_tree(executor)

    def pause(self) -> None:
        """Send SIGSTOP to the whole process tree, the JVM first: connections stay open, and nothing answers."""
        for process in process_tree(self.pid):
            _signal(process, signal.SIGSTOP)

    def resume(self) -> None:
        """Send SIGCONT to the same processes: the end of a pause."""
        for process in process_tree(self.pid):
            _signal(process, signal.SIGCONT)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def _ended(self, seconds: float) -> bool:
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _failure(self, what: str) -> ToolFailed:
        lines = causes(self._log.read_text(errors="replace").splitlines())
        return ToolFailed(what, action="\n".join([f"From its log {self._log}:", *lines]))


def committed_batches(checkpoint: Path) -> int:
    """The number of micro-batches that Spark has recorded as done: the last id in the checkpoint's `commits` + 1."""
    return 1 + max(_ids(checkpoint / "commits"), default=-1)


def batch_in_flight(checkpoint: Path) -> int | None:
    """The micro-batch that is planned (`offsets`) but not done (`commits`), if any."""
    planned = max(_ids(checkpoint / "offsets"), default=-1)
    return planned if planned >= committed_batches(checkpoint) else None


def spark_submit() -> Path:
    """The `spark-submit` of the installed pyspark."""
    return _package("pyspark") / "bin" / "spark-submit"


def spark_home(folder: Path) -> Path:
    """Make `folder` a SPARK_HOME that links to the installed pyspark. A `local-cluster` stores its executors' logs in
    its subfolder `work`.

    It omits `python/lib/pyspark.zip`, which precedes the package in each worker's path and has no bytecode: the Python
    process that each query starts for its streaming source would take half a second to compile it.
    """
    folder.mkdir()
    for entry in _package("pyspark").iterdir():
        if entry.name not in ("work", "python"):
            (folder / entry.name).symlink_to(entry)
    return folder


def python_environment() -> dict[str, str]:
    """The variables that make driver and workers use this Python and this package, even if it is not installed."""
    root = str(_package("spark_kafka_eos").parent)
    path = os.pathsep.join(part for part in (root, os.environ.get("PYTHONPATH", "")) if part)
    python = beside(sys.executable)
    return {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python, "PYTHONPATH": path}


def _package(name: str) -> Path:
    spec = find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise ToolFailed(f"the package {name} is not installed", action=f"Run 'pip install {name}'.")
    return Path(spec.submodule_search_locations[0])


def _ids(folder: Path) -> list[int]:
    """The ids of a checkpoint log's entries; temporary files and checksums have other names."""
    return [int(entry.name) for entry in folder.iterdir() if entry.name.isdigit()] if folder.exists() else []


def _kill_tree(root: int) -> int:
    """Send SIGKILL to a process, then to its descendants. Returns the number of processes that were alive."""
    return sum(_signal(process, signal.SIGKILL) for process in process_tree(root))


def _cpu_seconds(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system + times.children_user + times.children_system)


def _children(root: int) -> list[psutil.Process]:
    try:
        return list(psutil.Process(root).children())
    except psutil.NoSuchProcess:
        return []


def _runs(process: psutil.Process, main: str) -> bool:
    """Whether the process's command line contains this class or module."""
    try:
        return main in process.cmdline()
    except psutil.NoSuchProcess:
        return False


def _signal(process: psutil.Process, number: signal.Signals) -> bool:
    """Send the signal; return whether the process was alive."""
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return False
    return True
