"""Logs what the Python processes of a fresh start do: when each starts, what it imports, what it asks brokers.

A `sitecustomize` module in PYTHONPATH calls `begin` in each of them (`fresh_start.logged`). A line is written as soon
as its step has ended, because Spark kills its workers. It has tab-separated fields: the kind, the process ID, the
seconds since the epoch, and

    start    the arguments of the process
    fork     the process ID of its parent, whose arguments it shares
    import   a module, the CPU seconds that it took, and of these those without what it imported in turn
    request  an API, the seconds until its response

It runs in each process before anything else, so it imports little.
"""

from __future__ import annotations

import os
import sys
import time
from _thread import get_ident
from typing import Any

VARIABLE = "KAFKA_EOS_BENCH_PROCESS_LOG"  # the file
_CONNECTION = "spark_kafka_eos.kafka.protocol.connection"


def begin() -> None:
    """Log this process and those that are forked from it, if the variable names a file."""
    if path := os.environ.get(VARIABLE):
        _Log(path).begin()


class _Log:
    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._nested: dict[
            int, list[float]
        ] = {}  # by thread, for each import that is under way: seconds of its imports

    def begin(self) -> None:
        self._write("start", *sys.orig_argv)
        os.register_at_fork(after_in_child=lambda: self._write("fork", str(os.getppid())))
        self._log_imports()

    def _write(self, kind: str, *fields: str) -> None:
        words = (field.replace("\t", " ").replace("\n", " ") for field in fields)  # of a program after `-c`
        line = "\t".join((kind, str(os.getpid()), f"{time.time():.6f}", *words))
        os.write(self._file, f"{line}\n".encode())

    def _log_imports(self) -> None:
        """Have the import system say how long it takes: it looks this function up at each import. A finder (PEP 302)
        does not see where a module's own imports end.
        """
        importing: Any = sys.modules["_frozen_importlib"]
        load = importing._find_and_load  # noqa: SLF001 - Python has no other place for this

        def logged(name: str, import_: Any) -> Any:
            if name in sys.modules:
                return load(name, import_)
            under_way = self._nested.setdefault(get_ident(), [])
            under_way.append(0.0)
            began = time.thread_time()
            try:
                module = load(name, import_)
            finally:
                took, inner = time.thread_time() - began, under_way.pop()
                if under_way:
                    under_way[-1] += took
                self._write("import", name, f"{took:.6f}", f"{took - inner:.6f}")
            if name == _CONNECTION:
                self._log_requests(sys.modules[name])
            return module

        importing._find_and_load = logged  # noqa: SLF001

    def _log_requests(self, connection: Any) -> None:
        """Have each request to a broker be written, too."""
        sending, write = connection.sending, self._write

        def logged(request: Any, node: str) -> Any:
            return _Logged(sending(request, node), request.name.removesuffix("Request"), write)

        connection.sending = logged


class _Logged:
    """A request that is being sent, as `recorder.Sent`."""

    def __init__(self, sent: Any, api: str, write: Any) -> None:
        self._sent, self._api, self._write = sent, api, write
        self._began = time.perf_counter()

    def answered(self, response: Any = None) -> None:
        self._sent.answered(response)
        self._end()

    def unanswered(self) -> None:
        self._sent.unanswered()
        self._end()

    def _end(self) -> None:
        self._write("request", self._api, f"{time.perf_counter() - self._began:.6f}")
