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
    wanted = {each.partition: each for each in ranges}
    try:
        return any(_shows_any(part, wanted[part.partition]) for part in Fetcher(cluster).fetch(ranges))
    except (DataLoss, UnknownTopic):
        return True


def _shows_any(part: Fetched, wanted: OffsetRange) -> bool:
    headers, is_visible = visible_batches(part)
    shown = headers[is_visible]
    ends = shown["base_offset"] + shown["last_offset_delta"] + 1
    return bool(np.any((ends > wanted.start) & (shown["base_offset"] < wanted.end)))
