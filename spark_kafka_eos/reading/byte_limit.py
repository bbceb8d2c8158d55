"""Limits the size of a micro-batch (`maxBytesPerTrigger`).

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
    for one in sorted(ranges, key=lambda one: one.size, reverse=True):
        by_topic.setdefault(one.partition.topic, []).append(one)
    ranked = ((rank, one) for theirs in by_topic.values() for rank, one in enumerate(theirs))
    return [one for _, one in heapq.nsmallest(most, ranked, key=lambda ranked: (ranked[0], -ranked[1].size))]


def like_the_others(
    known: Mapping[TopicPartition, float], ranges: Sequence[OffsetRange]
) -> dict[TopicPartition, float]:
    """The bytes per offset of each range: as `known`, or else the mean of its topic, or of all."""
    sums: dict[str, tuple[float, int]] = {}
    for one in ranges:
        if one.partition in known:
            size, count = sums.get(one.partition.topic, (0.0, 0))
            sums[one.partition.topic] = size + known[one.partition] * one.size, count + one.size
    size, count = (sum(column) for column in zip((0.0, 0), *sums.values(), strict=True))
    means = {topic: size / count for topic, (size, count) in sums.items()}
    return {
        one.partition: known.get(one.partition, means.get(one.partition.topic, size / max(count, 1))) for one in ranges
    }


def look_further(one: OffsetRange, first: Sample) -> list[int]:
    """Evenly spaced offsets of the range, up to its last, for more samples; none if the first sample covers it."""
    beyond = one.end - max(first.until, one.start)
    if beyond <= 0:
        return []
    return sorted({one.end - beyond + max(beyond * number // _SAMPLES - 1, 0) for number in range(1, _SAMPLES + 1)})


def ends_within(
    limit: int, ranges: Sequence[OffsetRange], samples: Mapping[TopicPartition, Sequence[Sample]]
) -> dict[TopicPartition, int]:
    """Where each range must end so that all together have at most `limit` bytes, estimated from the samples.

    Ranges are not empty, one per partition; its samples are inside it and in order, the first one at its start.
    """
    weights = {one.partition: _weight(one, samples[one.partition]) for one in ranges}
    total = sum(weights.values())
    if total <= limit:
        return {one.partition: one.end for one in ranges}
    return {
        one.partition: _reach(one, samples[one.partition], limit * weights[one.partition] / total) for one in ranges
    }


def _pieces(one: OffsetRange, samples: Sequence[Sample]) -> list[tuple[int, int, float]]:
    """Start, end and bytes per offset of the pieces between samples and after the last one."""
    bounds = [one.start, *(taken.offset for taken in samples[1:]), one.end]
    each = [taken.bytes_per_offset for taken in samples]
    means = [(here + there) / 2 for here, there in pairwise(each)]
    return [(start, end, mean) for (start, end), mean in zip(pairwise(bounds), [*means, each[-1]], strict=True)]


def _weight(one: OffsetRange, samples: Sequence[Sample]) -> float:
    return sum((end - start) * each for start, end, each in _pieces(one, samples))


def _reach(one: OffsetRange, samples: Sequence[Sample], share: float) -> int:
    """The end up to which the range has `share` bytes; at least one offset."""
    for start, end, each in _pieces(one, samples):
        weight = (end - start) * each
        if weight > share:
            return max(start + int(share / each), one.start + 1)
        share -= weight
    return one.end
