"""Values of Kafka Connect's JsonConverter with `schemas.enable`: each record has its schema beside it.

    {"schema": {"type": "struct", "fields": [{"field": "id", "type": "int64", "optional": false}, …]}, "payload": {…}}

A schema becomes one of Avro and a payload Avro's bytes, so that what a changed type is read as is decided once, for
both (avro_reading, avro_logical): the columns are those that the same values have behind an AvroConverter.

Records of a topic have the same few schemas, byte for byte, so their JSON is parsed once for each.

Source: Apache Kafka 4.4, `JsonConverter` and `JsonSchema` of connect-json.
"""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from spark_kafka_eos.dead_letters.causes import Cause
from spark_kafka_eos.kafka.wire.unsigned import write_unsigned
from spark_kafka_eos.registry.avro_reading import Incompatible, reader
from spark_kafka_eos.registry.avro_schema import NULL, Array, Avro, Field, Map, Primitive, Record, Union, arrow_type
from spark_kafka_eos.registry.client import LARGEST_TEXT
from spark_kafka_eos.registry.connect_types import DECIMAL, logical_type
from spark_kafka_eos.registry.decoding import Decoded, DecodeFault, decode_groups, unreadable
from spark_kafka_eos.registry.framing import Group
from spark_kafka_eos.registry.json_values import EXACT_JSON
from spark_kafka_eos.registry.nesting import Nesting, UnsupportedSchema
from spark_kafka_eos.registry.rows import ReadColumn

Encode = Callable[[Any], bytes]  # raises ValueError, TypeError, ArithmeticError and RecursionError

NO_SCHEMA = "the value is not an object of schema and payload, as JsonConverter writes it with schemas.enable"
_PRECISION = 64  # of a decimal whose schema has none, as in Connect's own conversion to Avro
_PRIMITIVES = {
    "int8": "int", "int16": "int", "int32": "int", "int64": "long", "float": "float", "double": "double",
    "boolean": "boolean", "string": "string", "bytes": "bytes",
}  # fmt: skip
_ENTRY = "entry"  # the name of a record that JSON has as an array of key and value
_KEY, _VALUE = "key", "value"


# -- schemas


def parse(text: str) -> Avro:
    """The schema of JSON `text`: that of a record, or a whole record. Raises UnsupportedSchema."""
    try:
        tree = EXACT_JSON.decode(text)
        if isinstance(tree, dict) and "payload" in tree:
            tree = tree["schema"]
        return avro_of(tree)
    except UnsupportedSchema:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise UnsupportedSchema(f"not a schema of Kafka Connect: {type(error).__name__}") from error


def avro_of(tree: Mapping[str, Any]) -> Avro:
    """The schema of Connect whose JSON, as JsonConverter has it, is `tree`, in which numbers with a point are Decimal.
    Raises UnsupportedSchema, and for what is no such schema ValueError, KeyError, TypeError, AttributeError,
    ArithmeticError and RecursionError.
    """
    return _type(tree, Nesting())


def _type(tree: Mapping[str, Any], above: Nesting) -> Avro:
    above.count()
    kind = _required(tree, above)
    return Union((NULL, kind)) if tree.get("optional") else kind


def _required(tree: Mapping[str, Any], above: Nesting) -> Avro:
    name = tree.get("name")
    match tree["type"]:
        case "struct":
            fields = tuple(_field(field, above) for field in tree["fields"])
            return Record("", fields, logical=logical_type("record", name))
        case "array":
            return Array(_type(tree["items"], above))
        case "map":
            key, value = _type(tree["keys"], above), _type(tree["values"], above)
            if isinstance(key, Primitive) and key.name == "string":  # AvroConverter leaves out its name, too
                return Map(value)
            return Array(Record(_ENTRY, (Field(_KEY, key), Field(_VALUE, value))))
        case "bytes" if name == DECIMAL:
            return _decimal(tree.get("parameters") or {})
    avro = _PRIMITIVES[tree["type"]]
    return Primitive(avro, logical_type(avro, name))


def _decimal(parameters: Mapping[str, str]) -> Primitive:
    scale = int(parameters.get("scale", "0"))
    if scale < 0:
        raise UnsupportedSchema("a decimal with a scale below 0, which Spark does not have")
    return Primitive(
        "bytes", "decimal", max(int(parameters.get("connect.decimal.precision", _PRECISION)), scale), scale
    )


def _field(tree: Mapping[str, Any], above: Nesting) -> Field:
    """A field that a record's schema lacks has its default; an optional one is null else."""
    kind = _type(tree, above)
    default = _default(tree.get("default"), kind)
    has_default = default is not None or isinstance(kind, Union)
    return Field(str(tree["field"]), kind, has_default, json.dumps(default, default=float))


def _default(value: Any, kind: Avro) -> Any:
    """As Avro has it: bytes are text of the code points 0 to 255, an entry is a record. One of another type stays so,
    and is refused where it is needed.
    """
    match kind:
        case _ if value is None:
            return None
        case Union():
            return _default(value, kind.branches[1])
        case Record() if kind.name == _ENTRY:
            return {
                field.name: _default(part, field.type) for field, part in zip(kind.fields, _pair(value), strict=True)
            }
        case Record() if isinstance(value, dict):
            types = {field.name: field.type for field in kind.fields}
            return {name: _default(part, types[name]) for name, part in value.items() if name in types}
        case Array() if isinstance(value, dict) and _is_object(kind):
            return _default([*value.items()], kind)
        case Array() if isinstance(value, list):
            return [_default(item, kind.items) for item in value]
        case Map() if isinstance(value, dict):
            return {name: _default(item, kind.values) for name, item in value.items()}
        case Primitive(name="bytes"):
            content = _unscaled(value, kind.scale) if kind.logical == "decimal" else _bytes(value)
            return content.decode("latin-1")
    return value


# -- values


def encoder(avro: Avro) -> Encode:
    """From a payload's JSON, in which numbers with a point are Decimal, to Avro's bytes."""
    match avro:
        case Union():
            return _optional(encoder(avro.branches[1]))
        case Record() if avro.name == _ENTRY:
            key, value = (encoder(field.type) for field in avro.fields)
            return _entry(key, value)
        case Record():
            return _record([(field.name, encoder(field.type)) for field in avro.fields])
        case Array():
            encode = _array(encoder(avro.items))
            return _object(encode) if _is_object(avro) else encode
        case Map():
            return _map(encoder(avro.values))
        case Primitive(logical="decimal"):
            scale = avro.scale
            return lambda value: _sized(_unscaled(value, scale))
        case Primitive():
            return _ENCODERS[avro.name]
    raise AssertionError(avro)


def _optional(encode: Encode) -> Encode:
    return lambda value: b"\0" if value is None else b"\2" + encode(value)


def _record(fields: list[tuple[str, Encode]]) -> Encode:
    def encode(value: Any) -> bytes:
        if not isinstance(value, dict):
            raise TypeError
        return b"".join([encode_field(value.get(name)) for name, encode_field in fields])

    return encode


def _array(encode_item: Encode) -> Encode:
    def encode(value: Any) -> bytes:
        if not isinstance(value, list):
            raise TypeError
        return _block([encode_item(item) for item in value])

    return encode


def _is_object(avro: Array) -> bool:
    """Whether JsonConverter writes the array as an object: a map whose keys are strings that may be null. Its columns
    are those of an AvroConverter, which writes it as an array, and so does JsonSchemaConverter.
    """
    if not (isinstance(avro.items, Record) and avro.items.name == _ENTRY):
        return False
    key = avro.items.fields[0].type
    return isinstance(key, Union) and isinstance(key.branches[1], Primitive) and key.branches[1].name == "string"


def _object(encode_entries: Encode) -> Encode:
    return lambda value: encode_entries([*value.items()] if isinstance(value, dict) else value)


def _map(encode_value: Encode) -> Encode:
    def encode(value: Any) -> bytes:
        if not isinstance(value, dict):
            raise TypeError
        return _block([_string(key) + encode_value(item) for key, item in value.items()])

    return encode


def _block(items: list[bytes]) -> bytes:
    return b"".join([_long(len(items)), *items, b"\0" if items else b""])


def _entry(encode_key: Encode, encode_value: Encode) -> Encode:
    def encode(value: Any) -> bytes:
        key, item = _pair(value)
        return encode_key(key) + encode_value(item)

    return encode


def _pair(entry: Any) -> list[Any]:
    """The key and the value of an entry."""
    if isinstance(entry, dict):  # as JsonSchemaConverter writes it
        entry = [entry.get(_KEY), entry.get(_VALUE)] if len(entry) == 2 else []
    key, value = entry
    return [key, value]


def _integer(bits: int) -> Encode:
    def encode(value: Any) -> bytes:
        if type(value) is not int or not -(1 << bits - 1) <= value < 1 << bits - 1:
            raise ValueError
        return _long(value)

    return encode


def _long(value: int) -> bytes:
    folded = (value << 1) ^ (value >> 63)
    return _BYTES[folded] if folded < 0x80 else write_unsigned(folded)


_BYTES = [bytes([byte]) for byte in range(0x80)]  # most numbers: made once


def _float(code: str) -> Encode:
    pack = struct.Struct(code).pack

    def encode(value: Any) -> bytes:
        if isinstance(value, bool) or (isinstance(value, str) and value not in {"NaN", "Infinity", "-Infinity"}):
            raise TypeError
        number = float(value)
        if math.isinf(number) and not isinstance(value, str):
            raise OverflowError
        return bytes(pack(number))

    return encode


def _boolean(value: Any) -> bytes:
    if not isinstance(value, bool):
        raise TypeError
    return b"\1" if value else b"\0"


def _sized(content: bytes) -> bytes:
    return _long(len(content)) + content


def _string(value: Any) -> bytes:
    if not isinstance(value, str):
        raise TypeError
    return _sized(value.encode())


def _bytes(value: Any) -> bytes:
    return bytes(base64.b64decode(value, validate=True))


def _unscaled(value: Any, scale: int) -> bytes:
    """A decimal as the converter writes it: its bytes, or with `decimal.format=NUMERIC` a number."""
    if isinstance(value, str):
        return _bytes(value)
    sign, digits, exponent = Decimal(value).as_tuple()
    zeros = scale + exponent if isinstance(exponent, int) else -1
    if isinstance(value, bool) or not 0 <= zeros <= _PRECISION or len(digits) > _PRECISION:
        raise ValueError
    number: int = int("".join(map(str, digits))) * 10**zeros
    number = -number if sign else number
    return number.to_bytes((number.bit_length() + 8) // 8, "big", signed=True)


_ENCODERS: dict[str, Encode] = {
    "int": _integer(32),
    "long": _integer(64),
    "float": _float("<f"),
    "double": _float("<d"),
    "boolean": _boolean,
    "string": _string,
    "bytes": lambda value: _sized(_bytes(value)),
}


# -- columns


class _Writer(NamedTuple):
    """How the records of one schema are read."""

    encode: Encode
    read: ReadColumn


# Of schemas in a process, and bytes of their texts: who writes to a topic chooses them.
_MOST_WRITERS, _MOST_TEXT = 1_000, 10_000_000


class ConnectFormat:
    """What records are read as: a schema of Connect. Raises UnsupportedSchema."""

    def __init__(self, schema: str) -> None:
        self._schema = parse(schema)
        self.arrow: pa.DataType = arrow_type(self._schema)
        self._writers: dict[bytes, _Writer | DecodeFault] = {}
        self._text = 0  # bytes of their schemas

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """The column of the payloads. A value that is null, or whose payload is, is null."""
        bodies: list[bytes | None] = [None] * len(values)
        faults: dict[int, DecodeFault] = {}
        groups: dict[bytes, tuple[ReadColumn, list[int]]] = {}
        start = b""  # of the last record: its schema
        for row, value in enumerate(values.to_pylist()):
            if value is None:
                continue
            try:
                start, payload = _parted(value, start)
            except (ValueError, TypeError, KeyError, ArithmeticError, RecursionError):
                faults[row] = DecodeFault(Cause.NOT_FRAMED, NO_SCHEMA, None)
                continue
            if payload is None:
                continue
            writer = self._writer(start)
            if isinstance(writer, DecodeFault):
                faults[row] = writer
                continue
            try:
                bodies[row] = writer.encode(payload)
                groups.setdefault(start, (writer.read, []))[1].append(row)
            except (ValueError, TypeError, ArithmeticError, RecursionError):
                faults[row] = DecodeFault(Cause.UNDECODABLE, "the payload does not fit the record's own schema", None)
        readers = ((Group(None, np.array(rows), 0), read) for read, rows in groups.values())
        return decode_groups(pa.array(bodies, pa.binary()), readers, self.arrow, faults)

    def _writer(self, start: bytes) -> _Writer | DecodeFault:
        writer = self._writers.get(start)
        if writer is None:
            self._text += len(start)
            if len(self._writers) == _MOST_WRITERS or self._text > _MOST_TEXT:
                self._writers.clear()
                self._text = len(start)
            try:
                if len(start) > LARGEST_TEXT:
                    raise UnsupportedSchema(f"it has more than {LARGEST_TEXT:,} bytes")
                schema = parse(f"{start.decode()}null}}")
                writer = _Writer(encoder(schema), reader(schema, self._schema))
            except (Incompatible, UnsupportedSchema) as error:
                writer = unreadable(None, str(error))
            except RecursionError:
                writer = unreadable(None, "it is nested too deeply")
            self._writers[start] = writer
        return writer


@lru_cache(maxsize=64)
def format_of(schema: str) -> ConnectFormat:
    """This process's. Raises UnsupportedSchema."""
    return ConnectFormat(schema)


_SCHEMA, _PAYLOAD = b'{"schema":', b',"payload":'
_BLANKS = " \t\r\n"  # in JSON


def _parted(value: bytes, start: bytes) -> tuple[bytes, Any]:
    """A record up to its payload, and the payload. `start` is that of the record before, b"" for none. Raises
    ValueError, TypeError, KeyError, ArithmeticError and RecursionError.
    """
    if not start or not value.startswith(start):
        start = _start(value)
    if start:
        text = value[len(start) :].decode().strip(_BLANKS)
        payload, end = EXACT_JSON.raw_decode(text)
        if text[end:] == "}":
            return start, payload
    record = EXACT_JSON.decode(value.decode())  # as another program has written it
    payload = record["payload"]
    if record["schema"] is None and payload is not None:
        raise ValueError
    return _SCHEMA + json.dumps(record["schema"], default=float).encode() + _PAYLOAD, payload


def _start(value: bytes) -> bytes:
    """A record of the converter up to its payload; b"" for other bytes."""
    if not value.startswith(_SCHEMA + b"{"):
        return b""
    text = value.decode()
    _, end = EXACT_JSON.raw_decode(text, len(_SCHEMA))
    start = text[:end].encode() + _PAYLOAD
    return start if value.startswith(start) else b""
