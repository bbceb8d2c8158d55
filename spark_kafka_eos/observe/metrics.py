"""Metrics as values: what they are called, and what they are now. `observe.endpoint` shows them to Prometheus. Pure.

Names and units follow Prometheus' conventions: seconds, bytes, `_total` for what only grows. Labels are names that an
operator gave (query, topic, transactional.id) or that a program has (step, error), never keys or values of records.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.words import one_line

MetricType = Literal["counter", "gauge", "histogram"]
Labels = tuple[str, ...]

# Seconds. A small batch takes tens of milliseconds, a large one minutes.
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)

MOST_TOPICS = 100
"""The most topics of a query that have series of their own; the others share one."""
OTHER_TOPICS = "(other)"  # no topic has this name


class Metric(NamedTuple):
    """A row of a table of metrics; `labels` are the names of its labels."""

    name: str
    kind: MetricType
    labels: Labels
    help: str


@dataclass(slots=True)
class Durations:
    """A histogram of seconds: in how many cases it took longer than the bucket before, but not than this one."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    total: float = 0.0

    def add(self, seconds: float, times: int = 1) -> None:
        self.counts[bisect.bisect_left(BUCKETS, seconds)] += times
        self.total += seconds * times

    def cumulated(self) -> Iterator[tuple[str, int]]:
        """As Prometheus wants it: each bucket's upper bound, and how many cases were within it."""
        so_far = 0
        for bound, count in zip((*map(str, BUCKETS), "+Inf"), self.counts, strict=True):
            so_far += count
            yield bound, so_far

    def copy(self) -> Durations:
        return Durations(counts=list(self.counts), total=self.total)


class Series:
    """The values of some metrics, by their labels' values, which are made printable. Not thread-safe."""

    def __init__(self) -> None:
        self._values: dict[Metric, dict[Labels, float]] = {}
        self._durations: dict[Metric, dict[Labels, Durations]] = {}

    def add(self, metric: Metric, *labels: str, amount: float = 1) -> None:
        series, labels = self._values.setdefault(metric, {}), tuple(map(one_line, labels))
        series[labels] = series.get(labels, 0) + amount

    def set(self, metric: Metric, *labels: str, value: float) -> None:
        self._values.setdefault(metric, {})[tuple(map(one_line, labels))] = value

    def observe(self, metric: Metric, *labels: str, seconds: float, times: int = 1) -> None:
        series = self._durations.setdefault(metric, {})
        series.setdefault(tuple(map(one_line, labels)), Durations()).add(seconds, times)

    def clear(self, *metrics: Metric) -> None:
        """Drop all series of these metrics, so that nobody takes an old value for a new one."""
        for metric in metrics:
            self._values.pop(metric, None)

    def values(self, metric: Metric) -> Mapping[Labels, float]:
        return self._values.get(metric, {})

    def durations(self, metric: Metric) -> Mapping[Labels, Durations]:
        return self._durations.get(metric, {})

    def take(self, other: Series) -> None:
        """Include the values of `other`, which keeps its own."""
        for metric, series in other._values.items():
            self._values.setdefault(metric, {}).update(series)
        for metric, durations in other._durations.items():
            copies = {labels: seconds.copy() for labels, seconds in durations.items()}
            self._durations.setdefault(metric, {}).update(copies)


def by_topic(values: Mapping[TopicPartition, float], combine: Callable[[Iterable[float]], float]) -> dict[str, float]:
    """The values of each topic's partitions combined; the topics beyond the `MOST_TOPICS` with the largest values are
    combined as `OTHER_TOPICS`.
    """
    topics: dict[str, list[float]] = {}
    for tp, value in values.items():
        topics.setdefault(tp.topic, []).append(value)
    combined = {topic: combine(of_partitions) for topic, of_partitions in sorted(topics.items())}
    ordered = sorted(combined, key=lambda topic: combined[topic], reverse=True)
    largest = {topic: combined[topic] for topic in ordered[:MOST_TOPICS]}
    if others := ordered[MOST_TOPICS:]:
        largest[OTHER_TOPICS] = combine(combined[topic] for topic in others)
    return largest
