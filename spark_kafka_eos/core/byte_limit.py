"""How far a micro-batch goes within a number of bytes (`maxBytesPerTrigger`).

Kafka tells no range's size. So record batches are looked at here and there, and what lies between two samples is taken
to weigh their mean, offset by offset: where records grow in between, that is half of the truth at worst. Sizes are
Kafka's: whole record batches as they are fetched, compressed, those of aborted transactions included.

The limit is shared out by what each partition's range weighs, so that all of them advance alike; but each goes on by
one offset at least, or a record larger than its share would never be read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from spark_kafka_eos.model import OffsetRange, RecordBatchHeader, TopicPartition

_SAMPLES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What an offset takes from `offset` on, in bytes: the average of the record batches up to `until`."""

    offset: int
    until: int
    bytes_per_offset: float


def sample(offset: int, batches: Sequence[RecordBatchHeader]) -> Sample:
    """What was found by reading from `offset`: one batch or more, in order; the first may begin before or after it."""
    until = batches[-1].next_offset
    covered = until - min(offset, batches[0].base_offset)
    return Sample(offset=offset, until=until, bytes_per_offset=sum(batch.size for batch in batches) / covered)


def look_further(one: OffsetRange, first: Sample) -> list[int]:
    """Offsets of the range, evenly spaced up to its last, for more samples; none where the first shows all of it."""
    beyond = one.end - max(first.until, one.start)
    if beyond <= 0:
        return []
    return sorted({one.end - beyond + max(beyond * number // _SAMPLES - 1, 0) for number in range(1, _SAMPLES + 1)})


def ends_within(
    limit: int, ranges: Sequence[OffsetRange], samples: Mapping[TopicPartition, Sequence[Sample]]
) -> dict[TopicPartition, int]:
    """Where each range ends if all together are to weigh `limit` bytes at most, by what the samples tell.

    Ranges are not empty, one of a partition; its samples are inside of it and in order, the first at its start.
    """
    weights = {one.partition: _weight(one, samples[one.partition]) for one in ranges}
    total = sum(weights.values())
    if total <= limit:
        return {one.partition: one.end for one in ranges}
    return {
        one.partition: _reach(one, samples[one.partition], limit * weights[one.partition] / total) for one in ranges
    }


def _pieces(one: OffsetRange, samples: Sequence[Sample]) -> list[tuple[int, int, float]]:
    """Start, end and bytes per offset of what lies between samples, and of what follows the last."""
    bounds = [one.start, *(found.offset for found in samples[1:]), one.end]
    each = [found.bytes_per_offset for found in samples]
    means = [(here + there) / 2 for here, there in pairwise(each)]
    return [(start, end, mean) for (start, end), mean in zip(pairwise(bounds), [*means, each[-1]], strict=True)]


def _weight(one: OffsetRange, samples: Sequence[Sample]) -> float:
    return sum((end - start) * each for start, end, each in _pieces(one, samples))


def _reach(one: OffsetRange, samples: Sequence[Sample], share: float) -> int:
    """The end up to which the range weighs `share`; one offset at least."""
    for start, end, each in _pieces(one, samples):
        weight = (end - start) * each
        if weight > share:
            return max(start + int(share / each), one.start + 1)
        share -= weight
    return one.end
