"""Whether records lie, or lay, in ranges of offsets, or only transaction markers and what was aborted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from spark_kafka_eos.errors import DataLoss, UnknownTopic
from spark_kafka_eos.kafka.fetching.fetch import Fetcher
from spark_kafka_eos.kafka.fetching.fetch_steps import Fetched
from spark_kafka_eos.kafka.fetching.visibility import visible_batches
from spark_kafka_eos.kafka.partitions import OffsetRange
from spark_kafka_eos.kafka.protocol.cluster import Cluster


def has_records(cluster: Cluster, ranges: Sequence[OffsetRange]) -> bool:
    """Whether a read_committed reader finds a record there, or may have found one earlier: unless markers and aborted
    records fill the ranges, something was deleted, or removed by compaction.

    Reads no further than to the first record. Raises AuthorizationFailed, CorruptRecordBatch, BrokerError,
    BrokerUnreachable.
    """
    range_of = {offset_range.partition: offset_range for offset_range in ranges}
    try:
        for part in Fetcher(cluster).fetch(ranges):
            offset_range = range_of[part.partition]
            if (without := _without_record(part, offset_range)) is None:
                return True
            range_of[part.partition] = replace(offset_range, start=without)
    except (DataLoss, UnknownTopic):
        return True
    return any(offset_range.start < offset_range.end for offset_range in range_of.values())


def _without_record(part: Fetched, offset_range: OffsetRange) -> int | None:
    """Up to which offset the range has no record; None if it has one, or lacks an offset."""
    headers, is_visible = visible_batches(part)
    first, ends = headers["base_offset"], headers["base_offset"] + headers["last_offset_delta"] + 1
    before = np.maximum(np.append(offset_range.start, ends)[:-1], offset_range.start)  # where each would begin
    lacks = (first > before) & (before < offset_range.end)
    shows = is_visible & (ends > offset_range.start) & (first < offset_range.end)
    return None if np.any(lacks | shows) else max(offset_range.start, *ends.tolist())
