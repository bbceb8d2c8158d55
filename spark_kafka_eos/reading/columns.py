"""The source's columns, declared once: `reading.records` makes them as Arrow's, `spark.schema` tells Spark of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Kind = Literal["binary", "string", "int32", "int64", "timestamp", "headers"]

# Names, order and types of the built-in source (Spark's Kafka integration guide).
_COLUMNS: Mapping[str, Kind] = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int32",
    "offset": "int64",
    "timestamp": "timestamp",
    "timestampType": "int32",
}


def source_columns(*, include_headers: bool) -> Mapping[str, Kind]:
    """A row per record; `headers` is there on request. `timestampType`: 0 the producer set the time, 1 the broker."""
    return {**_COLUMNS, "headers": "headers"} if include_headers else _COLUMNS
