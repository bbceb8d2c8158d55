"""A value whose whole schema is one type: the bytes of Confluent's serializer, and what its deserializer reads."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from spark_kafka_eos import confluent_decoder, confluent_encoder

# Some begin as a length would, and some are empty.
BYTES = [b"abc", b"\x04ab", b"", b"\0", b"\x80", b"\x06abc", b"\xff" * 300]
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
RECORD = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "bytes"}]}
TYPES: list[tuple[Any, list[Any]]] = [
    ("bytes", BYTES),
    ({"type": "bytes"}, BYTES),
    ({"type": "bytes", "connect.name": "blob"}, BYTES),
    (["null", "bytes"], [*BYTES, None]),
    (["bytes"], BYTES),
    ("string", ["", "é", "abc"]),
    ({"type": "string"}, ["", "é", "abc"]),
    ("int", [-1, 2**31 - 1]),
    ("long", [-(2**62), 0]),
    ("boolean", [True, False]),
    ("float", [1.5]),
    ("double", [-0.1]),
    ({"type": "int", "logicalType": "date"}, [date(2020, 1, 1)]),
    ({"type": "fixed", "name": "F", "size": 2}, [b"ab", b"\2\0"]),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, ["B", "A"]),
    ({"type": "array", "items": "bytes"}, [[b"x", b""], []]),
    ({"type": "map", "values": "bytes"}, [[("a", b"x")], []]),
    (RECORD, [{"a": b"x"}, {"a": b""}]),
    (
        {"type": "fixed", "name": "D", "size": 4, "logicalType": "decimal", "precision": 9, "scale": 2},
        [Decimal("-1.25")],
    ),
]
CONTEXT = SerializationContext("sales", MessageField.VALUE)


@pytest.mark.parametrize(("schema", "values"), TYPES, ids=[str(schema) for schema, _ in TYPES])
def test_a_type_alone_is_written_and_read_as_confluents_classes_do(server, client, schema, values):
    """Bytes are written as they are, without a length, if they are all that the schema says."""
    plain = [dict(value) if isinstance(schema, dict) and schema["type"] == "map" else value for value in values]
    serialize, deserialize = AvroSerializer(client, json.dumps(schema)), AvroDeserializer(client)
    written = [serialize(value, CONTEXT) for value in plain]
    if None in values:
        written[values.index(None)] = None  # `to_confluent` leaves null as it is: a tombstone
    decoder, encoder = (made(server.url, topic="sales") for made in (confluent_decoder, confluent_encoder))
    assert decoder(pa.array(written, pa.binary())).to_pylist() == values
    encoded = encoder(pa.array(values, encoder.type)).to_pylist()
    assert encoded == written
    for value, witness in zip(encoded, plain, strict=True):
        if value is not None and len(value) > 5:  # Confluent's deserializer refuses an empty one
            assert deserialize(value, CONTEXT) == witness


@pytest.mark.parametrize("schema", [DECIMAL, json.loads(json.dumps(DECIMAL).replace("2}", "0}"))], ids=str)
def test_a_decimal_alone_is_its_bytes_as_confluents_classes_have_it(server, client, schema):
    unscaled = [125, -1, 0, 999_999_999, 1 << 9]
    values = [Decimal(number).scaleb(-schema["scale"]) for number in unscaled]
    raw = [number.to_bytes((number.bit_length() + 8) // 8, "big", signed=True) for number in unscaled]
    serialize = AvroSerializer(client, json.dumps(schema))
    written = [serialize(value, CONTEXT) for value in raw]
    decoder, encoder = (made(server.url, topic="sales") for made in (confluent_decoder, confluent_encoder))
    assert decoder(pa.array(written, pa.binary())).to_pylist() == values
    encoded = encoder(pa.array(values, encoder.type)).to_pylist()
    assert encoded == written
    assert [AvroDeserializer(client)(value, CONTEXT) for value in encoded] == raw


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ('["null", "bytes"]', BYTES[:3]),
        ('["null", "int", "bytes"]', [{"member0": None, "member1": value} for value in BYTES[:3]]),
        ('"string"', ["abc", "\x04ab", ""]),
        (json.dumps(DECIMAL), [Decimal(0x616263).scaleb(-2), Decimal(0x046162).scaleb(-2), Decimal("0.00")]),
    ],
)
def test_bytes_alone_are_read_as_what_the_querys_schema_makes_of_bytes(server, client, wanted, expected):
    serialize = AvroSerializer(client, '"bytes"')
    written = [serialize(value, CONTEXT) for value in BYTES[:3]]
    decoder = confluent_decoder(server.url, topic="sales", schema=wanted)
    assert decoder(pa.array(written, pa.binary())).to_pylist() == expected


def test_what_is_no_bytes_alone_keeps_its_length_if_the_querys_schema_is(server, client):
    serialize = AvroSerializer(client, '"string"')
    written = [serialize(value, CONTEXT) for value in ("abc", "")]
    decoder = confluent_decoder(server.url, topic="sales", schema='"bytes"')
    assert decoder(pa.array(written, pa.binary())).to_pylist() == [b"abc", b""]
