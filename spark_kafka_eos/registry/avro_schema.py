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
| with `connect_types`: ZonedTimestamp; VariableScaleDecimal | timestamp[us, UTC]; string |

This is how Spark's `from_avro` maps them. Recursive types, records without fields and decimals with more than 38 digits
after the point have no Spark type: they are refused. A decimal of a higher precision has 38 digits.

Source: Apache Avro specification 1.12.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from spark_kafka_eos.registry.connect_types import (
    MICRO_DURATION,
    NANO_DURATION,
    NANO_TIME,
    TIMESTAMP,
    VARIABLE_SCALE,
    YEAR,
    ZONED,
    logical_type,
    with_logical_type,
)
from spark_kafka_eos.registry.nesting import Nesting, UnsupportedSchema

MAX_PRECISION = 38  # of decimal128 and of Spark's DecimalType
_PRIMITIVES = {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}


@dataclass(frozen=True)
class Primitive:
    """`of_connect` is the logical type that its `connect.name` stands for. Bytes that are `alone` are all of a value:
    Confluent's serializers write them as they are, without a length.
    """

    name: str
    logical: str = ""
    precision: int = 0
    scale: int = 0
    of_connect: str = field(default="", compare=False)
    alone: bool = field(default=False, compare=False)

    @property
    def in_spark(self) -> bool:
        """Whether Spark has a type for the logical one."""
        return self.logical == "decimal" or self.logical in _ARROW


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
        names = {branch.name for branch in self.present if isinstance(branch, Primitive) and not branch.in_spark}
        for narrow, wide in (("int", "long"), ("float", "double")):
            if len(self.present) == 2 and names == {narrow, wide}:
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
    logical: str = ""


Avro = Primitive | Fixed | Enum | Array | Map | Union | Record
NULL = Primitive("null")


def parse(text: str, references: Mapping[str, str] | None = None, *, connect_types: bool = False) -> Avro:
    """The schema of JSON `text`. `references` has the texts of the named types that it uses, in the order in which they
    build on each other. With `connect_types`, names of Kafka Connect's types count. Raises UnsupportedSchema.
    """
    named: dict[str, Any] = {}
    hook = _with_connect_type if connect_types else _without_invalid_decimal
    try:
        trees = [_named(_json(schema, hook), "", named) for schema in (*(references or {}).values(), text)]
        return _build(trees[-1], named, Nesting())
    except UnsupportedSchema:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnsupportedSchema(f"not an Avro schema: {type(error).__name__}: {error}") from error
    except RecursionError as error:
        raise UnsupportedSchema("the schema is nested too deeply") from error


def _json(text: str, hook: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """A schema may be a bare name, too: `string` beside `"string"`."""
    return text.strip() if text.strip() in _PRIMITIVES else json.loads(text, object_hook=hook)


def _named(tree: Any, space: str, named: dict[str, Any]) -> Any:
    """The schema in namespace `space` with full names. Its definitions are added to those of `named`."""
    if isinstance(tree, list):
        return [_named(branch, space, named) for branch in tree]
    if isinstance(tree, str):
        return tree if tree in _PRIMITIVES else _reference(tree, space, named)
    match tree["type"]:
        case "record" | "error" | "enum" | "fixed":
            return _definition(tree, space, named)
        case "array":
            return tree | {"items": _named(tree["items"], space, named)}
        case "map":
            return tree | {"values": _named(tree["values"], space, named)}
        case str() as kind:
            return tree | {"type": _named(kind, space, named)}
    raise ValueError(f"a type is {tree['type']}")


def _reference(name: str, space: str, named: Mapping[str, Any]) -> str:
    """The full name of a type that is named: in the namespace, else without one, else in the namespace further on. The
    specification has the first only; Avro's Java writes schemas that need the second, and reads the third.
    """
    inside = _full_name(name, space)
    return name if inside not in named and name in named else inside


def _full_name(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _definition(tree: dict[str, Any], space: str, named: dict[str, Any]) -> dict[str, Any]:
    """With full names. One that repeats another but for docs, aliases and an enum's default is taken as Avro's Java
    takes it since 1.12.
    """
    name = _full_name(tree["name"], tree.get("namespace", space))
    definition = {key: value for key, value in tree.items() if key != "namespace"} | {"name": name}
    first = named.setdefault(name, definition)
    if "symbols" in tree and len({*tree["symbols"]}) < len(tree["symbols"]):
        raise ValueError(f"a symbol of {name} is there twice")
    if "fields" in tree and len({field["name"] for field in tree["fields"]}) < len(tree["fields"]):
        raise ValueError(f"a field of {name} is there twice")
    if tree["type"] in ("record", "error"):
        space = name.rpartition(".")[0]
        definition["fields"] = [field | {"type": _named(field["type"], space, named)} for field in tree["fields"]]
    if first is not definition and _meaning(first) != _meaning(definition):
        raise ValueError(f"redefined named type: {name}")
    return definition


def _meaning(definition: Mapping[str, Any]) -> dict[str, Any]:
    """What is the same in all definitions of a name."""
    attributes = {key: value for key, value in definition.items() if key not in ("doc", "aliases", "default")}
    fields = [
        {key: value for key, value in field.items() if key not in ("doc", "aliases")}
        | {"type": _outline(field["type"])}
        for field in definition.get("fields", ())
    ]
    return attributes | {"fields": fields}


def _outline(tree: Any) -> Any:
    """A type with the names of those that are defined in it."""
    if isinstance(tree, list):
        return [_outline(branch) for branch in tree]
    if isinstance(tree, str):
        return tree
    if "name" in tree:
        return tree["name"]
    return tree | {key: _outline(tree[key]) for key in ("items", "values") if key in tree}


def _with_connect_type(tree: dict[str, Any]) -> dict[str, Any]:
    return with_logical_type(_without_invalid_decimal(tree))


def _without_invalid_decimal(tree: dict[str, Any]) -> dict[str, Any]:
    """Avro wants a logical type that is invalid ignored."""
    if tree.get("logicalType") != "decimal":
        return tree
    precision, scale, size = (tree.get(key, 0) for key in ("precision", "scale", "size"))
    if type(precision) is type(scale) is type(size) is int and 0 <= scale <= precision > 0:
        digits = math.floor(math.log10(2) * (8 * size - 1))
        if tree.get("type") == "bytes" or (tree.get("type") == "fixed" and precision <= digits):
            return tree
    return {key: value for key, value in tree.items() if key != "logicalType"}


def _build(tree: Any, named: Mapping[str, Any], above: Nesting) -> Avro:
    above.count()
    if isinstance(tree, list):
        return Union(tuple(_build(branch, named, above) for branch in tree))
    if isinstance(tree, dict):
        return _defined(tree, named, above)
    if tree in _PRIMITIVES:
        return Primitive(tree)
    if tree not in named:
        raise UnsupportedSchema(f"not an Avro schema: type {tree} is not defined")
    return _build(named[tree], named, above)


def _defined(tree: Mapping[str, Any], named: Mapping[str, Any], above: Nesting) -> Avro:
    kind, aliases = tree["type"], tuple(tree.get("aliases", ()))
    match kind:
        case "record" | "error":
            name = tree["name"]
            inside = above.within(name, f"type {name}")
            fields = tuple(_field(field, named, inside) for field in tree["fields"])
            logical = VARIABLE_SCALE if tree.get("logicalType") == VARIABLE_SCALE else ""
            return Record(name, fields, _full(aliases, name), logical)
        case "enum":
            return Enum(tree["name"], tuple(tree["symbols"]), tree.get("default"), _full(aliases, tree["name"]))
        case "array":
            return Array(_build(tree["items"], named, above))
        case "map":
            return Map(_build(tree["values"], named, above))
        case "fixed":
            return Fixed(tree["name"], int(tree["size"]), *_logical(tree), aliases=_full(aliases, tree["name"]))
        case str() if kind in _PRIMITIVES:
            return Primitive(kind, *_logical(tree), of_connect=logical_type(kind, tree.get("connect.name")))
    return _build(kind, named, above)


def _field(tree: Any, named: Mapping[str, Any], above: Nesting) -> Field:
    default = json.dumps(tree.get("default"))
    aliases = tuple(tree.get("aliases", ()))
    return Field(tree["name"], _build(tree["type"], named, above), "default" in tree, default, aliases)


def _full(aliases: tuple[str, ...], name: str) -> tuple[str, ...]:
    """An alias without a namespace has that of the name it stands for."""
    return tuple(_full_name(alias, name.rpartition(".")[0]) for alias in aliases)


_LOGICAL = {
    "int": {"date", "time-millis", YEAR},
    "long": {
        "time-micros", "timestamp-millis", "timestamp-micros", "timestamp-nanos", "local-timestamp-millis",
        "local-timestamp-micros", "local-timestamp-nanos", NANO_TIME, MICRO_DURATION, NANO_DURATION,
    },
    "string": {"uuid", ZONED},
    "bytes": {"big-decimal"},
}  # fmt: skip


def _logical(tree: Mapping[str, Any]) -> tuple[str, int, int]:
    """Logical type, precision and scale. A logical type that is unknown or does not fit is ignored, as Avro says."""
    logical, kind = tree.get("logicalType"), tree["type"]
    if logical == "decimal":
        return "decimal", tree["precision"], tree.get("scale", 0)
    if kind == "fixed" and (logical, tree["size"]) in {("uuid", 16), ("duration", 12)}:
        return str(logical), 0, 0
    return (str(logical), 0, 0) if logical in _LOGICAL.get(kind, ()) else ("", 0, 0)


_ARROW = {
    "null": pa.null(), "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(),
    "double": pa.float64(), "bytes": pa.binary(), "string": pa.string(),
    "date": pa.date32(), "uuid": pa.string(),
    "timestamp-millis": pa.timestamp("us", "UTC"), "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("us"), "local-timestamp-micros": pa.timestamp("us"), ZONED: TIMESTAMP,
}  # fmt: skip


def say(avro: Avro) -> str:
    """What errors call the type."""
    match avro:
        case Union():
            return "a union"
        case Primitive(logical="decimal"):
            return f"decimal({avro.precision},{avro.scale})"
        case Fixed(logical="decimal"):
            return f"decimal({avro.precision},{avro.scale}) of {avro.size} bytes"
        case Primitive():
            return f"{avro.name} ({avro.logical})" if avro.logical else avro.name
        case Record() | Enum() | Fixed():
            return f"{type(avro).__name__.lower()} {avro.name}".strip()  # Connect's records in JSON may have no name
    return type(avro).__name__.lower()


def _decimal(avro: Primitive | Fixed) -> pa.DataType:
    if avro.scale > MAX_PRECISION:
        raise UnsupportedSchema(f"{say(avro)}: Spark's decimals have at most {MAX_PRECISION} digits")
    return pa.decimal128(min(avro.precision, MAX_PRECISION), avro.scale)


def _struct(avro: Record) -> pa.DataType:
    if avro.logical:  # a number of any scale
        return pa.string()
    if not avro.fields:
        raise UnsupportedSchema(f"record {avro.name} has no fields, and Spark cannot read such a struct")
    return pa.struct([pa.field(field.name, arrow_type(field.type)) for field in avro.fields])


def arrow_type(avro: Avro) -> pa.DataType:
    """The Arrow type of the table above. Raises UnsupportedSchema."""
    match avro:
        case Primitive(logical="decimal") | Fixed(logical="decimal"):
            return _decimal(avro)
        case Primitive():
            return _ARROW[avro.logical if avro.in_spark else avro.name]
        case Fixed():
            return pa.string() if avro.logical == "uuid" else pa.binary()
        case Enum():
            return pa.string()
        case Array():
            return pa.list_(pa.field("element", arrow_type(avro.items)))
        case Map():
            return pa.map_(pa.string(), pa.field("value", arrow_type(avro.values)))
        case Record():
            return _struct(avro)
        case Union():
            if not avro.present:
                return pa.null()
            if avro.single is not None:
                return arrow_type(avro.single)
            return pa.struct([pa.field(f"member{at}", arrow_type(branch)) for at, branch in enumerate(avro.present)])
