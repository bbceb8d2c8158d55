"""Modules that Spark brings with a job replace those that the server has imported.

A worker puts the files of `--py-files` before everything else in its path. A plain Python has imported nothing but
PySpark by then. So if one of these files has a module that the server has imported, all that it has imported is
imported anew, as a plain Python would: what is kept could hold classes of a module that is replaced. Packages with
compiled parts stay, because they cannot be loaded twice. So the server imports none of them that depends on a package
without such parts, as pandas does.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec, PathFinder
from types import ModuleType


class GiveWay(MetaPathFinder):
    """Finds nothing. It is told, as every finder is, when Spark has changed the path (`importlib.invalidate_caches`).
    `imported` are the packages that a plain Python would not have imported yet.
    """

    def __init__(self, imported: Collection[str]) -> None:
        self._imported = imported
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
        if new and any(_has(new, package) for package in self._imported):
            for package in self._imported:
                _drop(package)


def _has(path: Sequence[str], package: str) -> bool:
    """Whether Python finds the package there. A folder of its name without an `__init__.py` comes after any package."""
    spec = PathFinder.find_spec(package, path)
    return spec is not None and spec.origin is not None


def _drop(package: str) -> None:
    own = [name for name in sys.modules if name == package or name.startswith(f"{package}.")]
    files = [str(getattr(sys.modules[name], "__file__", "")) for name in own]
    if not any(file.endswith(tuple(EXTENSION_SUFFIXES)) for file in files):
        for name in own:
            del sys.modules[name]
