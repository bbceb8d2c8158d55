"""Narrows a batch read according to its filters: fewer partitions, later starts, earlier ends.

Every record that matches the conditions stays in the range. Others may, too, so Spark evaluates the filters again.

ListOffsets converts a timestamp to an offset: that of the first record with this timestamp or a later one.
- All records before it are older, whatever the order of timestamps, so the range may start there.
- Records after it may be older again: producers set the timestamps (CreateTime), and brokers' clocks may be set back or
  differ (LogAppendTime). So a timestamp ends the range only if the user guarantees a bound, `maxTimestampDelay`, on
  how much older than an earlier record a record can be: all records after one of time `t + delay` have `t` or later.
Source: Kafka's UnifiedLog.fetchOffsetByTimestamp and LogSegment.findOffsetByTimestamp; KIP-33, KIP-79.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from spark_kafka_eos.model import Offsets, TopicPartition

Operator = Literal["=", "<", "<=", ">", ">="]
_MICROSECONDS = 1_000  # of a millisecond


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A comparison of a column with a value: a number, or a topic's name. Times are in microseconds since 1970.

    With several `values` (for `=`), one of them must match.
    """

    column: str
    operator: Operator
    values: tuple[int | str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """The numbers in `[low, high)` (None: no bound) that are also in `some` (None: all)."""

    low: int | None = None
    high: int | None = None
    some: frozenset[int] | None = None

    @property
    def none(self) -> bool:
        """Whether this is the empty set."""
        return self.some == frozenset() or (self.low is not None and self.high is not None and self.low >= self.high)

    def holds(self, number: int) -> bool:
        return (
            (self.low is None or number >= self.low)
            and (self.high is None or number < self.high)
            and (self.some is None or number in self.some)
        )

    def both(self, other: Numbers) -> Numbers:
        """The intersection of both."""
        lows = [bound for bound in (self.low, other.low) if bound is not None]
        highs = [bound for bound in (self.high, other.high) if bound is not None]
        sets = [numbers for numbers in (self.some, other.some) if numbers is not None]
        return Numbers(
            low=max(lows, default=None),
            high=min(highs, default=None),
            some=frozenset.intersection(*sets) if sets else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What all conditions together match. `times` are in milliseconds, as in Kafka. `topics` None: any topic."""

    topics: frozenset[str] | None = None
    partitions: Numbers = Numbers()
    offsets: Numbers = Numbers()
    times: Numbers = Numbers()


def wanted(conditions: Iterable[Condition]) -> Wanted:
    """What the conditions match. Conditions on other columns are ignored."""
    found = Wanted()
    for condition in conditions:
        match condition.column:
            case "topic" if condition.operator == "=":
                names = frozenset(str(value) for value in condition.values)
                found = replace(found, topics=names if found.topics is None else found.topics & names)
            case "partition":
                found = replace(found, partitions=found.partitions.both(_numbers(condition)))
            case "offset":
                found = replace(found, offsets=found.offsets.both(_numbers(condition)))
            case "timestamp":
                found = replace(found, times=found.times.both(_numbers(condition, unit=_MICROSECONDS)))
    return found


def within(start: Offsets, end: Offsets, asked: Wanted) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Start and end of the partitions that can contain matching records, by topic, partition and offset."""
    if asked.partitions.none or asked.offsets.none or asked.times.none:
        return {}, {}
    low, high = asked.offsets.low, asked.offsets.high
    named = {tp: at for tp, at in start.items() if _names(asked, tp)}
    begins = {tp: at if low is None else max(at, low) for tp, at in named.items()}
    return _kept(begins, {tp: at if high is None else min(at, high) for tp, at in end.items()})


def from_times(
    start: Offsets, end: Offsets, found: Mapping[TopicPartition, int | None]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Start at the first record of `times.low` or later, as `found` by ListOffsets; None if there is none."""
    return _kept({tp: max(start[tp], at) for tp, at in found.items() if at is not None}, end)


def up_to_times(
    start: Offsets, end: Offsets, found: Mapping[TopicPartition, int | None]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """End at the first record of `times.high` plus the delay, or later; None if there is none."""
    return _kept(start, {tp: end[tp] if at is None else min(end[tp], at) for tp, at in found.items()})


def _numbers(condition: Condition, unit: int = 1) -> Numbers:
    """The numbers, in units of `unit`, that match the condition."""
    values = [int(value) for value in condition.values]
    if condition.operator == "=":
        whole = frozenset(value // unit for value in values if value % unit == 0)
        return Numbers(low=min(whole), high=max(whole) + 1, some=whole) if whole else Numbers(some=whole)
    value = values[0]
    at_or_after, after = -(-value // unit), value // unit + 1
    match condition.operator:
        case "<":
            return Numbers(high=at_or_after)
        case "<=":
            return Numbers(high=after)
        case ">":
            return Numbers(low=after)
        case ">=":
            return Numbers(low=at_or_after)


def _names(asked: Wanted, tp: TopicPartition) -> bool:
    return (asked.topics is None or tp.topic in asked.topics) and asked.partitions.holds(tp.partition)


def _kept(start: Offsets, end: Offsets) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    both = {tp for tp in start.keys() & end.keys() if start[tp] < end[tp]}
    return {tp: start[tp] for tp in sorted(both)}, {tp: end[tp] for tp in sorted(both)}
