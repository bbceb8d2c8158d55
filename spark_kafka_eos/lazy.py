"""Names that a package offers without importing them: a process of Spark's waits for all that it imports."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping


def lazy(package: str, names: Mapping[str, str]) -> Callable[[str], object]:
    """A `__getattr__` for `package` (PEP 562) that imports what is asked for; `names` maps each to its module.

    It raises AttributeError for any other name.
    """

    def getattribute(name: str) -> object:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(names[name]), name)

    return getattribute
