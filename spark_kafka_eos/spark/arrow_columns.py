"""Key and value of a schema registry around the transform of `arrow_stream`: decoded before it, encoded after it.

A record that a permissive decoder cannot read skips the transform and becomes a dead letter as it was read. Pure
functions of Arrow batches; a decoder asks its registry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_kafka_eos.appending.blocks import ROWS
from spark_kafka_eos.dead_letters.headers import ERROR
from spark_kafka_eos.errors import InvalidSchema
from spark_kafka_eos.kafka.wire.schema_headers import without_schema
from spark_kafka_eos.reading.records import TYPES

ENCODED = "encoded_"  # and the column's name: what was read, beside what was decoded of it

# The type of the column `source`, with the source's own timestamp.
_SOURCE = pa.struct(
    [("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("timestamp", TYPES["timestamp"])]
)


class Decoder(Protocol):
    """What `confluent_decoder` returns."""

    @property
    def mode(self) -> str: ...

    @property
    def type(self) -> pa.DataType: ...

    def __call__(self, values: pa.Array, headers: pa.ListArray | None = None) -> pa.Array: ...


class Encoder(Protocol):
    """What `confluent_encoder` returns."""

    def check(self, kind: pa.DataType) -> None: ...

    def __call__(self, values: pa.Array) -> pa.Array: ...


def needed(columns: Sequence[str], decode: Mapping[str, Decoder], *, headers: bool) -> tuple[str, ...]:
    """The columns to read for a transform that gets these ones; of none, which means all, none."""
    if not columns or not decode:
        return tuple(columns)
    more = [*decode, *(["headers"] if headers else [])]
    if permissive(decode):
        more += ["key", "value", *_SOURCE.names]
    return (*columns, *(name for name in dict.fromkeys(more) if name not in columns))


def permissive(decode: Mapping[str, Decoder]) -> bool:
    return any(decoder.mode == "permissive" for decoder in decode.values())


def given_schema(read: pa.Schema, columns: Sequence[str], decode: Mapping[str, Decoder]) -> pa.Schema:
    """What the transform gets, of records that are read with the columns `read`."""
    fields = [read.field(name) for name in columns or read.names]
    fields = [field.with_type(decode[field.name].type) if field.name in decode else field for field in fields]
    return pa.schema([*fields, *(pa.field(ENCODED + name, pa.binary()) for name in decode)])


def decoded(
    records: pa.RecordBatch, columns: Sequence[str], decode: Mapping[str, Decoder]
) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
    """What the transform gets, and the rows of the sink for the records that cannot be decoded."""
    if not decode:
        return records, None
    names = records.schema.names
    headers = records.column("headers") if "headers" in names else None
    decoded_columns: dict[str, pa.Array] = {}
    errors: pa.Array | None = None
    for name, decoder in decode.items():
        decoded_columns[name] = decoder(records.column(name), headers)
        if decoder.mode == "permissive":
            decoded_columns[name], error = decoded_columns[name].flatten()
            errors = error if errors is None else _first(errors, error)
    columns_by_name = {name: decoded_columns.get(name, records.column(name)) for name in columns or names}
    columns_by_name |= {ENCODED + name: records.column(name) for name in decode}
    batch = pa.RecordBatch.from_pydict(columns_by_name)
    if errors is None or errors.null_count == len(errors):
        return batch, None
    originals = {name: records.column(name) for name in ("key", "value", "headers") if name in names}
    source = pa.StructArray.from_arrays([records.column(name) for name in _SOURCE.names], fields=list(_SOURCE))
    dead = pa.RecordBatch.from_pydict({**originals, "error": errors, "source": source})
    return batch.filter(errors.is_null()), dead.filter(errors.is_valid())


def encoded(rows: pa.RecordBatch, encode: Mapping[str, Encoder]) -> pa.RecordBatch:
    """What the transform returned, with these columns encoded, and without headers that name the schemas of what was
    read. A row with an error keeps what was read, from the column `encoded_…`, and all headers. Raises InvalidSchema if
    a column is missing, and what the encoder raises.
    """
    if not encode:
        return rows
    at = {name.lower(): number for number, name in enumerate(rows.schema.names)}
    marked = "error" in at and pa.types.is_struct(rows.column(at["error"]).type)
    dead = rows.column(at["error"]).is_valid() if marked else None
    for name, encoder in encode.items():
        if name not in at:
            raise InvalidSchema(
                f"there is no column {name!r} to encode", action=f"Return {name}, or remove it from encode."
            )
        column = rows.column(at[name])
        if dead is None:
            column = encoder(column)
        elif ENCODED + name not in at:
            raise InvalidSchema(
                f"rows have an error, and there is no column '{ENCODED}{name}' with what was read",
                action=f"Return the column {ENCODED}{name} that the transform got, for dead letters as they were read.",
            )
        else:
            column = _chosen(
                dead, rows.column(at[ENCODED + name]).cast(pa.binary()), encoder(_only(column, pc.invert(dead)))
            )
        rows = rows.set_column(at[name], rows.schema.names[at[name]], column)
        if "headers" in at and _has_headers(rows.column(at["headers"])):
            good = pa.repeat(pa.scalar(True), rows.num_rows) if dead is None else pc.invert(dead)
            headers = without_schema(rows.column(at["headers"]), name, good)
            rows = rows.set_column(at["headers"], rows.schema.names[at["headers"]], headers)
    return rows


def _has_headers(column: pa.Array) -> bool:
    """Whether it can be a column of headers; others do not fit the sink, which says so."""
    kind = column.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        return False
    return pa.types.is_struct(kind.value_type) and "key" in kind.value_type.names


def check_types(rows: pa.Schema, encode: Mapping[str, Encoder]) -> None:
    """Raise InvalidSchema if columns of these types cannot be encoded."""
    for field in rows:
        if (encoder := encode.get(field.name.lower())) is not None:
            encoder.check(field.type)


def with_dead(rows: pa.RecordBatch, dead: pa.RecordBatch | None) -> pa.RecordBatch:
    """Rows of the sink, and after them those that are `dead`. The columns do not depend on whether there are some."""
    columns = dict(zip(rows.schema.names, rows.columns, strict=True))
    columns |= {name: columns[name].cast(pa.binary()) for name in ("key", "value") if name in columns}
    for name, kind in (("key", pa.binary()), ("headers", ROWS["headers"]), ("error", ERROR), ("source", _SOURCE)):
        if name not in columns:
            columns[name] = pa.nulls(rows.num_rows, kind)
    if dead is not None:
        for name, column in columns.items():
            more = dead.column(name) if name in dead.schema.names else pa.nulls(dead.num_rows, column.type)
            columns[name] = pa.concat_arrays([column, more.cast(column.type)])
    return pa.RecordBatch.from_pydict(columns)


def _first(first: pa.Array, other: pa.Array) -> pa.Array:
    """Each row's value in `first`, or where that is null, in `other`."""
    return _chosen(first.is_valid(), first, other)


def _chosen(which: pa.BooleanArray, first: pa.Array, other: pa.Array) -> pa.Array:
    """Each row's value in `first` where `which` is true, elsewhere in `other`, of the same type."""
    rows = np.arange(len(first))
    places = np.where(which.to_numpy(zero_copy_only=False), rows, rows + len(first))
    return pa.concat_arrays([first, other]).take(pa.array(places))


def _only(column: pa.Array, which: pa.BooleanArray) -> pa.Array:
    """The column, null where `which` is false."""
    out = ~which.to_numpy(zero_copy_only=False)
    return column.take(pa.array(np.arange(len(column)), mask=out))
