"""The fork server of one driver: `python -m kafka_eos_python.server SOCKET`, started by the launcher.

It imports what Spark's Python processes need, and between two imports serves whoever asks: a process forked early
imports the rest by itself. Its parts for one process are `_agree` (which one, and whether), `_fork`, and `_relay`
(signals one way, the end the other way).

It says nothing: it has neither input nor output, and a process that it does not serve is started as without it.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import importlib
import marshal
import os
import resource
import runpy
import select
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast

from kafka_eos_python.archives import without_archives
from kafka_eos_python.forked import ACCEPTED, GO, REFUSED, SIZE, peer
from kafka_eos_python.give_way import GiveWay
from kafka_eos_python.place import abandoned, started
from kafka_eos_python.request import DAEMON, described, differences, signals

if TYPE_CHECKING:
    from kafka_eos_python.request import Request

# In the order in which a query's first batch needs them. Without pandas: see `give_way`.
MODULES = (
    "pyspark.daemon",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark_kafka_eos",
    "pyspark.sql.worker.create_data_source",
    "spark_kafka_eos.options.kafka_properties",
    "spark_kafka_eos.options.source_parser",
    "spark_kafka_eos.spark.source",
    "spark_kafka_eos.reading.offset_planner",
    "pyarrow",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.worker.plan_data_source_read",
    "spark_kafka_eos.preflight.run",
    "spark_kafka_eos.options.sink_parser",
    "spark_kafka_eos.options.unused",
    "spark_kafka_eos.spark.sink",
    "pyspark.sql.worker.write_into_data_source",
    "pyspark.worker",
    "spark_kafka_eos.reading.records",
    "spark_kafka_eos.spark.encode_stage",
    "spark_kafka_eos.spark.checkpoint",
    "spark_kafka_eos.spark.sink_commit",
    "pyspark.sql.worker.python_streaming_sink_runner",
)
_OF_SPARK = {"pyspark", "py4j"}  # a plain Python has imported them, too
_SECONDS = 2.0  # for a launcher's next word: all of it is in its memory
_IDLE_SECONDS = 300.0
_PR_SET_PDEATHSIG = 1


@dataclass(slots=True)
class Client:
    """A launcher's connection, and the process that it stands in for."""

    connection: socket.socket
    pid: int
    pidfd: int


@dataclass(slots=True)
class Server:
    """Forks on request. `serve` returns in a forked process what this one is to run, and in the server None."""

    listening: socket.socket
    owner: int  # a descriptor of the driver's process
    own: Request
    ended: bool = False
    clients: dict[int, Client] = field(default_factory=dict)  # by each of its two descriptors
    polled: select.poll = field(default_factory=select.poll)

    def __post_init__(self) -> None:
        for descriptor in (self.listening.fileno(), self.owner):
            self.polled.register(descriptor, select.POLLIN)

    def serve(self, seconds: float) -> Request | None:
        """Do what there is to do, and wait for it for so long: if nobody wants anything then, it was the last time."""
        ready = self.polled.poll(1000 * seconds)
        for descriptor, _ in ready[:1]:  # what is done for one may give the number of another one away
            if descriptor == self.owner:
                self.polled.unregister(self.owner)
                self.ended = True
            elif descriptor == self.listening.fileno():
                if request := self._accept():
                    return request
            elif client := self.clients.get(descriptor):
                self._relay(client, descriptor)
        if seconds and not ready:
            self.ended = True
        return None

    def _accept(self) -> Request | None:
        connection, _ = self.listening.accept()
        descriptors: list[int] = []
        try:
            request = self._agree(connection, descriptors)
            if request is not None:
                return self._fork(connection, request, descriptors)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        connection.close()
        return None

    def _agree(self, connection: socket.socket, descriptors: list[int]) -> Request | None:
        """What a launcher asks for, if it is to be forked, and the launcher still wants it."""
        connection.settimeout(_SECONDS)
        try:
            request = _take(connection, descriptors) if peer(connection) == os.getuid() else None
            if request is None or self.refuses(request):
                connection.sendall(REFUSED)
                return None
            connection.sendall(ACCEPTED)
            return request if connection.recv(1) == GO else None
        except OSError:
            return None  # it was killed, or waits no longer

    def refuses(self, request: Request) -> bool:
        """Whether a process forked now could differ from what the request describes."""
        requested, own = (process["environment"].get("PYTHONPATH", "") for process in (request, self.own))
        return bool(differences(request, self.own)) or _path(requested) != own or _threads() != 1

    def _fork(self, connection: socket.socket, request: Request, descriptors: Sequence[int]) -> Request | None:
        """The request in the forked process. If none can be forked now, its launcher ends as if it had been killed, and
        the others go on.
        """
        server = os.getpid()
        try:
            pid = os.fork()
        except OSError:
            connection.close()
            return None
        if pid == 0:
            _die_with(server)
            for number, descriptor in enumerate(descriptors):
                os.dup2(descriptor, number)
            connection.close()
            self._close()
            return request
        client = Client(connection, pid, os.pidfd_open(pid))
        for descriptor in (connection.fileno(), client.pidfd):
            self.clients[descriptor] = client
            self.polled.register(descriptor, select.POLLIN)
        return None

    def _relay(self, client: Client, descriptor: int) -> None:
        if descriptor == client.pidfd:
            _, status = os.waitpid(client.pid, 0)
            with suppress(OSError):  # the launcher was killed
                client.connection.sendall(status.to_bytes(SIZE, sys.byteorder))
            self._forget(client)
            return
        try:
            numbers = client.connection.recv(64)
        except OSError:
            numbers = b""
        for number in numbers or bytes([signal.SIGKILL]):
            signal.pidfd_send_signal(client.pidfd, number)
        if not numbers:
            self.polled.unregister(descriptor)

    def _forget(self, client: Client) -> None:
        for descriptor in (client.connection.fileno(), client.pidfd):
            with suppress(KeyError):
                self.polled.unregister(descriptor)
            del self.clients[descriptor]
        client.connection.close()
        os.close(client.pidfd)

    def _close(self) -> None:
        """Close what is the server's, in a forked process."""
        for client in {id(client): client for client in self.clients.values()}.values():
            client.connection.close()
            os.close(client.pidfd)
        self.clients.clear()
        self.listening.close()
        os.close(self.owner)


def _take(connection: socket.socket, descriptors: list[int]) -> Request | None:
    """What a launcher asks for, and its descriptors 0 to 2."""
    size, received, _, _ = socket.recv_fds(connection, SIZE, 3)
    descriptors += received
    missing, parts = int.from_bytes(size, sys.byteorder), []
    while missing and (part := connection.recv(missing)):
        parts.append(part)
        missing -= len(part)
    if missing or len(received) != 3:
        return None
    return cast("Request", marshal.loads(b"".join(parts)))  # noqa: S302 - of the same user, and the same Python


def _threads() -> int:
    return len(os.listdir("/proc/self/task"))  # noqa: PTH208 - names are enough


@functools.cache
def _path(asked: str) -> str:
    """A PYTHONPATH as the launcher leaves it to a plain Python, each entry once."""
    entries = asked.split(os.pathsep) if asked else []
    return os.pathsep.join(dict.fromkeys(without_archives(entries, _installed())))


@functools.cache
def _installed() -> list[str]:
    own = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return [entry for entry in sys.path[1:] if entry not in own]


def _die_with(server: int) -> None:
    """Have the kernel kill this process when the server is killed. Source: prctl(2)."""
    _libc().prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != server:  # it has been
        os._exit(1)


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def become(request: Request) -> None:
    """Take over what the requested process has from where it was started. Raises OSError."""
    os.setpgid(0, request["group"])
    for number in signals():
        if (number in request["ignored"]) != (signal.getsignal(number) == signal.SIG_IGN):
            default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            signal.signal(number, signal.SIG_IGN if number in request["ignored"] else default)
    signal.pthread_sigmask(signal.SIG_SETMASK, request["blocked"])
    os.umask(request["umask"])
    for number, limit in request["limits"].items():
        if resource.getrlimit(number) != limit:
            resource.setrlimit(number, limit)
    os.environ.clear()
    os.environ.update(request["environment"])
    gc.enable()
    sys.orig_argv[:] = [sys.executable, *request["arguments"]]


def run(request: Request) -> None:
    """What `python -m module …` does. `-m` does not find the module imported, and neither does this."""
    _, module, *arguments = request["arguments"]
    sys.modules.pop(module, None)
    sys.argv[:] = [module, *arguments]  # the first one is replaced by its file
    sys.meta_path.insert(0, GiveWay(_packages() - _AT_START - _OF_SPARK))
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _packages() -> set[str]:
    """The packages that are imported from files, without Python's own."""
    imported = {name for name, module in sys.modules.items() if "." not in name and getattr(module, "__file__", None)}
    return imported - sys.stdlib_module_names


_AT_START = _packages()


@dataclass(slots=True)
class NewNumbers:
    """Has each process that Spark would have started draw other random numbers, as plain ones do: NumPy's generator was
    seeded once, in the server. (Python does the same with its own.) These are the server's children and, of a daemon,
    theirs. What they fork draws what it would if they were plain.
    """

    generations: int = 0

    def __call__(self) -> None:
        """In a forked process."""
        self.generations += 1
        last = 2 if DAEMON in sys.orig_argv else 1
        if self.generations <= last and (drawing := sys.modules.get("numpy.random")):
            drawing.seed()


def _listen(path: Path) -> socket.socket:
    """Listen there. Raises OSError if another server was faster."""
    for name in abandoned(os.listdir(path.parent)):  # noqa: PTH208
        (path.parent / name).unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(str(path))
    listening.listen()
    return listening


def _driver(path: Path) -> int:
    """A descriptor of the process that the socket is named after. Raises OSError if it has ended."""
    pid, _, start = path.name.partition("-")
    descriptor = os.pidfd_open(int(pid))
    process = started(int(pid))
    if process is None or process[0] != int(start):
        raise ProcessLookupError(pid)
    return descriptor


def main(path: Path) -> Request | None:
    """Serve until the driver has ended and all processes; in a forked process, return what it is to run."""
    process = os.getpid()
    own, owner = described([]), _driver(path)
    server = Server(listening=_listen(path), owner=owner, own=own)
    os.register_at_fork(after_in_child=NewNumbers())
    try:
        return _serve(server)
    finally:
        if os.getpid() == process:
            path.unlink(missing_ok=True)


def _serve(server: Server) -> Request | None:
    gc.disable()  # what is imported stays
    for name in MODULES:
        if request := server.serve(0):
            return request
        with suppress(ImportError):  # of another release of PySpark, or not installed
            importlib.import_module(name)
    gc.freeze()
    while not server.ended or server.clients:
        if request := server.serve(_IDLE_SECONDS):
            return request
    return None


if __name__ == "__main__":
    if asked := main(Path(sys.argv[1])):
        become(asked)
        run(asked)
