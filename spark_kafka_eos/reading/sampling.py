"""Samples record sizes with small fetches at the offsets that `reading.byte_limit` selects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spark_kafka_eos.kafka.fetching.fetch import Fetcher
from spark_kafka_eos.kafka.fetching.fetch_sizes import Estimate, SizeEstimates
from spark_kafka_eos.kafka.fetching.fetch_steps import Fetched
from spark_kafka_eos.kafka.partitions import IsolationLevel, OffsetRange, TopicPartition
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.wire.record_batch import scan
from spark_kafka_eos.reading.byte_limit import (
    Sample,
    ends_within,
    like_the_others,
    look_further,
    representatives,
    sample,
)

# Of a partition: the Java producer's default batch.size, which has several record batches of most topics. Of all
# partitions together, as long as each has some headers.
_BYTES, _FEWEST_BYTES, _ALL_BYTES = 16_384, 1_024, 8 << 20
_MOST_SAMPLES = 500  # for an estimate that only divides work among tasks


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
    further = {
        offset_range.partition: look_further(offset_range, samples[offset_range.partition][0])
        for offset_range in ranges
    }
    for number in range(max(map(len, further.values()), default=0)):
        at = {tp: offsets[number] for tp, offsets in further.items() if number < len(offsets)}
        for tp, taken in _look(cluster, at, isolation_level).items():
            samples[tp].append(taken)
    return ends_within(limit, ranges, samples)


def bytes_per_offset(
    cluster: Cluster, ranges: Sequence[OffsetRange], isolation: IsolationLevel
) -> dict[TopicPartition, float]:
    """The bytes per offset at the start of each range (not empty, below the last stable offset). Of thousands, only
    some are looked at, and the others are taken to be like them.

    Raises what `Fetcher.fetch` raises.
    """
    samples = _look(
        cluster,
        {offset_range.partition: offset_range.start for offset_range in representatives(ranges, _MOST_SAMPLES)},
        isolation,
    )
    return like_the_others({partition: sample.bytes_per_offset for partition, sample in samples.items()}, ranges)


def _look(
    cluster: Cluster, at: Mapping[TopicPartition, int], isolation_level: IsolationLevel
) -> dict[TopicPartition, Sample]:
    # Nothing comes of offsets that have no records, because of compaction.
    nothing = {tp: Sample(offset=offset, until=offset + 1, bytes_per_offset=0.0) for tp, offset in at.items()}
    return nothing | {
        tp: sample(at[tp], list(scan(part.buffer, whole=False)))
        for tp, part in first_batches(cluster, at, isolation_level).items()
    }


def first_batches(
    cluster: Cluster, at: Mapping[TopicPartition, int], isolation_level: IsolationLevel
) -> dict[TopicPartition, Fetched]:
    """The record batches at these offsets, which may be cut off: only the headers are whole. A partition may be missing
    if its log has nothing there.

    Raises what `Fetcher.fetch` raises.
    """
    if not at:
        return {}
    partition_bytes = max(_FEWEST_BYTES, min(_BYTES, _ALL_BYTES // len(at)))
    # All come at once. Of record batches that are larger than `partition_bytes`, a broker returns one whole and no part
    # of others (KIP-74), so these are asked for again with more.
    batch = partition_bytes * 32 // 33  # with the surplus of `Estimate.asked_for`, that is `partition_bytes`
    topics = dict.fromkeys((tp.topic for tp in at), Estimate(bytes_per_offset=0.0, batch_bytes=batch))
    estimates = SizeEstimates(first_byte_budget=2 * _ALL_BYTES, by_topic=topics)
    fetcher = Fetcher(cluster, isolation_level=isolation_level, headers_only=True, estimates=estimates)
    offset_ranges = [OffsetRange(partition=tp, start=offset, end=offset + 1) for tp, offset in at.items()]
    return {part.partition: part for part in fetcher.fetch(offset_ranges)}
