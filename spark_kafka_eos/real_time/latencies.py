"""How long things took, as counts of powers: small however long the task runs, and added up over tasks. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

_STEPS = 16  # for each doubling, so that a quantile is right to 4.4 %


@dataclass(slots=True)
class Latencies:
    """Milliseconds. What took less than a tenth of one counts as that."""

    counts: Counter[int] = field(default_factory=Counter)

    def add(self, milliseconds: float, times: int = 1) -> None:
        """Count something that took so long, or `times` of it."""
        self.counts[round(_STEPS * math.log2(max(milliseconds, 0.1)))] += times

    def pairs(self) -> list[tuple[float, int]]:
        """So many milliseconds, and how often, in order."""
        return [(round(2.0 ** (power / _STEPS), 4), self.counts[power]) for power in sorted(self.counts)]

    def since(self, earlier: Latencies) -> Latencies:
        """Those that were added after a copy was made."""
        return Latencies(self.counts - earlier.counts)

    def copy(self) -> Latencies:
        return Latencies(Counter(self.counts))

    def quantile(self, share: float) -> float | None:
        """The milliseconds within which this share of all happened; None if nothing did."""
        total, seen = self.counts.total(), 0
        for power in sorted(self.counts):
            seen += self.counts[power]
            if seen >= share * total:
                return float(2.0 ** (power / _STEPS))
        return None


def of_pairs(pairs: Iterable[Sequence[float]]) -> Latencies:
    """Inverse of `Latencies.pairs`."""
    latencies = Latencies()
    for milliseconds, times in pairs:
        latencies.add(milliseconds, int(times))
    return latencies


def added(latencies: Iterable[Latencies]) -> Latencies:
    """All of them together."""
    counts: Counter[int] = Counter()
    for part in latencies:
        counts.update(part.counts)
    return Latencies(counts)
