"""Divides the offset ranges of a micro-batch among Spark tasks.

| option | tasks |
|---|---|
| none | adjacent ranges share a task: one task per core (`parallelism`), more if they would exceed `target` |
| `minPartitions` above the number of ranges | large ranges are split, in proportion to their sizes |
| `maxRecordsPerPartition` | each range is split into equal pieces within the limit, each with its own task |

The built-in source creates one task per Kafka partition. But a Python task costs tens of milliseconds, so here a few
tasks read a topic with a hundred partitions and little data. Sizes are offsets, an upper bound of the records.
Source: Spark's KafkaOffsetRangeCalculator, for the meaning of the two options.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from spark_kafka_eos.model import OffsetRange

Task = tuple[OffsetRange, ...]


def split(
    ranges: Sequence[OffsetRange],
    *,
    parallelism: int = 1,
    min_partitions: int | None = None,
    max_records_per_partition: int | None = None,
    target: int = 1_000_000,
) -> list[Task]:
    """Tasks that together read exactly `ranges`, in their order; empty ranges are omitted."""
    pieces = [one for one in ranges if one.size > 0]
    if max_records_per_partition:
        pieces = [piece for one in pieces for piece in _cut(one, -(-one.size // max_records_per_partition))]
    if min_partitions and len(pieces) < min_partitions:
        pieces = _cut_in_proportion(pieces, min_partitions)
    elif not max_records_per_partition:
        total = sum(one.size for one in pieces)
        return _grouped(pieces, min(len(pieces), max(parallelism, min_partitions or 1, -(-total // target))))
    return [(piece,) for piece in pieces]


def _cut_in_proportion(ranges: Sequence[OffsetRange], tasks: int) -> list[OffsetRange]:
    """About `tasks` pieces. Ranges that are too small to split count as one each and do not affect the others'
    shares.
    """
    total = sum(one.size for one in ranges)
    large = {one for one in ranges if _share(one.size, total, tasks) > 1}
    total_large = sum(one.size for one in large)
    tasks_for_large = max(tasks - (len(ranges) - len(large)), 1)
    parts = [_share(one.size, total_large, tasks_for_large) if one in large else 1 for one in ranges]
    return [piece for one, count in zip(ranges, parts, strict=True) for piece in _cut(one, count)]


def _share(size: int, total: int, tasks: int) -> int:
    """`tasks` times `size / total`, rounded half up, at least 1."""
    return max((2 * size * tasks + total) // (2 * total), 1)


def _cut(one: OffsetRange, parts: int) -> list[OffsetRange]:
    """Pieces whose sizes differ by at most one offset, none empty."""
    bounds = [one.start + one.size * part // parts for part in range(parts + 1)]
    return [replace(one, start=start, end=end) for start, end in pairwise(bounds) if start < end]


def _grouped(ranges: Sequence[OffsetRange], tasks: int) -> list[Task]:
    """`tasks` groups of adjacent ranges, none empty, as even as their order allows."""
    out: list[Task] = []
    left, first = sum(one.size for one in ranges), 0
    for remaining in range(tasks, 0, -1):
        taken, end = ranges[first].size, first + 1
        # Add the next one if that is closer to an even share and leaves one for each remaining task.
        while len(ranges) - end >= remaining and 2 * (taken * remaining - left) + ranges[end].size * remaining <= 0:
            taken, end = taken + ranges[end].size, end + 1
        out.append(tuple(ranges[first:end]))
        left, first = left - taken, end
    return out
