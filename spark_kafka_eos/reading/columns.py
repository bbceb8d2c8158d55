"""The source's columns, declared once for Arrow (`reading.records`, `reading.ranges`) and Spark (`spark.schema`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

ColumnType = Literal["binary", "string", "int32", "int64", "timestamp", "headers"]

# Names, order and types of the built-in source (Spark's Kafka integration guide).
_COLUMNS: Mapping[str, ColumnType] = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int32",
    "offset": "int64",
    "timestamp": "timestamp",
    "timestampType": "int32",
}

# With rows=offsetRanges. The first four names are those of Spark's `OffsetRange` (its Kafka integration for DStreams).
RANGE_COLUMNS: Mapping[str, ColumnType] = {
    "topic": "string",
    "partition": "int32",
    "fromOffset": "int64",
    "untilOffset": "int64",
    "topicId": "string",
    "leaderEpoch": "int32",
}


def source_columns(*, include_headers: bool) -> Mapping[str, ColumnType]:
    """The columns of a row per record. `timestampType`: 0 if the producer set the timestamp, 1 if the broker did,
    -1 if there is none."""
    return {**_COLUMNS, "headers": "headers"} if include_headers else _COLUMNS
