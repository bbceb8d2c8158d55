"""What a checker finds: one finding for each invariant, in it the first violation of each kind."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Literal


class Invariant(IntEnum):
    """What must hold of an output that is written exactly once; see core.invariants."""

    ONCE = 1
    ORDER = 2
    IDENTITY = 3
    VISIBILITY = 4
    LEDGER = 5
    HEALED = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """The first of its `kind`: where, as `topic-partition@offset` or a batch, and what is wrong there; how many in
    all."""

    kind: str
    where: str
    what: str
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One invariant's verdict. `checked` counts its `unit`s; `unchecked` says why it could not be checked."""

    invariant: Invariant
    checked: int = 0
    unit: str = "records"
    violations: tuple[Violation, ...] = ()
    unchecked: str = ""

    @property
    def verdict(self) -> Literal["holds", "violated", "not checked"]:
        if self.violations:
            return "violated"
        return "not checked" if self.unchecked else "holds"


def merged(violations: Iterable[Violation]) -> tuple[Violation, ...]:
    """The first of each kind, with all of the kind counted."""
    kinds: dict[str, Violation] = {}
    for each in violations:
        first = kinds.setdefault(each.kind, each)
        if first is not each:
            kinds[each.kind] = replace(first, count=first.count + each.count)
    return tuple(kinds.values())
