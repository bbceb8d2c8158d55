"""Samples record sizes with small fetches at the offsets that `core.byte_limit` selects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spark_kafka_eos.broker.cluster import Cluster
from spark_kafka_eos.broker.fetch import Fetcher
from spark_kafka_eos.core.byte_limit import Sample, ends_within, look_further, sample
from spark_kafka_eos.model import IsolationLevel, OffsetRange, TopicPartition
from spark_kafka_eos.wire.record_batch import scan

# The Java producer's default batch.size. Most record batches are not larger, so one request covers all partitions.
_BYTES = 16_384


def ends_by_weight(
    cluster: Cluster, limit: int, ranges: Sequence[OffsetRange], isolation_level: IsolationLevel
) -> dict[TopicPartition, int]:
    """Where each range (not empty, below the last stable offset) must end for about `limit` bytes in total.

    Samples are taken at each start, then inside the resulting range, so that growing records are noticed. Raises what
    `Fetcher.fetch` raises.
    """
    samples = {
        tp: [taken] for tp, taken in _look(cluster, {r.partition: r.start for r in ranges}, isolation_level).items()
    }
    ends = ends_within(limit, ranges, samples)
    ranges = [OffsetRange(partition=r.partition, start=r.start, end=ends[r.partition]) for r in ranges]
    further = {one.partition: look_further(one, samples[one.partition][0]) for one in ranges}
    for number in range(max(map(len, further.values()), default=0)):
        at = {tp: offsets[number] for tp, offsets in further.items() if number < len(offsets)}
        for tp, taken in _look(cluster, at, isolation_level).items():
            samples[tp].append(taken)
    return ends_within(limit, ranges, samples)


def bytes_per_offset(
    cluster: Cluster, ranges: Sequence[OffsetRange], isolation: IsolationLevel
) -> dict[TopicPartition, float]:
    """The bytes per offset at the start of each range (not empty, below the last stable offset).

    Raises what `Fetcher.fetch` raises.
    """
    samples = _look(cluster, {one.partition: one.start for one in ranges}, isolation)
    return {partition: sample.bytes_per_offset for partition, sample in samples.items()}


def _look(
    cluster: Cluster, at: Mapping[TopicPartition, int], isolation_level: IsolationLevel
) -> dict[TopicPartition, Sample]:
    fetcher = Fetcher(cluster, isolation_level=isolation_level, max_partition_fetch_bytes=_BYTES)
    wanted = [OffsetRange(partition=tp, start=offset, end=offset + 1) for tp, offset in at.items()]
    return {part.partition: sample(at[part.partition], list(scan(part.buffer))) for part in fetcher.fetch(wanted)}
