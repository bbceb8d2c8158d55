"""What an Arrow type is: what a schema's type can be written from."""

from __future__ import annotations

import pyarrow as pa

from spark_kafka_eos.errors import InvalidSchema


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_bytes(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_binary_view(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def field_names(kind: pa.StructType, path: str) -> set[str]:
    """Raises InvalidSchema if two fields have one name, as after a join: which one was meant is not known."""
    names = [field.name for field in kind]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InvalidSchema(f"{path} has more than one field of the name {', '.join(twice)}")
    return set(names)


def in_utc(column: pa.Array) -> pa.Array:
    """The column with its times with a zone in UTC: Python has the years 1 to 9999, which begin and end at another time
    in other zones.
    """
    kind = _in_utc(column.type)
    return column if kind == column.type else column.cast(kind)


def _in_utc(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return kind if kind.tz is None else pa.timestamp(kind.unit, "UTC")
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_in_utc(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_field, kind.item_field.with_type(_in_utc(kind.item_type)))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_in_utc(kind.value_type)))
    return kind
