"""A field's default, from the schema's JSON to Arrow.

Source: Apache Avro specification 1.12, "Complex Types" (Records), and which branch of a union Avro's Java takes.
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa

from spark_kafka_eos.registry.avro_logical import factor
from spark_kafka_eos.registry.avro_schema import (
    NULL,
    Array,
    Avro,
    Enum,
    Field,
    Fixed,
    Map,
    Primitive,
    Record,
    Union,
    arrow_type,
)
from spark_kafka_eos.registry.connect_types import ZONED, zoned_timestamps
from spark_kafka_eos.registry.nesting import UnsupportedSchema


def default_of(field: Field) -> pa.Scalar:
    """The field's default as a value of `arrow_type`. Raises UnsupportedSchema if it is none of the field's type."""
    try:
        return pa.array([_value(json.loads(field.default), field.type)], arrow_type(field.type))[0]
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise UnsupportedSchema(f"the default of field {field.name} does not fit its type") from error


def _value(value: Any, kind: Avro) -> Any:
    """As `pa.array` takes it. Raises ValueError, TypeError and OverflowError."""
    if not _fits(value, kind):
        raise ValueError
    match kind:
        case Union():
            branch = next(branch for branch in kind.branches if _fits(value, branch))
            inner = _value(value, branch)
            if kind.single is not None or branch == NULL:
                return inner
            return {f"member{kind.present.index(branch)}": inner}
        case Record() if kind.logical:
            raise ValueError  # no connector gives one, and it would be bytes
        case Record():
            return {
                field.name: _value(value[field.name] if field.name in value else _own(field), field.type)
                for field in kind.fields
            }
        case Array():
            return [_value(item, kind.items) for item in value]
        case Map():
            return [(key, _value(item, kind.values)) for key, item in value.items()]
        case Primitive(name="bytes") | Fixed():
            return _from_bytes(value.encode("latin-1"), kind)  # bytes are text of the code points 0 to 255
        case Primitive(name="int" | "long"):
            return value * factor(kind, kind)
        case Primitive() if kind.logical == ZONED:
            return zoned_timestamps(pa.array([value]))[0][0].as_py()
    return value


def _own(field: Field) -> Any:
    if not field.has_default:
        raise ValueError
    return json.loads(field.default)


def _from_bytes(raw: bytes, kind: Primitive | Fixed) -> Any:
    match kind.logical:
        case "decimal":
            return Decimal(f"{int.from_bytes(raw, 'big', signed=True)}e-{kind.scale}")
        case "uuid":
            return str(UUID(bytes=raw))
    return raw


_JSON = {
    "null": type(None), "boolean": bool, "int": int, "long": int, "float": int | float, "double": int | float,
    "string": str, "bytes": str,
}  # fmt: skip


def _fits(value: Any, kind: Avro) -> bool:
    """Whether a default may be one of this type, or branch of a union. JSON tells numbers from texts, and no more."""
    match kind:
        case Union():
            return any(_fits(value, branch) for branch in kind.branches)
        case Primitive():
            return isinstance(value, _JSON[kind.name]) and (isinstance(value, bool) == (kind.name == "boolean"))
        case Enum():
            return value in kind.symbols
        case Fixed():
            return isinstance(value, str) and len(value) == kind.size
        case Array():
            return isinstance(value, list)
    return isinstance(value, dict)
