"""Whether records lie in ranges of offsets, or only transaction markers and what was aborted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spark_kafka_eos.errors import DataLoss, UnknownTopic
from spark_kafka_eos.kafka.fetching.fetch import Fetcher
from spark_kafka_eos.kafka.fetching.fetch_steps import Fetched
from spark_kafka_eos.kafka.fetching.visibility import visible_batches
from spark_kafka_eos.kafka.partitions import OffsetRange
from spark_kafka_eos.kafka.protocol.cluster import Cluster


def has_records(cluster: Cluster, ranges: Sequence[OffsetRange]) -> bool:
    """Whether a read_committed reader finds a record there; also if that is unknown, because offsets were deleted.

    Reads no further than to the first record. Raises AuthorizationFailed, CorruptRecordBatch, BrokerError,
    BrokerUnreachable.
    """
    range_of = {offset_range.partition: offset_range for offset_range in ranges}
    try:
        return any(_shows_any(part, range_of[part.partition]) for part in Fetcher(cluster).fetch(ranges))
    except (DataLoss, UnknownTopic):
        return True


def _shows_any(part: Fetched, offset_range: OffsetRange) -> bool:
    headers, is_visible = visible_batches(part)
    visible = headers[is_visible]
    ends = visible["base_offset"] + visible["last_offset_delta"] + 1
    return bool(np.any((ends > offset_range.start) & (visible["base_offset"] < offset_range.end)))
