"""Values of options that are more than a number or a name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fractions import Fraction


@dataclass(frozen=True, slots=True)
class LatestMinus:
    """In each partition, `offsets` before its latest offset, or its earliest offset if that is later."""

    offsets: int


@dataclass(frozen=True, slots=True)
class Limit:
    """At most `count` of a batch's records, and at most this `share` of them (0 to 1); None is without limit.

    The share is exact: 0.07 of 100 in floats is more than 7.
    """

    count: int | None = None
    share: Fraction | None = None

    def __str__(self) -> str:
        parts = [] if self.count is None else [str(self.count)]
        return ",".join([*parts, *([] if self.share is None else [f"{float(100 * self.share):g}%"])])
