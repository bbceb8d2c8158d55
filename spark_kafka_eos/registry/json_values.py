"""Values of a shape between JSON, as `json.loads` has it, and Arrow, as `to_pylist` and `pyarrow.array` have it.

What is done to a value is decided once, by shape and column type, not for each value.
"""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from spark_kafka_eos.errors import InvalidRow, InvalidSchema
from spark_kafka_eos.registry.json_shapes import TEXT, Shape, ShapeKind
from spark_kafka_eos.registry.kinds import field_names, in_utc, is_list, is_number, is_text

Reader = Callable[[Any], Any]  # raises OutOfRange, TypeError, ValueError or AttributeError
Writer = Callable[[Any], Any]  # raises InvalidRow

_NOUNS = {
    "string": "a string",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "a boolean",
    "text": "of no type that JSON has",
    "struct": "an object with fields",
    "map": "an object with any fields",
    "list": "an array",
}


class OutOfRange(ValueError):
    """A number that the column cannot hold."""


# -- from JSON to Arrow


def reader(shape: Shape) -> Reader:
    """From a value of `json.loads` to one that `pyarrow.array` takes; from None to None."""
    match shape.kind:
        case "struct":
            return _struct_reader([(name, reader(part)) for name, part in shape.parts.items()])
        case "map":
            return _map_reader(reader(shape.element))
        case "list":
            return _list_reader(reader(shape.element))
    return {"string": _string, "integer": _integer, "number": _number, "boolean": _boolean, "text": _text}[shape.kind]


def _struct_reader(fields: list[tuple[str, Reader]]) -> Reader:
    def read(value: Any) -> Any:
        return None if value is None else {name: read_field(value.get(name)) for name, read_field in fields}

    return read


def _map_reader(read_element: Reader) -> Reader:
    def read(value: Any) -> Any:
        return None if value is None else [(_string(key), read_element(item)) for key, item in value.items()]

    return read


def _list_reader(read_element: Reader) -> Reader:
    def read(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, list):
            raise TypeError
        return [read_element(item) for item in value]

    return read


def _string(value: Any) -> str | None:
    """Raises UnicodeEncodeError, a ValueError, for half of a surrogate pair, which JSON can escape."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise TypeError
    value.encode()
    return value


def _boolean(value: Any) -> bool | None:
    if value is not None and not isinstance(value, bool):
        raise TypeError
    return value


def _integer(value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
        raise TypeError
    if not -(2**63) <= value < 2**63:
        raise OutOfRange
    return int(value)


def _number(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError
    if math.isinf(number := float(value)):  # JSON has no infinity, but 1e400 is read as one
        raise OutOfRange
    return number


def _text(value: Any) -> str | None:
    try:
        return None if value is None else json.dumps(value, allow_nan=False)
    except ValueError:
        raise OutOfRange from None


# -- from Arrow to JSON


def values(column: pa.Array) -> list[Any]:
    """Python's values of the column; times with a zone are in UTC. Raises InvalidRow for a time that Python lacks."""
    try:
        return in_utc(column).to_pylist()  # type: ignore[no-any-return]
    except (ValueError, OverflowError):  # its text has the value
        raise InvalidRow(
            "a date or a timestamp is outside of the years 1 to 9999, or has parts of a microsecond"
        ) from None


def writer(shape: Shape, kind: pa.DataType, path: str = "$", *, nulls: bool = False) -> Writer:
    """From a value of `values`, not None, to one that `json_text` takes, with all `nulls` or those that every value
    needs. Raises InvalidSchema, with the path of the part, if values of type `kind` are not of this shape.
    """
    if pa.types.is_dictionary(kind):
        return writer(shape, kind.value_type, path, nulls=nulls)
    match shape.kind:
        case _ if pa.types.is_null(kind):
            return _unchanged
        case "struct" if pa.types.is_struct(kind):
            return _struct_writer(shape, kind, path, nulls)
        case "map" if pa.types.is_map(kind) and is_text(kind.key_type):
            return _map_writer(writer(shape.element, kind.item_type, f"{path}.*", nulls=nulls))
        case "list" if is_list(kind):
            return _list_writer(writer(shape.element, kind.value_type, f"{path}[*]", nulls=nulls))
        case "text" if is_text(kind):
            return _parser(path)
        case "text" if (natural := _natural(kind)) is not None:
            return writer(natural, kind, path)
    if (write := _scalar_writer(shape.kind, kind)) is not None:
        return write
    raise InvalidSchema(
        f"{path} has type {kind}, but in the JSON schema it is {_NOUNS[shape.kind]}",
        action="Cast the column, or leave it out. Of a binary one, base64 makes a string.",
    )


def _scalar_writer(shape: ShapeKind, kind: pa.DataType) -> Writer | None:
    match shape:
        case "integer" if pa.types.is_decimal(kind) or pa.types.is_floating(kind):
            return _whole
        case "number" if pa.types.is_float32(kind) or pa.types.is_float16(kind):
            return _shortest(kind.to_pandas_dtype())
        case "integer" | "number" if is_number(kind):
            return _unchanged
        case "boolean" if pa.types.is_boolean(kind):
            return _unchanged
        case "string" if is_text(kind):
            return _unchanged
        case "string" if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
            return _iso
    return None


def _struct_writer(shape: Shape, kind: pa.StructType, path: str, nulls: bool) -> Writer:
    names = field_names(kind, path)
    unknown = names - shape.parts.keys()
    if unknown:
        named = ", ".join(sorted(f"{path}.{name}" for name in unknown))
        raise InvalidSchema(f"there are fields that the JSON schema lacks: {named}")
    lacking = {name: shape.parts.get(name, TEXT).defaults for name in shape.required - names}
    if not all(lacking.values()):
        named = ", ".join(sorted(f"{path}.{name}" for name, defaults in lacking.items() if not defaults))
        raise InvalidSchema(
            f"there are fields that the JSON schema requires without a default, and the struct lacks: {named}",
            action="Add them to the struct, or leave the struct out if it may be missing. One that the schema has not "
            "among its `properties` must be added there first.",
        )
    constants = {name: default for name, (default,) in lacking.items()}
    fields = [
        (name, writer(part, kind.field(name).type, f"{path}.{name}", nulls=nulls), nulls or name in shape.required)
        for name, part in shape.parts.items()
        if name in names
    ]

    def write(value: Any) -> Any:
        plain = {**constants}
        for name, write_field, is_required in fields:
            part = value[name]
            if part is not None:
                plain[name] = write_field(part)
            elif is_required:
                plain[name] = None
        return plain

    return write


def _map_writer(write_element: Writer) -> Writer:
    def write(value: Any) -> Any:
        return {key: None if item is None else write_element(item) for key, item in value}

    return write


def _list_writer(write_element: Writer) -> Writer:
    def write(value: Any) -> Any:
        return [None if item is None else write_element(item) for item in value]

    return write


def _unchanged(value: Any) -> Any:
    return value


def _whole(value: Any) -> Any:
    """The number without fraction, if it has none."""
    try:
        whole = int(value)
    except (ValueError, OverflowError):  # NaN, infinity
        return value
    return whole if whole == value else value


def _shortest(single: type[np.floating[Any]]) -> Writer:
    """The number with the fewest digits that is the same one in that type. Python has doubles only, and of them other
    digits: 0.1 of a float would be 0.10000000149011612.
    """
    return lambda value: float(str(single(value)))


def _iso(value: Any) -> str:
    """A date, or a timestamp in UTC as RFC 3339 has it; without a zone if its type has none."""
    if getattr(value, "tzinfo", None) is None:
        return str(value.isoformat())
    return str(value.astimezone(dt.UTC).isoformat()).removesuffix("+00:00") + "Z"


def _parser(path: str) -> Writer:
    def write(value: Any) -> Any:
        try:
            return _WRITTEN_JSON.decode(value)
        except (ValueError, ArithmeticError, RecursionError):  # its text has the value
            raise InvalidRow(
                f"{path} must be the text of a JSON value, with no name twice in an object and with numbers that a "
                "double can hold, but is not"
            ) from None

    return write


def refuse_constant(_: str) -> NoReturn:
    """For `json.loads`, which would read NaN and Infinity."""
    raise ValueError("NaN and Infinity are not JSON")


# Reads numbers with a point or an exponent as Decimal. Raises ValueError and RecursionError, as `json.loads` does, and
# ArithmeticError for an exponent that no decimal has.
EXACT_JSON = json.JSONDecoder(parse_float=Decimal, parse_constant=refuse_constant)


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError("the number is larger than a double's")
    return number


def _readable(text: str) -> Decimal:
    """A decimal that is not out of range for who reads it as a double. Raises ValueError and ArithmeticError."""
    _finite(text)
    return Decimal(text)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("an object has a name twice")
    return made


# Of texts that are written: what would be lost, or could not be read again, raises ValueError or ArithmeticError.
_WRITTEN_JSON = json.JSONDecoder(parse_float=_readable, parse_constant=refuse_constant, object_pairs_hook=_unique)
JSON_OF_DOUBLES = json.JSONDecoder(parse_float=_finite, parse_constant=refuse_constant, object_pairs_hook=_unique)


def _natural(kind: pa.DataType) -> Shape | None:
    """The shape that JSON has for a type; None if it has none. A struct's nulls are written."""
    if pa.types.is_struct(kind):
        parts = {field.name: _natural(field.type) or TEXT for field in kind}
        return Shape("struct", parts, frozenset(parts))
    if pa.types.is_map(kind):
        return Shape("map", {"element": _natural(kind.item_type) or TEXT})
    if is_list(kind):
        return Shape("list", {"element": _natural(kind.value_type) or TEXT})
    if pa.types.is_boolean(kind):
        return Shape("boolean")
    if is_number(kind):
        return Shape("number")
    if is_text(kind) or pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return Shape("string")
    return None


def json_text(value: Any) -> str:
    """Raises ValueError for NaN and infinity."""
    try:
        return json.dumps(value, allow_nan=False)
    except TypeError:
        return _with_decimals(value)


def _with_decimals(value: Any) -> str:
    """As `json.dumps` writes it, with the digits of decimals, of which a float would lose some."""
    match value:
        case Decimal():
            return str(value)
        case dict():
            return "{" + ", ".join(f"{json.dumps(key)}: {_with_decimals(item)}" for key, item in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(_with_decimals, value)) + "]"
    return json.dumps(value, allow_nan=False)
