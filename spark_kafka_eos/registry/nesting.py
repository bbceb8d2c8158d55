"""How far a schema unfolds: it may name a type twice, which names another one twice, and so on, so a small text can
stand for more parts than any memory holds. In Spark's types every part is written out.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Self

MOST_PARTS = 10_000  # the widest tables have a thousand columns; so many parts take 0.1 s


class UnsupportedSchema(ValueError):
    """The schema is malformed, or Spark has no type for a part of it. The text names the part."""


@dataclass(frozen=True, slots=True)
class Nesting:
    """Where a part of a schema is: the named types around it, and a count of all parts so far."""

    names: tuple[str, ...] = ()
    counted: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def within(self, name: str, called: str) -> Self:
        """Inside of the type `name`, which errors call so. Raises UnsupportedSchema if it is there already."""
        if name in self.names:
            raise UnsupportedSchema(f"{called} contains itself, and Spark has no recursive types")
        return replace(self, names=(*self.names, name))

    def count(self) -> None:
        """Count a part. Raises UnsupportedSchema if there are too many."""
        if next(self.counted) > MOST_PARTS:
            raise UnsupportedSchema(f"the schema unfolds to more than {MOST_PARTS:,} parts")
