"""Schemas of the three types from a seed, values of them, and what becomes of values on their way or in bad hands."""

from __future__ import annotations

import base64
import io
import json
import random
from collections.abc import Iterator
from typing import Any

import fastavro
from fastavro.utils import generate_many
from google.protobuf import descriptor_pb2

from spark_kafka_eos.registry.client import SchemaText

_AVRO_LEAVES: tuple[Any, ...] = (
    "null", "boolean", "int", "long", "float", "double", "string", "bytes",
    {"type": "int", "logicalType": "date"}, {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 3},
    {"type": "string", "logicalType": "uuid"},
)  # fmt: skip
_JSON_LEAVES: tuple[dict[str, Any], ...] = (
    {"type": "string"}, {"type": "integer"}, {"type": "number"}, {"type": "boolean"}, {}, {"enum": ["a", 1, None]},
    {"type": ["string", "null"]}, {"type": "string", "pattern": "^(a+)+$"}, {"type": "number", "multipleOf": 0.01},
)  # fmt: skip
_PROTOBUF_LEAVES = [kind for kind in range(1, 19) if kind not in (10, 11, 14)]  # no groups, messages, enums


def schema(chance: random.Random, kind: str) -> SchemaText:
    """A schema of `kind`, a record of up to six fields at the top."""
    match kind:
        case "AVRO":
            return SchemaText("AVRO", json.dumps(_avro_record(chance, 0)))
        case "JSON":
            return SchemaText("JSON", json.dumps(_json_object(chance, 0)))
    made = descriptor_pb2.FileDescriptorProto(name=f"f{chance.getrandbits(60)}.proto", syntax="proto3", package="f")
    _protobuf_message(chance, made.message_type.add(name="Top"), ".f.Top", 0)
    return SchemaText("PROTOBUF", base64.b64encode(made.SerializeToString()).decode())


def changed(chance: random.Random, written: SchemaText) -> SchemaText:
    """Another schema, or the same one with a field less, more, or of another type, as schemas evolve."""
    if written.kind != "AVRO" or chance.random() < 0.3:
        return schema(chance, written.kind)
    record = json.loads(written.text)
    fields = record["fields"]
    match chance.randrange(3):
        case 0:
            del fields[chance.randrange(len(fields))]
        case 1:
            fields.append({"name": "added", "type": ["null", "string"], "default": None})
        case _:
            chance.choice(fields)["type"] = chance.choice(_AVRO_LEAVES)
    return SchemaText("AVRO", json.dumps(record)) if fields else schema(chance, "AVRO")


def bodies(chance: random.Random, written: SchemaText, count: int) -> Iterator[bytes]:
    """`count` bodies: those of values of the schema, the same damaged, and bytes that have nothing to do with it."""
    good = [body for body in _values(chance, written, 1 + count // 10) if body] or [b"\0"]
    for _ in range(count):
        match chance.randrange(5):
            case 0 | 1:
                yield chance.choice(good)
            case 2 | 3:
                yield _damaged(chance, chance.choice(good), chance.choice(good))
            case _:
                yield chance.randbytes(chance.randrange(40))


def _damaged(chance: random.Random, body: bytes, other: bytes) -> bytes:
    damaged = bytearray(body)
    at = chance.randrange(len(body))
    match chance.randrange(5):
        case 0:
            damaged[at] ^= 1 << chance.randrange(8)
        case 1:
            del damaged[at:]
        case 2:
            damaged[at:at] = chance.randbytes(chance.randrange(1, 9))
        case 3:
            damaged[at:] = other[chance.randrange(len(other)) :]
        case _:
            damaged[at : at + 1] = b"\xff" * chance.randrange(1, 11)  # a long varint
    return bytes(damaged)


def _avro_record(chance: random.Random, depth: int) -> dict[str, Any]:
    fields = [{"name": f"f{at}", "type": _avro(chance, depth + 1)} for at in range(chance.randrange(1, 7))]
    return {"type": "record", "name": f"R{chance.getrandbits(60)}", "fields": fields}


def _avro(chance: random.Random, depth: int) -> Any:
    match chance.randrange(10 if depth < 4 else 5):
        case 5:
            return _avro_record(chance, depth)
        case 6:
            return {"type": "array", "items": _avro(chance, depth + 1)}
        case 7:
            return {"type": "map", "values": _avro(chance, depth + 1)}
        case 8:
            return ["null", chance.choice(_AVRO_LEAVES[1:])]
        case 9:
            return {"type": "enum", "name": f"E{chance.getrandbits(60)}", "symbols": ["A", "B", "C"]}
    return chance.choice(_AVRO_LEAVES)


def _json_object(chance: random.Random, depth: int) -> dict[str, Any]:
    found = {f"f{at}": _json(chance, depth + 1) for at in range(chance.randrange(1, 7))}
    required = [name for name in found if chance.random() < 0.2]
    return {"type": "object", "properties": found, "required": required}


def _json(chance: random.Random, depth: int) -> dict[str, Any]:
    match chance.randrange(9 if depth < 4 else 5):
        case 5:
            return _json_object(chance, depth)
        case 6:
            return {"type": "array", "items": _json(chance, depth + 1)}
        case 7:
            return {"type": "object", "additionalProperties": _json(chance, depth + 1)}
        case 8:
            return {"anyOf": [_json(chance, depth + 1), {"type": "null"}]}
    return chance.choice(_JSON_LEAVES)


def _protobuf_message(chance: random.Random, message: descriptor_pb2.DescriptorProto, name: str, depth: int) -> None:
    for number in range(1, chance.randrange(2, 8)):
        field = message.field.add(name=f"f{number}", number=number, label=chance.choice((1, 3)))
        if depth < 3 and chance.random() < 0.25:
            field.type, field.type_name = 11, f"{name}.N{number}"
            _protobuf_message(chance, message.nested_type.add(name=f"N{number}"), field.type_name, depth + 1)
        else:
            field.type = chance.choice(_PROTOBUF_LEAVES)


def _values(chance: random.Random, written: SchemaText, count: int) -> Iterator[bytes]:
    match written.kind:
        case "AVRO":
            parsed = fastavro.parse_schema(json.loads(written.text))
            random.seed(chance.random())  # fastavro's generator uses the module's
            for value in generate_many(parsed, count):
                written_to = io.BytesIO()
                fastavro.schemaless_writer(written_to, parsed, value)
                yield written_to.getvalue()
        case "JSON":
            for _ in range(count):
                yield json.dumps(_json_value(chance, json.loads(written.text))).encode()
        case _:
            message = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(written.text)).message_type[0]
            for _ in range(count):
                yield b"\0" + _protobuf_value(chance, message)  # the index of the first message


def _json_value(chance: random.Random, part: dict[str, Any]) -> Any:
    if chance.random() < 0.03:
        return chance.choice([None, True, 10**30, 1e308, -0.0, "\u0000", "Zoë", [], {}])
    if "anyOf" in part:
        return None if chance.random() < 0.3 else _json_value(chance, part["anyOf"][0])
    match part.get("type"):
        case "object" if "properties" in part:
            return {
                name: _json_value(chance, each) for name, each in part["properties"].items() if chance.random() < 0.9
            }
        case "object":
            return {f"k{at}": _json_value(chance, part["additionalProperties"]) for at in range(chance.randrange(3))}
        case "array":
            return [_json_value(chance, part["items"]) for _ in range(chance.randrange(3))]
        case "integer":
            return chance.randrange(-(2**63), 2**63)
        case "number":
            return chance.randrange(-1000, 1000) / 100
        case "boolean":
            return chance.random() < 0.5
    return "a" * chance.randrange(30)


def _protobuf_value(chance: random.Random, message: descriptor_pb2.DescriptorProto) -> bytes:
    """A message in the wire format, written by hand: also with fields that it does not have."""
    body = b""
    nested = {each.name: each for each in message.nested_type}
    for field in message.field:
        inner = nested.get(field.type_name.rpartition(".")[2])
        if inner is not None:
            content = _protobuf_value(chance, inner)
            body += _varint(field.number << 3 | 2) + _varint(len(content)) + content
        elif field.type in (9, 12):
            content = b"x" * chance.randrange(5)
            body += _varint(field.number << 3 | 2) + _varint(len(content)) + content
        elif field.type in (1, 6, 16):
            body += _varint(field.number << 3 | 1) + chance.randbytes(8)
        elif field.type in (2, 7, 15):
            body += _varint(field.number << 3 | 5) + chance.randbytes(4)
        else:
            body += _varint(field.number << 3) + _varint(chance.getrandbits(chance.randrange(1, 64)))
    return body if chance.random() < 0.8 else body + _varint(99 << 3) + _varint(7)


def _varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])
