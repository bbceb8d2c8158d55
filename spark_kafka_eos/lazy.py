"""Names that a package exports without importing them, because imports delay Spark's processes."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping


def lazy(package: str, names: Mapping[str, str]) -> Callable[[str], object]:
    """A `__getattr__` for `package` (PEP 562) that imports a name on first access; `names` maps each to its module.

    Raises AttributeError for other names.
    """

    def getattribute(name: str) -> object:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(names[name]), name)

    return getattribute
