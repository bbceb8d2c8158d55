"""Divides the offset ranges of a micro-batch among Spark tasks. Pure.

| option | tasks |
|---|---|
| none | adjacent ranges share a task: one per core (`parallelism`) if each is `worth` it, and none above `target` |
| `maxBytesPerPartition` | ranges above it are split, each piece with its own task; other tasks stay below it |
| `minPartitions` above the number of ranges | large ranges are split, in proportion to their sizes |
| `maxRecordsPerPartition` | each range is split into equal pieces within the limit, each with its own task |

The built-in source creates one task per Kafka partition. But a Python task costs tens of milliseconds, so here a few
tasks read a topic with a hundred partitions and little data, and one reads a few hundred records: a second one would
read them some milliseconds sooner, and a query's first batch would wait for twice as many Python workers. The planning
process does not know the cluster's cores. A limit in bytes makes do without: enough tasks for any cluster if there is
much to read, each large enough for its cost.

Sizes are offsets, an upper bound of the records; bytes are estimated, so a task may read more than the limit.
Source: Spark's KafkaOffsetRangeCalculator, for the meaning of the two options.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from types import MappingProxyType

from spark_kafka_eos.kafka.partitions import OffsetRange, TopicPartition

Task = tuple[OffsetRange, ...]


def split(
    ranges: Sequence[OffsetRange],
    *,
    parallelism: int = 1,
    min_partitions: int | None = None,
    max_records_per_partition: int | None = None,
    max_bytes: int | None = None,
    bytes_per_offset: Mapping[TopicPartition, float] = MappingProxyType({}),
    target: int = 1_000_000,
    worth: int = 1_000,
) -> list[Task]:
    """Tasks that together read exactly `ranges` (one per partition), in their order; empty ranges are omitted.

    Without an option, there is a task for each core only if each has `worth` offsets; `target` is a task's maximum. A
    task has at most one piece of each partition. `max_bytes` applies to partitions in `bytes_per_offset`, unless
    `max_records_per_partition` is set.
    """
    pieces = [offset_range for offset_range in ranges if offset_range.size > 0]
    if max_records_per_partition:
        pieces = [
            piece
            for offset_range in pieces
            for piece in _cut(offset_range, -(-offset_range.size // max_records_per_partition))
        ]
        if min_partitions and len(pieces) < min_partitions:
            pieces = _cut_in_proportion(pieces, min_partitions)
        return [(piece,) for piece in pieces]
    shares = {
        piece: piece.size * bytes_per_offset.get(piece.partition, 0) / (max_bytes or math.inf) for piece in pieces
    }
    if min_partitions and len(pieces) < min_partitions:
        enough = max(min_partitions, math.ceil(sum(shares.values())))
        return [(piece,) for piece in _cut_in_proportion(pieces, enough)]
    if min_partitions:
        return _within(shares, max(parallelism, min_partitions), target)
    return _within(shares, min(parallelism, max(1, sum(piece.size for piece in pieces) // worth)), target)


def _within(shares: Mapping[OffsetRange, float], parallelism: int, target: int) -> list[Task]:
    """Tasks whose shares (bytes as a part of the limit) are at most about 1."""
    total = sum(offset_range.size for offset_range in shares)
    tasks: list[Task] = []
    for is_large, run in groupby(shares, key=lambda offset_range: shares[offset_range] > 1):
        ranges = list(run)
        if is_large:
            tasks += [
                (piece,)
                for offset_range in ranges
                for piece in _cut(offset_range, min(math.ceil(shares[offset_range]), offset_range.size))
            ]
        else:
            size, share = (
                sum(offset_range.size for offset_range in ranges),
                sum(shares[offset_range] for offset_range in ranges),
            )
            task_count = max(-(-parallelism * size // total), math.ceil(share), -(-size // target))
            tasks += _grouped(ranges, min(len(ranges), task_count))
    return tasks


def _cut_in_proportion(ranges: Sequence[OffsetRange], tasks: int) -> list[OffsetRange]:
    """About `tasks` pieces. Ranges that are too small to split count as one each and do not affect the others'
    shares.
    """
    total = sum(offset_range.size for offset_range in ranges)
    large = {offset_range for offset_range in ranges if _share(offset_range.size, total, tasks) > 1}
    total_large = sum(offset_range.size for offset_range in large)
    tasks_for_large = max(tasks - (len(ranges) - len(large)), 1)
    parts = [
        _share(offset_range.size, total_large, tasks_for_large) if offset_range in large else 1
        for offset_range in ranges
    ]
    return [piece for offset_range, count in zip(ranges, parts, strict=True) for piece in _cut(offset_range, count)]


def _share(size: int, total: int, tasks: int) -> int:
    """`tasks` times `size / total`, rounded half up, at least 1."""
    return max((2 * size * tasks + total) // (2 * total), 1)


def _cut(offset_range: OffsetRange, parts: int) -> list[OffsetRange]:
    """Pieces whose sizes differ by at most one offset, none empty."""
    bounds = [offset_range.start + offset_range.size * part // parts for part in range(parts + 1)]
    return [replace(offset_range, start=start, end=end) for start, end in pairwise(bounds) if start < end]


def _grouped(ranges: Sequence[OffsetRange], tasks: int) -> list[Task]:
    """`tasks` groups of adjacent ranges, none empty, as even as their order allows."""
    out: list[Task] = []
    unassigned, first = sum(offset_range.size for offset_range in ranges), 0
    for remaining in range(tasks, 0, -1):
        taken, end = ranges[first].size, first + 1
        # Add the next one if that is closer to an even share and leaves one for each remaining task.
        while (
            len(ranges) - end >= remaining and 2 * (taken * remaining - unassigned) + ranges[end].size * remaining <= 0
        ):
            taken, end = taken + ranges[end].size, end + 1
        out.append(tuple(ranges[first:end]))
        unassigned, first = unassigned - taken, end
    return out
