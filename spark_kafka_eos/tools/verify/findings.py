"""The results of a check: one finding per invariant, with the first violation of each kind."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Literal

CheckResult = Literal["holds", "violated", "not checked"]


class Invariant(IntEnum):
    """What holds for an output that is written exactly once; see verify.invariants, and verify.table for the
    last one."""

    ONCE = 1
    ORDER = 2
    IDENTITY = 3
    VISIBILITY = 4
    LEDGER = 5
    HEALED = 6
    TABLE = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """The first violation of its `kind`: where, as `topic-partition@offset` or a batch, and what is wrong; the total
    number, and the places of a few others.
    """

    kind: str
    where: str
    what: str
    count: int = 1
    also: tuple[str, ...] = ()

    def __str__(self) -> str:
        text = f"{self.where} {self.what}"
        if self.count == 1:
            return text
        return f"{text} (and {self.count - 1:,} more{''.join(f', {where}' for where in self.also)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedInvariant:
    """One invariant's verdict. `checked` counts its `unit`s; `unchecked` says why it, or a part of it, could not be
    checked; `note` is additional information. `asked`: the user requested it, so an unknown result is not a success.
    """

    invariant: Invariant
    checked: int = 0
    unit: str = "records"
    violations: tuple[Violation, ...] = ()
    unchecked: str = ""
    note: str = ""
    asked: bool = False

    @property
    def verdict(self) -> CheckResult:
        if self.violations:
            return "violated"
        return "not checked" if self.unchecked else "holds"

    @property
    def unproven(self) -> bool:
        """Requested, but neither proven nor refuted."""
        return self.asked and self.verdict == "not checked"


def merged(violations: Iterable[Violation]) -> tuple[Violation, ...]:
    """The first violation of each kind, with the number of its kind."""
    kinds: dict[str, Violation] = {}
    for violation in violations:
        first = kinds.setdefault(violation.kind, violation)
        if first is not violation:
            kinds[violation.kind] = replace(first, count=first.count + violation.count)
    return tuple(kinds.values())
