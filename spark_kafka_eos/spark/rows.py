"""Converts the user's DataFrame to the rows of the sink: the built-in sink's columns, plus `timestamp`.

`value` (string or binary) is required; `key` (string or binary), `topic` (string), `partition` (int), `headers`
(array<struct<key:string,value:binary>>) and `timestamp` are optional. Other columns are ignored, as in the built-in
sink. The option `topic` overrides the column.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    NullType,
    StringType,
    StructType,
    TimestampType,
)

from spark_kafka_eos.errors import InvalidSchema
from spark_kafka_eos.spark.schema import HEADERS

if TYPE_CHECKING:
    import pyarrow as pa

_ACCEPTED: dict[str, tuple[type[DataType], ...]] = {
    "key": (BinaryType, StringType, NullType),
    "value": (BinaryType, StringType, NullType),
    "topic": (StringType,),
    "partition": (IntegerType,),
    "headers": (ArrayType,),
    "timestamp": (TimestampType,),
}


def check_schema(schema: StructType, *, topic: str | None) -> list[str]:
    """The sink columns in `schema`, in order. Raises InvalidSchema for a missing column or a wrong type."""
    present = {field.name.lower(): field for field in schema.fields if field.name.lower() in _ACCEPTED}
    if "value" not in present:
        raise InvalidSchema(
            f"the DataFrame has no column 'value' (its columns: {', '.join(schema.names) or 'none'})",
            action="Rename the column with the record's value to 'value'.",
        )
    if topic is not None:
        present.pop("topic", None)
    elif "topic" not in present:
        raise InvalidSchema(
            "neither the option 'topic' nor a column 'topic' is set",
            action="Set the option 'topic', or add a column 'topic' to the DataFrame.",
        )
    for name, field in present.items():
        wrong = not isinstance(field.dataType, _ACCEPTED[name])
        if wrong or (name == "headers" and not _is_headers(field.dataType)):
            wanted = (
                HEADERS.simpleString()
                if name == "headers"
                else " or ".join(t().simpleString() for t in _ACCEPTED[name] if t is not NullType)
            )
            raise InvalidSchema(
                f"column '{name}' has type {field.dataType.simpleString()}, but the sink accepts {wanted}",
                action=f"Cast the column, for example df.withColumn('{name}', …).",
            )
    return [name for name in _ACCEPTED if name in present]


def sink_rows(frame: DataFrame, *, topic: str | None, constant_topic: bool = False) -> DataFrame:
    """The rows to encode, with the types of `writing.blocks.ROWS`. `constant_topic` adds `topic` as a column."""
    names = check_schema(frame.schema, topic=topic)
    if not constant_topic and _is_ready(frame.schema, names):
        return frame  # a projection costs Spark some milliseconds of planning per micro-batch
    # As SQL, because a Column costs several JVM calls and a stack inspection per micro-batch.
    rows = frame.selectExpr(*([] if "key" in names else ["CAST(NULL AS BINARY) AS key"]), *map(_expression, names))
    return rows.withColumn("topic", F.lit(topic)) if constant_topic and topic is not None else rows


def arrow_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Convert the batches that Spark passes to Python to exactly the types that encoding expects, without copying where
    possible.
    """
    import pyarrow as pa

    from spark_kafka_eos.writing.blocks import ROWS

    for batch in batches:
        columns, names = [], []
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            wanted = ROWS.get(name.lower())
            if wanted is None:
                continue
            columns.append(_as_sent(column, wanted))
            names.append(name.lower())
        if "key" not in names:
            columns.append(pa.nulls(batch.num_rows, ROWS["key"]))
            names.append("key")
        yield pa.RecordBatch.from_arrays(columns, names=names)


def _as_sent(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    import pyarrow as pa

    if pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(wanted)
    return column if column.type == wanted else column.cast(wanted)


def _expression(name: str) -> str:
    if name in ("key", "value"):
        return f"CAST(`{name}` AS BINARY) AS `{name}`"
    return f"unix_millis(`{name}`) AS `{name}`" if name == "timestamp" else f"`{name}`"


def _is_ready(schema: StructType, names: list[str]) -> bool:
    """Whether the DataFrame has exactly the columns that `_expression` would produce."""
    types = {field.name: field.dataType for field in schema.fields}
    if "key" not in types or "timestamp" in types or sorted(schema.names) != sorted(names):
        return False
    return isinstance(types["key"], BinaryType) and isinstance(types["value"], BinaryType)


def _is_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields = kind.elementType.fields
    return (
        [field.name for field in fields] == ["key", "value"]
        and isinstance(fields[0].dataType, StringType)
        and isinstance(fields[1].dataType, BinaryType)
    )
