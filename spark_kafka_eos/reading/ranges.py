"""Offset ranges as rows (the option `rows=offsetRanges`), and back."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence

import pyarrow as pa

from spark_kafka_eos.kafka.partitions import OffsetRange, TopicPartition
from spark_kafka_eos.reading.columns import RANGE_COLUMNS
from spark_kafka_eos.reading.records import TYPES

SCHEMA = pa.schema([(name, TYPES[kind]) for name, kind in RANGE_COLUMNS.items()])


def as_rows(ranges: Sequence[OffsetRange]) -> pa.RecordBatch:
    """A row for each range, with the columns of `SCHEMA`; `topicId` is null if it is unknown."""
    values = [
        (
            *offset_range.partition,
            offset_range.start,
            offset_range.end,
            offset_range.topic_id and str(offset_range.topic_id),
            offset_range.leader_epoch,
        )
        for offset_range in ranges
    ]
    return pa.RecordBatch.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in values], SCHEMA)


def from_rows(batches: Iterable[pa.RecordBatch]) -> list[OffsetRange]:
    """Inverse of `as_rows`."""
    return [
        OffsetRange(
            partition=TopicPartition(row["topic"], row["partition"]),
            start=row["fromOffset"],
            end=row["untilOffset"],
            topic_id=row["topicId"] and uuid.UUID(row["topicId"]),
            leader_epoch=row["leaderEpoch"],
        )
        for batch in batches
        for row in batch.to_pylist()
    ]
