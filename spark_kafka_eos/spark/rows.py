"""Converts the user's DataFrame to the rows of the sink: the built-in sink's columns, plus those of this package.

`value` (string or binary) is required; `key` (string or binary), `topic` (string), `partition` (int), `headers`
(array<struct<key:string,value:binary>>) and `timestamp` are optional. Other columns are ignored, as in the built-in
sink. The option `topic` overrides the column.

With the option `deadLetterTopic`, there are also `error`, which makes a row a dead letter, and `source`, which says
where it was read. Without it, they are other columns: any DataFrame may have a `source`. But a row with an `error` of
that type is still an error, because it was not meant for the output.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
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

from spark_kafka_eos.errors import InvalidSchema
from spark_kafka_eos.spark.schema import HEADERS

if TYPE_CHECKING:
    import pyarrow as pa

ERROR = StructType(
    [StructField("cause", StringType()), StructField("message", StringType()), StructField("schema_id", IntegerType())]
)
SOURCE = StructType(
    [
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
    ]
)

SCHEMA_ID = "kafka_eos.schema_id"  # in the metadata of a column that `to_confluent` has encoded

_ACCEPTED: dict[str, tuple[type[DataType], ...]] = {
    "key": (BinaryType, StringType),
    "value": (BinaryType, StringType),
    "topic": (StringType,),
    "partition": (IntegerType,),
    "headers": (ArrayType,),
    "timestamp": (TimestampType,),
    "error": (StructType,),
    "source": (StructType,),
}
_NESTED: dict[str, DataType] = {"headers": HEADERS, "error": ERROR, "source": SOURCE}


def check_schema(schema: StructType, *, topic: str | None, dead_letters: bool = False) -> list[str]:
    """The sink columns in `schema`, in order; with `dead_letters`, there may be rows for that topic. Raises
    InvalidSchema for a missing column, two of one name, or a wrong type.
    """
    present = {field.name.lower(): field for field in schema.fields if field.name.lower() in _ACCEPTED}
    if not dead_letters:
        present.pop("source", None)
        if "error" in present and not _same(present["error"].dataType, ERROR):
            present.pop("error")
    if "value" not in present:
        raise InvalidSchema(
            f"there is no column 'value' (the columns: {', '.join(schema.names) or 'none'})",
            action="Rename the column with the record's value to 'value'.",
        )
    if topic is not None:
        present.pop("topic", None)
    elif "topic" not in present and not (dead_letters and "error" in present):
        raise InvalidSchema(
            "neither the option 'topic' nor a column 'topic' is set",
            action="Set the option 'topic', or add a column 'topic'.",
        )
    spelled = Counter(field.name.lower() for field in schema.fields)
    for name, field in present.items():
        if spelled[name] > 1:
            raise InvalidSchema(
                f"there are {spelled[name]} columns '{name}', whatever their case", action="Rename or drop the others."
            )
        check_type(name, field.dataType)
    return [name for name in _ACCEPTED if name in present]


def check_type(name: str, kind: DataType) -> None:
    """Raise InvalidSchema unless the sink's column `name` may be of this type."""
    nested = _NESTED.get(name)
    if not (_same(kind, nested) if nested else isinstance(kind, _ACCEPTED[name])):
        accepted = nested.simpleString() if nested else " or ".join(t().simpleString() for t in _ACCEPTED[name])
        raise InvalidSchema(
            f"column '{name}' has type {kind.simpleString()}, but the sink accepts {accepted}",
            action=f"Cast the column, for example df.withColumn('{name}', …).",
        )


def schema_ids(schema: StructType) -> frozenset[tuple[str, int]]:
    """The columns `key` and `value` that `to_confluent` has encoded, and the ids that it put before their values."""
    return frozenset(
        (field.name.lower(), field.metadata[SCHEMA_ID])
        for field in schema.fields
        if SCHEMA_ID in field.metadata and field.name.lower() in ("key", "value")
    )


def without_stale_ids(rows: pa.RecordBatch, ids: frozenset[tuple[str, int]]) -> pa.RecordBatch:
    """The rows without headers that name the schema of what was read, where the value begins with one of `ids`, which
    `schema_ids` has found: clients look into the header first. A row with an error is as it was read.
    """
    if not ids or "headers" not in rows.schema.names:
        return rows
    import pyarrow as pa
    import pyarrow.compute as pc

    from spark_kafka_eos.kafka.wire.schema_headers import without_schema

    for name, schema_id in sorted(ids):
        encoded = pc.starts_with(rows.column(name), b"\0" + schema_id.to_bytes(4, "big"))
        if "error" in rows.schema.names:
            encoded = pc.and_(encoded, rows.column("error").is_null())
        headers = without_schema(rows.column("headers"), name, encoded)
        rows = rows.set_column(rows.schema.get_field_index("headers"), pa.field("headers", headers.type), headers)
    return rows


def sink_rows(
    frame: DataFrame, *, topic: str | None, constant_topic: bool = False, dead_letters: bool = False
) -> DataFrame:
    """The rows to encode; `arrow_rows` gives them their types. `constant_topic` adds `topic` as a column."""
    names = check_schema(frame.schema, topic=topic, dead_letters=dead_letters)
    if not constant_topic and _is_ready(frame.schema, names):
        return frame  # a projection costs Spark some milliseconds of planning per micro-batch
    # As SQL, because a Column costs several JVM calls and a stack inspection per micro-batch.
    fields = {field.name.lower(): field for field in frame.schema.fields}
    expressions = [_expression(name, fields[name]) for name in names]
    rows = frame.selectExpr(*([] if "key" in names else ["CAST(NULL AS BINARY) AS key"]), *expressions)
    return rows.withColumn("topic", F.lit(topic)) if constant_topic and topic is not None else rows


def arrow_rows(batches: Iterator[pa.RecordBatch], *, dead_letters: bool = False) -> Iterator[pa.RecordBatch]:
    """Convert the batches that Spark passes to Python to exactly the types that encoding expects, without copying where
    possible. `dead_letters`: see `check_schema`, which has checked their schema.
    """
    import pyarrow as pa

    from spark_kafka_eos.appending.blocks import ROWS

    for batch in batches:
        columns, names = [], []
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            target = ROWS.get(name.lower())
            if target is None or (not dead_letters and _is_another(name.lower(), column.type)):
                continue
            columns.append(_as_sent(column, target))
            names.append(name.lower())
        if "key" not in names:
            columns.append(pa.nulls(batch.num_rows, ROWS["key"]))
            names.append("key")
        yield pa.RecordBatch.from_arrays(columns, names=names)


def _as_sent(column: pa.Array, target: pa.DataType) -> pa.Array:
    import pyarrow as pa

    if pa.types.is_string(target):
        return _valid(column)
    if pa.types.is_struct(target):
        children = [_as_sent(child, field.type) for child, field in zip(column.flatten(), target, strict=True)]
        return pa.StructArray.from_arrays(children, fields=list(target), mask=column.is_null())
    if pa.types.is_timestamp(column.type):
        return _milliseconds(column)
    sent = column if column.type == target else column.cast(target)
    return _with_valid_keys(sent) if pa.types.is_list(target) else sent


def _valid(column: pa.Array) -> pa.StringArray:
    """The texts in valid UTF-8. Spark casts any bytes to a string, and does not look; what is invalid becomes U+FFFD,
    as where Java reads such a string.
    """
    import pyarrow as pa

    from spark_kafka_eos.kafka.wire.headers import strings

    try:
        texts = column if column.type == pa.string() else column.cast(pa.string())
        texts.validate(full=True)
    except pa.ArrowInvalid:
        return strings(column.cast(pa.binary()))
    return texts


def _with_valid_keys(headers: pa.ListArray) -> pa.ListArray:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    entries = headers.flatten()
    keys, values = entries.flatten()
    valid = _valid(keys)
    if valid is keys:
        return headers
    ends = np.cumsum(pc.list_value_length(headers).fill_null(0).to_numpy())
    offsets = pa.array(np.concatenate([[0], ends]), pa.int32())
    entries = pa.StructArray.from_arrays([valid, values], fields=list(entries.type), mask=entries.is_null())
    return pa.ListArray.from_arrays(offsets, entries, mask=headers.is_null())


def _milliseconds(instants: pa.Array) -> pa.Array:
    """The millisecond in which each instant lies, as Spark's unix_millis counts them, also before 1970."""
    import numpy as np
    import pyarrow as pa

    ticks = instants.cast(pa.int64())
    per_millisecond = {"us": 1_000, "ns": 1_000_000}.get(instants.type.unit)
    if per_millisecond is None:  # not finer; Arrow notices what is too large
        return instants.cast(pa.timestamp("ms", instants.type.tz)).cast(pa.int64())
    # Arrow's own division and casts cut off towards 1970.
    return pa.array(ticks.fill_null(0).to_numpy() // per_millisecond, mask=np.asarray(ticks.is_null()))


def _expression(name: str, field: StructField) -> str:
    own = f"`{field.name}`"  # spark.sql.caseSensitive finds no other spelling
    if name in ("key", "value"):
        return f"CAST({own} AS BINARY) AS `{name}`"
    if not _is_nullable(name, field.dataType):
        return f"CAST({own} AS {_NESTED[name].simpleString()}) AS `{name}`"
    return own if field.name == name else f"{own} AS `{name}`"


def _is_nullable(name: str, kind: DataType) -> bool:
    """Whether the column's type has no NOT NULL within. Literals have (`struct('k' AS key)`), and a null around them is
    no error: but `toArrow` refuses a null struct whose fields are NOT NULL.
    """
    return name not in _NESTED or kind == _NESTED[name]


def _is_ready(schema: StructType, names: list[str]) -> bool:
    """Whether the DataFrame has exactly the columns that `_expression` would produce."""
    types = {field.name: field.dataType for field in schema.fields}
    if "key" not in types or sorted(schema.names) != sorted(names):
        return False
    if not all(_is_nullable(name, kind) for name, kind in types.items()):
        return False
    return isinstance(types["key"], BinaryType) and isinstance(types["value"], BinaryType)


def _is_another(name: str, kind: pa.DataType) -> bool:
    """Whether a column that has the name of one for dead letters is another one, as in `check_schema`."""
    from pyspark.sql.pandas.types import from_arrow_type

    return name == "source" or (name == "error" and not _same(from_arrow_type(kind), ERROR))


def _same(kind: DataType, accepted: DataType) -> bool:
    """Whether these types are equal, whatever may be null in them."""
    if isinstance(kind, ArrayType) and isinstance(accepted, ArrayType):
        return _same(kind.elementType, accepted.elementType)
    if isinstance(kind, StructType) and isinstance(accepted, StructType):
        return kind.names == accepted.names and all(
            _same(field.dataType, other.dataType) for field, other in zip(kind.fields, accepted.fields, strict=True)
        )
    return type(kind) is type(accepted)
