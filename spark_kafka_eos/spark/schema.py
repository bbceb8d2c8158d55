"""The source's columns (`reading.columns`) as Spark's, and a user's choice among them.

All columns are nullable, as in the built-in source, although only keys, values and headers can be null. NOT NULL would
save executors 11 % of their CPU (rows of 100 bytes), but a stateful query could not return to the built-in source:
Spark accepts NOT NULL where the state was nullable, but not vice versa. A user's schema(…) may declare NOT NULL.

A reader's schema(…) may select columns. Spark does not pass a Python source the columns that a query uses, so unused
ones are decoded, sent to the JVM and copied into every row unless the user selects the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from spark_kafka_eos.errors import ConfigurationError
from spark_kafka_eos.reading.columns import RANGE_COLUMNS, ColumnType, source_columns

if TYPE_CHECKING:
    from spark_kafka_eos.options import SourceOptions

_NOT_IN_ALL = ("key", "value", "headers")
HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
_TYPES: Mapping[ColumnType, DataType] = {
    "binary": BinaryType(),
    "string": StringType(),
    "int32": IntegerType(),
    "int64": LongType(),
    "timestamp": TimestampType(),
    "headers": HEADERS,
}


def source_schema(*, include_headers: bool) -> StructType:
    """`source_columns` as Spark's."""
    return _schema(source_columns(include_headers=include_headers))


def ranges_schema() -> StructType:
    """The source's columns with rows=offsetRanges."""
    return _schema(RANGE_COLUMNS)


def _schema(kinds: Mapping[str, ColumnType]) -> StructType:
    return StructType([StructField(name, _TYPES[kind]) for name, kind in kinds.items()])


def check_ranges_schema(schema: StructType) -> None:
    """Raise ConfigurationError unless `schema` is the one of rows=offsetRanges."""
    if schema != ranges_schema():
        raise ConfigurationError(
            "schema",
            f"cannot select columns of offset ranges, which are {ranges_schema().simpleString()}",
            action="Omit schema(…), or rows=offsetRanges to read records.",
        )


def selecting(options: SourceOptions, schema: StructType) -> SourceOptions:
    """The options, with the columns that `schema` selects. Raises what `selected` raises."""
    columns, required = selected(schema, include_headers=options.include_headers)
    return replace(options, columns=columns, required=required)


def selected(schema: StructType, *, include_headers: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of the columns that `schema` selects, in its order, and of those it declares NOT NULL.

    Both are empty if `schema` is the source's own. Raises ConfigurationError for a column whose name or type the source
    does not have, for a duplicate, and for NOT NULL on a column that can be null.
    """
    source = source_schema(include_headers=include_headers)
    if schema == source:
        return (), ()
    available = {field.name: field.dataType for field in source}
    wrong = [field.simpleString() for field in schema if available.get(field.name) != field.dataType]
    if wrong or not schema.names or len(set(schema.names)) < len(schema.names):
        raise ConfigurationError(
            "schema",
            f"may only select columns of {source.simpleString()}, each once, but is {schema.simpleString()}"
            + (f" ({', '.join(wrong)})" if wrong else ""),
            action="Use these names and types, or omit schema(…); cast and rename with select.",
        )
    required = tuple(field.name for field in schema if not field.nullable)
    if absent := [name for name in required if name in _NOT_IN_ALL]:
        raise ConfigurationError(
            "schema",
            f"declares {' and '.join(absent)} NOT NULL, which can be null in a record",
            action="Remove NOT NULL, and filter out null rows with where.",
        )
    return tuple(schema.names), required
