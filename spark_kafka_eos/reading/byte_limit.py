"""Limits the size of a micro-batch (`maxBytesPerTrigger`). Pure.

Kafka does not report the size of an offset range. So record batches are sampled, and the bytes per offset between two
samples are taken as their mean: if records grow in between, the estimate is at worst half of the actual size. Sizes are
those of Kafka: whole record batches as they are fetched, compressed, including those of aborted transactions.

The limit is divided in proportion to the size of each partition's range, so that all partitions advance evenly. Each
advances by at least one offset, because a record larger than its share would never be read otherwise.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from spark_kafka_eos.kafka.partitions import OffsetRange, TopicPartition
from spark_kafka_eos.kafka.wire.batch_header import RecordBatchHeader

_SAMPLES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The bytes per offset from `offset` on: the average of the record batches up to `until`."""

    offset: int
    until: int
    bytes_per_offset: float


def sample(offset: int, batches: Sequence[RecordBatchHeader]) -> Sample:
    """The sample from the record batches read at `offset`, in order; the first may start before or after it."""
    until = batches[-1].next_offset
    covered = until - min(offset, batches[0].base_offset)
    return Sample(offset=offset, until=until, bytes_per_offset=sum(batch.size for batch in batches) / covered)


def representatives(ranges: Sequence[OffsetRange], most: int) -> list[OffsetRange]:
    """At most this number of the ranges: the largest ones of each topic, of as many topics as possible."""
    if len(ranges) <= most:
        return list(ranges)
    by_topic: dict[str, list[OffsetRange]] = {}
    for offset_range in sorted(ranges, key=lambda offset_range: offset_range.size, reverse=True):
        by_topic.setdefault(offset_range.partition.topic, []).append(offset_range)
    ranked = ((rank, offset_range) for theirs in by_topic.values() for rank, offset_range in enumerate(theirs))
    return [
        offset_range
        for _, offset_range in heapq.nsmallest(most, ranked, key=lambda ranked: (ranked[0], -ranked[1].size))
    ]


def like_the_others(
    measured: Mapping[TopicPartition, float], ranges: Sequence[OffsetRange]
) -> dict[TopicPartition, float]:
    """The bytes per offset of each range: as `measured`, or else the mean of its topic, or of all."""
    sums: dict[str, tuple[float, int]] = {}
    for offset_range in ranges:
        if offset_range.partition in measured:
            size, count = sums.get(offset_range.partition.topic, (0.0, 0))
            sums[offset_range.partition.topic] = (
                size + measured[offset_range.partition] * offset_range.size,
                count + offset_range.size,
            )
    size, count = (sum(column) for column in zip((0.0, 0), *sums.values(), strict=True))
    means = {topic: size / count for topic, (size, count) in sums.items()}
    return {
        offset_range.partition: measured.get(
            offset_range.partition, means.get(offset_range.partition.topic, size / max(count, 1))
        )
        for offset_range in ranges
    }


def look_further(offset_range: OffsetRange, first: Sample) -> list[int]:
    """Evenly spaced offsets of the range, up to its last, for more samples; none if the first sample covers it."""
    beyond = offset_range.end - max(first.until, offset_range.start)
    if beyond <= 0:
        return []
    return sorted(
        {offset_range.end - beyond + max(beyond * number // _SAMPLES - 1, 0) for number in range(1, _SAMPLES + 1)}
    )


def ends_within(
    limit: int, ranges: Sequence[OffsetRange], samples: Mapping[TopicPartition, Sequence[Sample]]
) -> dict[TopicPartition, int]:
    """Where each range must end so that all together have at most `limit` bytes, estimated from the samples.

    Ranges are not empty, one per partition; its samples are inside it and in order, the first one at its start.
    """
    weights = {
        offset_range.partition: _weight(offset_range, samples[offset_range.partition]) for offset_range in ranges
    }
    total = sum(weights.values())
    if total <= limit:
        return {offset_range.partition: offset_range.end for offset_range in ranges}
    return {
        offset_range.partition: _reach(
            offset_range, samples[offset_range.partition], limit * weights[offset_range.partition] / total
        )
        for offset_range in ranges
    }


def _pieces(offset_range: OffsetRange, samples: Sequence[Sample]) -> list[tuple[int, int, float]]:
    """Start, end and bytes per offset of the pieces between samples and after the last one."""
    bounds = [offset_range.start, *(taken.offset for taken in samples[1:]), offset_range.end]
    sizes = [taken.bytes_per_offset for taken in samples]
    means = [(here + there) / 2 for here, there in pairwise(sizes)]
    return [(start, end, mean) for (start, end), mean in zip(pairwise(bounds), [*means, sizes[-1]], strict=True)]


def _weight(offset_range: OffsetRange, samples: Sequence[Sample]) -> float:
    return sum((end - start) * bytes_per_offset for start, end, bytes_per_offset in _pieces(offset_range, samples))


def _reach(offset_range: OffsetRange, samples: Sequence[Sample], share: float) -> int:
    """The end up to which the range has `share` bytes; at least one offset."""
    for start, end, bytes_per_offset in _pieces(offset_range, samples):
        weight = (end - start) * bytes_per_offset
        if weight > share:
            return max(start + int(share / bytes_per_offset), offset_range.start + 1)
        share -= weight
    return offset_range.end
