"""The source's columns: names, order and types of the built-in one (Spark's Kafka integration guide)."""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

_HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))


def source_schema(*, include_headers: bool) -> StructType:
    """A row per record; `headers` is there on request. `timestampType`: 0 the producer set the time, 1 the broker."""
    fields = [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
    return StructType([*fields, StructField("headers", _HEADERS)] if include_headers else fields)
