"""JSON Schema as Kafka Connect's JsonSchemaConverter writes it, read as what Connect means by it.

| Connect | JSON Schema |
|---|---|
| int8, int16, int32, int64; float32, float64 | `integer`; `number`, with `connect.type` |
| bytes | `string`: base64, with `connect.type` |
| a name, such as `org.apache.kafka.connect.data.Timestamp` | `title` |
| a decimal's scale | `connect.parameters` |
| optional | `oneOf` of null and the type |
| the order of fields | `connect.index` |
| a map | `additionalProperties` |
| a map whose keys are no strings, or may be null | an array of objects with `key` and `value` |

A schema becomes one of Connect and a value Avro's bytes, as in connect_json and for the same reason: what a type that
changed is read as is decided once.

Source: Confluent Schema Registry, `JsonSchemaData` of json-schema-converter.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from spark_kafka_eos.dead_letters.causes import Cause
from spark_kafka_eos.registry.avro_reading import reader
from spark_kafka_eos.registry.avro_schema import Avro, arrow_type
from spark_kafka_eos.registry.client import SchemaText
from spark_kafka_eos.registry.connect_json import avro_of, encoder
from spark_kafka_eos.registry.json_values import EXACT_JSON
from spark_kafka_eos.registry.nesting import UnsupportedSchema
from spark_kafka_eos.registry.rows import ReadColumn, Rows, rows_of

# By JSON's type and `connect.type`, the names that connect_json has; the latter may be missing.
_PRIMITIVES: Mapping[tuple[Any, Any], str] = {
    ("integer", "int8"): "int8", ("integer", "int16"): "int16", ("integer", "int32"): "int32",
    ("integer", "int64"): "int64", ("integer", None): "int64", ("number", "float32"): "float",
    ("number", "float64"): "double", ("number", None): "double", ("number", "bytes"): "bytes",
    ("string", "bytes"): "bytes", ("string", None): "string", ("boolean", None): "boolean",
}  # fmt: skip


class ConnectJsonFormat:
    """Reads with a schema of the converter. Raises UnsupportedSchema for another one."""

    def __init__(self, text: SchemaText) -> None:
        self._schema = _parsed(text)
        self.arrow: pa.DataType = arrow_type(self._schema)
        self.name: str = json.loads(text.text).get("title", "")

    def reader(self, written: SchemaText) -> ReadColumn:
        schema = _parsed(written)
        encode, read = encoder(schema), reader(schema, self._schema)

        def read_column(rows: Rows) -> pa.Array:
            data = rows.data.data
            bodies = []
            for number, (at, end) in enumerate(zip(rows.at.tolist(), rows.end.tolist(), strict=True)):
                try:
                    bodies.append(encode(EXACT_JSON.decode(bytes(data[at:end]).decode())))
                except (ValueError, TypeError, ArithmeticError, RecursionError):
                    bodies.append(b"")
                    rows.note_one(number, Cause.UNDECODABLE)
            encoded = rows_of(pa.array(bodies, pa.binary()))
            column = read(encoded)
            encoded.finish()
            for number in np.flatnonzero(encoded.faults.cause).tolist():
                cause = encoded.faults.of(number)
                assert cause is not None
                wrong = np.arange(len(rows)) == number
                rows.note(wrong, cause, encoded.faults.reasons.get(number, ""))
            rows.at = rows.end.copy()
            return column

        return read_column

    def write(self, column: pa.Array, prefix: bytes) -> pa.BinaryArray:
        raise NotImplementedError("connect_types is for reading")


def _parsed(text: SchemaText) -> Avro:
    """Raises UnsupportedSchema."""
    if text.references:
        raise _of_others("a reference")
    try:
        return avro_of(_connect(EXACT_JSON.decode(text.text)))
    except UnsupportedSchema:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise _of_others(type(error).__name__) from error


def _of_others(what: str) -> UnsupportedSchema:
    return UnsupportedSchema(f"connect_types reads what Kafka Connect's JsonSchemaConverter writes, not {what}")


def _connect(tree: Mapping[str, Any]) -> dict[str, Any]:
    """A schema as connect_json has it."""
    if "oneOf" in tree:
        branches = [branch for branch in tree["oneOf"] if branch.get("type") != "null"]
        if len(branches) != 1:
            raise _of_others("a union of several types")
        return _connect(branches[0]) | {"optional": len(tree["oneOf"]) > 1}
    made = {"name": tree.get("title"), "parameters": tree.get("connect.parameters"), "default": tree.get("default")}
    return {"optional": False, **made, **_structure(tree)}


def _structure(tree: Mapping[str, Any]) -> dict[str, Any]:
    kind, of_connect = tree.get("type"), tree.get("connect.type")
    if "enum" in tree and all(isinstance(symbol, str) for symbol in tree["enum"]):
        return {"type": "string"}
    primitive = _PRIMITIVES.get((kind, of_connect))
    if primitive is not None:
        return {"type": primitive}
    match kind:
        case "array" if of_connect == "map":
            entry = tree["items"]["properties"]
            return {"type": "map", "keys": _connect(entry["key"]), "values": _connect(entry["value"])}
        case "array":
            return {"type": "array", "items": _connect(tree["items"])}
        case "object" if tree.get("properties"):
            fields = [{"field": name, **_connect(part)} for name, part in _in_order(tree["properties"])]
            return {"type": "struct", "fields": fields}
        case "object" if isinstance(tree.get("additionalProperties"), dict):
            return {"type": "map", "keys": {"type": "string"}, "values": _connect(tree["additionalProperties"])}
    words = ", ".join(sorted(str(word) for word in tree)[:5])
    raise _of_others(f"a schema with {words}" if words else "an empty schema")


def _in_order(properties: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, Mapping[str, Any]]]:
    """As the fields were in Connect's struct; JSON's own order, if the schema has none."""
    return sorted(properties.items(), key=lambda part: part[1].get("connect.index", 0))
