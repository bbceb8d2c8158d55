"""Avro schemas as values: parsed, with names resolved, and the Arrow type that each becomes.

| Avro | Arrow, and so Spark |
|---|---|
| boolean, int, long, float, double, string, bytes | the same |
| record, array, map, enum, fixed | struct, list, map with string keys, string, binary |
| union of null and one type | that type |
| union of int and long; of float and double | int64; float64 |
| other unions | a struct with one field per type that is not null: `member0`, `member1`, … |
| decimal, date, uuid | decimal128, date32, string |
| timestamp-millis, timestamp-micros | timestamp[us, UTC] |
| local-timestamp-millis, local-timestamp-micros | timestamp[us] |
| other logical types (time-millis, duration, …) | as if they were not there |

This is how Spark's `from_avro` maps them. Recursive types and records without fields have no Spark type: they are
refused.

Source: Apache Avro specification 1.12.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from fastavro.schema import SchemaParseException, UnknownType, parse_schema

from spark_kafka_eos.registry.nesting import Nesting, UnsupportedSchema

MAX_PRECISION = 38  # of decimal128 and of Spark's DecimalType
_PRIMITIVES = {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}


@dataclass(frozen=True)
class Primitive:
    name: str
    logical: str = ""
    precision: int = 0
    scale: int = 0


@dataclass(frozen=True)
class Fixed:
    name: str
    size: int
    logical: str = ""
    precision: int = 0
    scale: int = 0
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True)
class Enum:
    name: str
    symbols: tuple[str, ...]
    default: str | None = None
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True)
class Array:
    items: Avro


@dataclass(frozen=True)
class Map:
    values: Avro


@dataclass(frozen=True)
class Union:
    branches: tuple[Avro, ...]

    @property
    def present(self) -> tuple[Avro, ...]:
        """The branches that are not null."""
        return tuple(branch for branch in self.branches if branch != NULL)

    @property
    def single(self) -> Avro | None:
        """The one type that all branches but null have in Spark; None if there are several."""
        if len(self.present) == 1:
            return self.present[0]
        for narrow, wide in (("int", "long"), ("float", "double")):
            if set(self.present) == {Primitive(narrow), Primitive(wide)}:
                return Primitive(wide)
        return None


@dataclass(frozen=True)
class Field:
    name: str
    type: Avro
    has_default: bool = False
    default: str = "null"  # as JSON
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True)
class Record:
    name: str
    fields: tuple[Field, ...]
    aliases: tuple[str, ...] = ()


Avro = Primitive | Fixed | Enum | Array | Map | Union | Record
NULL = Primitive("null")


def parse(text: str, references: Mapping[str, str] | None = None) -> Avro:
    """The schema of JSON `text`. `references` has the texts of the named types that it uses, in the order in which they
    build on each other. Raises UnsupportedSchema.
    """
    named: dict[str, Any] = {}
    try:
        for each in (references or {}).values():
            parse_schema(json.loads(each), named)
        return _build(parse_schema(_json(text), named), named, Nesting())
    except UnsupportedSchema:
        raise
    except (SchemaParseException, UnknownType, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnsupportedSchema(f"not an Avro schema: {type(error).__name__}: {error}") from error
    except RecursionError as error:
        raise UnsupportedSchema("the schema is nested too deeply") from error


def _json(text: str) -> Any:
    """A schema may be a bare name, too: `string` beside `"string"`."""
    return text.strip() if text.strip() in _PRIMITIVES else json.loads(text)


def _build(tree: Any, named: Mapping[str, Any], above: Nesting) -> Avro:
    above.count()
    if isinstance(tree, list):
        return Union(tuple(_build(each, named, above) for each in tree))
    if isinstance(tree, dict):
        return _defined(tree, named, above)
    if tree in _PRIMITIVES:
        return Primitive(tree)
    return _build(named[tree], named, above)


def _defined(tree: Mapping[str, Any], named: Mapping[str, Any], above: Nesting) -> Avro:
    kind, aliases = tree["type"], tuple(tree.get("aliases", ()))
    match kind:
        case "record" | "error":
            name = tree["name"]
            inside = above.within(name, f"type {name}")
            return Record(name, tuple(_field(each, named, inside) for each in tree["fields"]), _full(aliases, name))
        case "enum":
            return Enum(tree["name"], tuple(tree["symbols"]), tree.get("default"), _full(aliases, tree["name"]))
        case "array":
            return Array(_build(tree["items"], named, above))
        case "map":
            return Map(_build(tree["values"], named, above))
        case "fixed":
            return Fixed(tree["name"], int(tree["size"]), *_logical(tree), aliases=_full(aliases, tree["name"]))
        case str() if kind in _PRIMITIVES:
            return Primitive(kind, *_logical(tree))
    return _build(kind, named, above)


def _field(tree: Any, named: Mapping[str, Any], above: Nesting) -> Field:
    default = json.dumps(tree.get("default"))
    aliases = tuple(tree.get("aliases", ()))
    return Field(tree["name"], _build(tree["type"], named, above), "default" in tree, default, aliases)


def _full(aliases: tuple[str, ...], name: str) -> tuple[str, ...]:
    """An alias without a namespace has that of the name it stands for."""
    space = name.rpartition(".")[0]
    return tuple(alias if "." in alias or not space else f"{space}.{alias}" for alias in aliases)


_LOGICAL = {
    "int": {"date"},
    "long": {"timestamp-millis", "timestamp-micros", "local-timestamp-millis", "local-timestamp-micros"},
    "string": {"uuid"},
}


def _logical(tree: Mapping[str, Any]) -> tuple[str, int, int]:
    """Logical type, precision and scale. A logical type that is unknown or does not fit is ignored, as Avro says."""
    logical, kind = tree.get("logicalType"), tree["type"]
    if logical == "decimal" and kind in {"bytes", "fixed"}:
        precision, scale = int(tree.get("precision", 0)), int(tree.get("scale", 0))
        if precision > MAX_PRECISION:
            raise UnsupportedSchema(f"decimal of precision {precision}: Spark's decimals have at most {MAX_PRECISION}")
        if 0 <= scale <= precision and precision > 0:
            return "decimal", precision, scale
        return "", 0, 0
    if logical == "uuid" and kind == "fixed" and tree["size"] == 16:
        return "uuid", 0, 0
    return (str(logical), 0, 0) if logical in _LOGICAL.get(kind, ()) else ("", 0, 0)


_ARROW = {
    "null": pa.null(), "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(),
    "double": pa.float64(), "bytes": pa.binary(), "string": pa.string(),
    "date": pa.date32(), "uuid": pa.string(),
    "timestamp-millis": pa.timestamp("us", "UTC"), "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("us"), "local-timestamp-micros": pa.timestamp("us"),
}  # fmt: skip


def arrow_type(avro: Avro) -> pa.DataType:
    """The Arrow type of the table above. Raises UnsupportedSchema."""
    match avro:
        case Primitive(logical="decimal") | Fixed(logical="decimal"):
            return pa.decimal128(avro.precision, avro.scale)
        case Primitive():
            return _ARROW[avro.logical or avro.name]
        case Fixed():
            return pa.string() if avro.logical == "uuid" else pa.binary()
        case Enum():
            return pa.string()
        case Array():
            return pa.list_(pa.field("element", arrow_type(avro.items)))
        case Map():
            return pa.map_(pa.string(), pa.field("value", arrow_type(avro.values)))
        case Record():
            if not avro.fields:
                raise UnsupportedSchema(f"record {avro.name} has no fields, and Spark cannot read such a struct")
            return pa.struct([pa.field(each.name, arrow_type(each.type)) for each in avro.fields])
        case Union():
            if not avro.present:
                return pa.null()
            if avro.single is not None:
                return arrow_type(avro.single)
            return pa.struct([pa.field(f"member{at}", arrow_type(each)) for at, each in enumerate(avro.present)])
