"""Loads kafka-python's protocol classes without its clients.

`import kafka.protocol` first runs `kafka/__init__.py`, which loads both of kafka-python's clients. With these 116
modules, what the sink's commit imports takes 306 ms of CPU time instead of 178. Each of Spark's Python processes
would spend this once, while a query's first batch waits for it; Spark keeps them for later batches, and ends one that
is idle for a minute. In these processes, the package is added to `sys.modules` without executing it; its code runs when
an attribute is first used. A user's own process imports it as usual, because a connector should not change what an
import does.
"""

from __future__ import annotations

import importlib.util
import sys
import threading
from types import ModuleType
from typing import Any

_executing = threading.RLock()  # other threads wait for the attributes
# Two threads that import different modules of the package could wait for each other: one for the lock above, the other
# for the import system's lock of a module. Then an import fails, as that of half a package does.
_WAIT_S = 10.0
_begun: set[str] = set()  # names of packages that are being executed


class _Unexecuted(ModuleType):
    """A package whose submodules can be imported; its own code runs when an attribute is missing (PEP 562)."""

    def __getattr__(self, name: str) -> Any:
        locked = _executing.acquire(timeout=_WAIT_S)
        try:
            if locked and type(self) is _Unexecuted and self.__name__ not in _begun:
                self._execute()
        finally:
            if locked:
                _executing.release()
        return ModuleType.__getattribute__(self, name)

    def _execute(self) -> None:
        _begun.add(self.__name__)  # its own attribute access must not execute it again
        try:
            assert self.__spec__ is not None
            assert self.__spec__.loader is not None
            self.__spec__.loader.exec_module(self)
            self.__class__ = ModuleType  # type: ignore[assignment]  # now it is one like others
        finally:
            _begun.discard(self.__name__)  # an error is raised again at the next use


def in_spark_process() -> bool:
    """Whether this is one of Spark's own Python processes: a worker, or one that plans or commits for a data source.

    All of them import `pyspark.worker_util`, which no user's process imports.
    """
    return "pyspark.worker_util" in sys.modules


def defer(name: str) -> None:
    """Add package `name` without executing it, unless it is already loaded or not installed."""
    if name in sys.modules:
        return
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError:  # the package that it is in is not installed, either
        return
    if spec is None:
        return
    package = importlib.util.module_from_spec(spec)
    package.__class__ = _Unexecuted
    sys.modules[name] = package
    parent, _, child = name.rpartition(".")
    if parent:  # as the import system does: `import a.b` finds b in `sys.modules` and then as an attribute of a
        setattr(sys.modules[parent], child, package)


def defer_clients() -> None:
    """In one of Spark's processes, have kafka-python's protocol classes load without its clients.

    Without kafka-python, what needs it says so (spark.features): this is no place to fail.
    """
    if in_spark_process():
        for package in ("kafka", "kafka.protocol.admin", "kafka.protocol.consumer", "kafka.protocol.producer"):
            defer(package)
