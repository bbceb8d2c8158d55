"""The results of benchmarks, and the arithmetic on them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
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

    Of several runs, `value` is the median, and `low` and `high` are the extremes.
    """

    line: str
    at: float
    value: float
    low: float | None = None
    high: float | None = None

    @classmethod
    def of(cls, line: str, at: float, values: Sequence[float]) -> Self:
        """The point of these runs."""
        return cls(line=line, at=at, value=statistics.median(values), low=min(values), high=max(values))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """Measurements for several values of a parameter. A line of `panels` is named `panel, line`; without panels, all
    lines are in one plot.
    """

    title: str
    x: str
    y: str
    points: tuple[Point, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    panels: tuple[str, ...] = ()

    @property
    def lines(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(point.line for point in self.points))

    def line(self, name: str) -> tuple[Point, ...]:
        return tuple(point for point in self.points if point.line == name)


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
