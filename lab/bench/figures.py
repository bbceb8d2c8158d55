"""The results of benchmarks, and the arithmetic on them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from typing import Any, Self

QUANTILES = (0.5, 0.95, 0.99, 0.999)  # as in the output of Kafka's ProducerPerformance


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One side's measured runs in order: for each, the seconds for `records` records."""

    name: str
    records: int
    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def spread(self) -> float:
        """The difference between the slowest and the fastest run, relative to the median."""
        return (max(self.seconds) - min(self.seconds)) / self.median

    @property
    def rate(self) -> float:
        """Records per second in the median run."""
        return self.records / self.median


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Sides that did the same work in turn. `settings` describes the work, and may contain further figures."""

    title: str
    series: tuple[Series, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)

    def named(self, name: str) -> Series:
        """The side with this name. Raises KeyError."""
        return {series.name: series for series in self.series}[name]

    def ratio(self, name: str, against: str) -> float:
        """The rate of a side relative to another side's: faster if above 1."""
        return self.named(name).rate / self.named(against).rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One measurement of a sweep: the `line` of the plot, and the x (`at`) and y (`value`) coordinates.

    Of several `runs`, in their order, `value` is the median, and `low` and `high` are the quartiles.
    """

    line: str
    at: float
    value: float
    low: float | None = None
    high: float | None = None
    runs: tuple[float, ...] = ()

    @classmethod
    def of(cls, line: str, at: float, values: Sequence[float]) -> Self:
        """The point of these runs."""
        quartiles = statistics.quantiles(values, method="inclusive") if len(values) > 1 else [values[0]] * 3
        return cls(line=line, at=at, value=quartiles[1], low=quartiles[0], high=quartiles[2], runs=tuple(values))

    def equals(self, other: Self) -> bool:
        """Whether the medians can't be distinguished: the halves of the runs around them overlap."""
        (low, high), (others_low, others_high) = self.spread, other.spread
        return low <= others_high and others_low <= high

    @property
    def spread(self) -> tuple[float, float]:
        """The quartiles; the value itself where they are not known."""
        return (self.value if self.low is None else self.low, self.value if self.high is None else self.high)


def with_spread(value: float, low: float | None = None, high: float | None = None) -> str:
    """The value, and in brackets what it lies between if that is known, with three digits."""
    digits = max(0, 2 - math.floor(math.log10(value))) if value > 0 else 0
    figures = [f"{figure:,.{digits}f}" for figure in (value, low, high) if figure is not None]
    return figures[0] if len(figures) == 1 else f"{figures[0]} ({figures[1]}-{figures[2]})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """Measurements for several values of a parameter. A line of `panels` is named `panel, line`; without panels, all
    lines are in one plot. `alternatives`: the lines of a panel are ways to do the same work, so their order counts.
    """

    title: str
    x: str
    y: str
    points: tuple[Point, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    panels: tuple[str, ...] = ()
    alternatives: bool = False

    @property
    def lines(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(point.line for point in self.points))

    def line(self, name: str) -> tuple[Point, ...]:
        return tuple(point for point in self.points if point.line == name)

    def lines_of(self, panel: str) -> tuple[str, ...]:
        return tuple(line for line in self.lines if line.startswith(f"{panel}, "))

    def baseline(self, name: str) -> str | None:
        """The first line of this one's panel, with which it is compared; None for itself, or without panels."""
        first = next((lines[0] for lines in map(self.lines_of, self.panels) if name in lines), name)
        return None if first == name else first

    def order(self) -> Order:
        """How often two lines of a panel that differ at a place have the same order in both halves of the runs."""
        pairs = [
            (point, other)
            for point, other in combinations((point for point in self.points if point.runs), 2)
            if point.at == other.at and self._panel(point.line) == self._panel(other.line) and not point.equals(other)
        ]
        return Order(differ=len(pairs), stable=sum(_same_order(point.runs, other.runs) for point, other in pairs))

    def _panel(self, name: str) -> str:
        return self.baseline(name) or name


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Of the pairs that `differ`, how many are `stable`."""

    differ: int
    stable: int


def _same_order(runs: Sequence[float], other: Sequence[float]) -> bool:
    """Of the medians in the first and in the second half of the runs."""
    half = len(runs) // 2
    halves = ((values[:half], values[half:]) for values in (runs, other))
    (before, after), (others_before, others_after) = (tuple(map(statistics.median, parts)) for parts in halves)
    return (before < others_before) == (after < others_after)


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """The distribution of latencies, in milliseconds."""

    count: int
    mean: float
    maximum: float
    quantiles: Mapping[float, float]

    @property
    def median(self) -> float:
        return self.quantiles[0.5]


def latencies(values: Iterable[tuple[float, int]], quantiles: Sequence[float] = QUANTILES) -> Latencies:
    """The distribution of `values`: (milliseconds, number of records). Raises ValueError for none.

    A quantile q is the value at index int(q * count) in ascending order, as in ProducerPerformance.
    """
    ordered = sorted((value, count) for value, count in values if count > 0)
    total = sum(count for _, count in ordered)
    if not total:
        raise ValueError("no latencies")
    return Latencies(
        count=total,
        mean=sum(value * count for value, count in ordered) / total,
        maximum=ordered[-1][0],
        quantiles={quantile: _at(ordered, min(int(quantile * total), total - 1)) for quantile in quantiles},
    )


def _at(ordered: Sequence[tuple[float, int]], index: int) -> float:
    for value, count in ordered:
        if index < count:
            return value
        index -= count
    raise IndexError(index)


def growth(points: Sequence[tuple[float, float]]) -> float:
    """The largest exponent p for which y grows as x ** p between neighboring points; `points` are (x, y), ascending.

    Growth is at most linear if p is at most 1.
    """
    return max(math.log(after[1] / before[1]) / math.log(after[0] / before[0]) for before, after in pairwise(points))


def phases(batches: Sequence[Mapping[str, int]]) -> dict[str, float]:
    """The median milliseconds of each phase of these micro-batches, the longest first, without those below 1 ms."""
    names = sorted({name for batch in batches for name in batch})
    medians = {name: float(statistics.median(batch.get(name, 0) for batch in batches)) for name in names}
    return {name: medians[name] for name in sorted(names, key=lambda name: -medians[name]) if medians[name] >= 1}
