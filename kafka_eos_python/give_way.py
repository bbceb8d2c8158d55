"""Modules that Spark brings with a job replace those that the server has imported.

A worker puts the files of `--py-files` before everything else in its path. A plain Python has imported nothing but
PySpark by then.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec, PathFinder
from types import ModuleType

_KEPT = frozenset({"pyspark", "py4j"})  # which a plain Python has imported, too


class GiveWay(MetaPathFinder):
    """Finds nothing. It is told, as every finder is, when Spark has changed the path (`importlib.invalidate_caches`),
    and then drops imported packages that are now found elsewhere. A package with compiled parts cannot be loaded twice,
    so it stays.
    """

    def __init__(self) -> None:
        self._entries = set(sys.path)

    def find_spec(
        self,
        fullname: str,  # noqa: ARG002
        path: Sequence[str] | None,  # noqa: ARG002
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """Nothing."""
        return None

    def invalidate_caches(self) -> None:
        """Look at what is new in the path."""
        new = [entry for entry in sys.path if entry not in self._entries]
        self._entries.update(new)
        if new:
            for package in {name.partition(".")[0] for name in sys.modules} - sys.stdlib_module_names - _KEPT:
                if PathFinder.find_spec(package, new):
                    _drop(package)


def _drop(package: str) -> None:
    own = [name for name in sys.modules if name == package or name.startswith(f"{package}.")]
    files = [str(getattr(sys.modules[name], "__file__", "")) for name in own]
    if not any(file.endswith(tuple(EXTENSION_SUFFIXES)) for file in files):
        for name in own:
            del sys.modules[name]
