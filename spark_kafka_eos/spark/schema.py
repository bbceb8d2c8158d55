"""The source's columns: names, order and types of the built-in one (Spark's Kafka integration guide).

All may be null, as there, although only keys, values and headers ever are. NOT NULL would save executors 11 % of their
CPU (rows of 100 bytes), but a query with state could not go back to the built-in source: Spark takes NOT NULL where the
state was nullable, and not the other way round. A user's schema(…) may say it.

A reader's schema(…) may choose among them. Spark tells a Python source nothing of the columns a query uses, so each
that nobody wants is decoded, sent to the JVM and copied there into every row; and only the user can say so.
"""

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

from spark_kafka_eos.errors import ConfigurationError

_NOT_IN_ALL = ("key", "value", "headers")
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


def selected(schema: StructType, *, include_headers: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of the columns that `schema` chooses of the source's, in its order, and of those it says NOT NULL of.

    None and none if it is all of them as they are. Raises ConfigurationError for a column that is not the source's, by
    name or type, or comes twice, and for NOT NULL where null may come.
    """
    source = source_schema(include_headers=include_headers)
    if schema == source:
        return (), ()
    known = {field.name: field.dataType for field in source}
    wrong = [field.simpleString() for field in schema if known.get(field.name) != field.dataType]
    if wrong or not schema.names or len(set(schema.names)) < len(schema.names):
        raise ConfigurationError(
            "schema",
            f"may choose among the columns {source.simpleString()}, each once: not {schema.simpleString()}"
            + (f" ({', '.join(wrong)})" if wrong else ""),
            action="Name the columns as they are, or leave schema(…) out; cast and rename with select.",
        )
    required = tuple(field.name for field in schema if not field.nullable)
    if absent := [name for name in required if name in _NOT_IN_ALL]:
        raise ConfigurationError(
            "schema",
            f"says NOT NULL of {' and '.join(absent)}, which a record need not have",
            action="Leave NOT NULL out there, and leave such rows out with where.",
        )
    return tuple(schema.names), required
