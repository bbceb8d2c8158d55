"""JSON Schema: values are validated by the schema that they were written with, and read as the query's.

| JSON Schema | Arrow, and so Spark |
|---|---|
| string, integer, number, boolean | string, int64, float64, bool |
| object with `properties` | struct |
| object with only `additionalProperties` of one schema | map with string keys |
| array with one schema of `items` | list |
| one of these or null | the same |
| everything else (several types, tuples, no type, …) | string: the part's text in JSON |

Whoever writes to a topic may choose the schema of a value. So a pattern takes time linear in the value, or, if it looks
around or back, a bounded number of steps, and a schema's references are looked up among those of the registry only.

Source: JSON Schema, drafts 4 to 2020-12; Confluent Schema Registry, "JSON Schema serializer".
"""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

import jsonschema_rs
import pyarrow as pa
from referencing import Registry as References
from referencing import Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT7

from spark_kafka_eos.dead_letters.causes import Cause
from spark_kafka_eos.errors import InvalidRow, InvalidSchema
from spark_kafka_eos.registry.client import SchemaText
from spark_kafka_eos.registry.nesting import Nesting, UnsupportedSchema
from spark_kafka_eos.registry.rows import ReadColumn, Rows

_SIMPLE = {"string": pa.string(), "integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_()}
_NULL = {"type": "null"}
# A value whose pattern needs more steps is not valid: milliseconds, where a plain engine needs hours.
BACKTRACKS = 100_000
_PATTERNS = jsonschema_rs.FancyRegexOptions(backtrack_limit=BACKTRACKS)


class OutOfRange(ValueError):
    """A number that the column cannot hold."""


class JsonFormat:
    def __init__(self, wanted: SchemaText) -> None:
        schema, self._validator, resolver = _parsed(wanted)
        self.arrow: pa.DataType = _arrow(schema, resolver, Nesting())
        self.name: str = schema.get("title", "") if isinstance(schema, dict) else ""

    def reader(self, written: SchemaText) -> ReadColumn:
        _, validator, _ = _parsed(written)

        def read(rows: Rows) -> pa.Array:
            data = rows.data.data
            values = []
            for number, (at, end) in enumerate(zip(rows.at.tolist(), rows.end.tolist(), strict=True)):
                value, cause = _value(bytes(data[at:end]), validator, self.arrow)
                values.append(value)
                if cause is not None:
                    rows.note_one(number, cause)
            rows.at = rows.end.copy()
            return pa.array(values, self.arrow)

        return read

    def write(self, column: pa.Array, prefix: bytes) -> pa.BinaryArray:
        return pa.array([self._written(value, prefix) for value in column.to_pylist()], pa.binary())

    def _written(self, value: object, prefix: bytes) -> bytes | None:
        if value is None:
            return None
        plain = _plain(value, self.arrow)
        try:
            error = next(self._validator.iter_errors(plain), None)
            text = json.dumps(plain, allow_nan=False)
        except (TypeError, ValueError):  # neither has these types, and their texts may have the value
            raise InvalidRow(
                "the value has what JSON has not: a decimal, a date, a timestamp, a binary value, NaN or infinity"
            ) from None
        if error is not None:  # its text has the value
            path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.instance_path)
            raise InvalidRow(f"${path} does not fit its JSON schema: {error.kind.name}")
        return prefix + text.encode()


def _parsed(text: SchemaText) -> tuple[Any, jsonschema_rs.Validator, Any]:
    """The schema, its validator, and what finds its references. Raises UnsupportedSchema."""
    try:
        schema = json.loads(text.text)
        others = [(name, json.loads(each)) for name, each in text.references]
        registry = jsonschema_rs.Registry(others, draft=jsonschema_rs.Draft7) if others else None
        validator = _draft(schema)(schema, registry=registry, pattern_options=_PATTERNS, offline=True)
        references = References().with_resources((name, _resource(each)) for name, each in others)
    except jsonschema_rs.ValidationError as error:
        if error.kind.name == "$ref":
            raise UnsupportedSchema("nothing is found under one of its references") from error
        raise UnsupportedSchema(f"not a JSON schema: {error.kind.name}") from error
    except (ValueError, jsonschema_rs.ReferencingError, RecursionError) as error:
        raise UnsupportedSchema(f"not a JSON schema: {type(error).__name__}") from error
    return schema, validator, references.resolver_with_root(_resource(schema))


def _draft(schema: Any) -> type[Any]:
    """The validators' class for the draft that the schema names; draft 7 if it names none, or one of its own."""
    named = isinstance(schema, dict) and "$schema" in schema
    try:
        return jsonschema_rs.validator_cls_for(schema) if named else jsonschema_rs.Draft7Validator
    except jsonschema_rs.ValidationError:
        return jsonschema_rs.Draft7Validator


def _resource(schema: Any) -> Resource[Any]:
    return Resource.from_contents(schema, default_specification=DRAFT7)


def _value(body: bytes, validator: jsonschema_rs.Validator, kind: pa.DataType) -> tuple[Any, Cause | None]:
    try:
        value = json.loads(body, parse_constant=_refuse)
        if not validator.is_valid(value):
            return None, Cause.OUT_OF_RANGE if _has_infinity(value) else Cause.UNDECODABLE
    except (ValueError, RecursionError):  # also half of a surrogate pair
        return None, Cause.UNDECODABLE
    try:
        return _read(value, kind), None
    except (OutOfRange, OverflowError):
        return None, Cause.OUT_OF_RANGE
    except (TypeError, ValueError, AttributeError):
        return None, Cause.INCOMPATIBLE


def _has_infinity(value: Any) -> bool:
    """Whether a number is larger than a float can be, as 1e400. The validator takes it for no number."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(map(_has_infinity, parts)) or (isinstance(value, float) and math.isinf(value))


def _refuse(_: str) -> NoReturn:
    raise ValueError("NaN and Infinity are not JSON")


def _arrow(schema: Any, resolver: Any, above: Nesting) -> pa.DataType:
    above.count()
    if not isinstance(schema, dict):
        return pa.string()
    if "$ref" in schema:
        return _referred(schema["$ref"], resolver, above)
    for word in ("oneOf", "anyOf"):
        branches = [branch for branch in schema.get(word, ()) if branch != _NULL]
        if word in schema:
            return _arrow(branches[0], resolver, above) if len(branches) == 1 else pa.string()
    if len(schema.get("allOf", ())) == 1 and "properties" not in schema:
        return _arrow(schema["allOf"][0], resolver, above)
    kind = schema.get("type", "object" if "properties" in schema else None)
    if isinstance(kind, list):
        present = [each for each in kind if each != "null"]
        kind = present[0] if len(present) == 1 else None
    match kind:
        case "object" if schema.get("properties"):
            fields = schema["properties"].items()
            return pa.struct([pa.field(name, _arrow(each, resolver, above)) for name, each in fields])
        case "object" if isinstance(schema.get("additionalProperties"), dict):
            return pa.map_(pa.string(), _arrow(schema["additionalProperties"], resolver, above))
        case "array" if isinstance(schema.get("items"), dict):
            return pa.list_(pa.field("element", _arrow(schema["items"], resolver, above)))
    return _SIMPLE.get(str(kind), pa.string())


def _referred(reference: str, resolver: Any, above: Nesting) -> pa.DataType:
    inside = above.within(reference, reference)
    try:
        found = resolver.lookup(reference)
    except Unresolvable as error:
        raise UnsupportedSchema(f"nothing is found under {reference}") from error
    return _arrow(found.contents, found.resolver, inside)


def _read(value: Any, kind: pa.DataType) -> Any:
    """A value of `json.loads` as `pa.array` takes it. Raises OutOfRange, TypeError, ValueError or AttributeError."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {each.name: _read(value.get(each.name), each.type) for each in kind}
    if pa.types.is_map(kind):
        return [(_text(key), _read(each, kind.item_type)) for key, each in value.items()]
    if pa.types.is_list(kind):
        if not isinstance(value, list):
            raise TypeError
        return [_read(each, kind.value_type) for each in value]
    if pa.types.is_string(kind):
        return _text(value) if isinstance(value, str) else json.dumps(value)
    if pa.types.is_boolean(kind):
        if not isinstance(value, bool):
            raise TypeError
        return value
    return _number(value, kind)


def _text(value: str) -> str:
    """The value. Raises UnicodeEncodeError, a ValueError, for half of a surrogate pair, which JSON can escape."""
    value.encode()
    return value


def _number(value: Any, kind: pa.DataType) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError
    if pa.types.is_integer(kind):
        if value != int(value):
            raise TypeError
        if not -(2**63) <= value < 2**63:
            raise OutOfRange
        return int(value)
    if math.isinf(number := float(value)):  # JSON has no infinity, but 1e400 is read as one
        raise OutOfRange
    return number


def _plain(value: Any, kind: pa.DataType) -> Any:
    """A value of `to_pylist` as `json.dumps` takes it. A field that is null is left out."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        unknown = set(value) - {each.name for each in kind}
        if unknown:
            raise InvalidSchema(f"there are fields that the JSON schema lacks: {', '.join(sorted(unknown))}")
        return {each.name: _plain(value[each.name], each.type) for each in kind if value.get(each.name) is not None}
    if pa.types.is_map(kind):
        return {key: _plain(each, kind.item_type) for key, each in value}
    if pa.types.is_list(kind):
        return [_plain(each, kind.value_type) for each in value]
    return value
