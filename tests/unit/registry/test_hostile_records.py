"""Whoever writes a record chooses its bytes and its schema: neither stops a query, nor costs it more than a bound."""

from __future__ import annotations

import base64
import json
import socket
import time

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, struct_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_eos.dead_letters.causes import Cause
from spark_kafka_eos.registry import client
from spark_kafka_eos.registry.arrow import confluent_encoder
from spark_kafka_eos.registry.avro_schema import parse
from spark_kafka_eos.registry.client import Registry, SchemaText, SchemaType
from spark_kafka_eos.registry.decoding import _passes, decode
from spark_kafka_eos.registry.formats import QuerySchema, format_of
from spark_kafka_eos.registry.framing import framed as groups_of
from spark_kafka_eos.registry.nesting import UnsupportedSchema

JSON_SCHEMA = json.dumps({
    "properties": {
        "name": {"type": "string"},
        "count": {"type": "integer"},
        "price": {"type": "number"},
        "step": {"type": "number", "multipleOf": 0.01},
        "labels": {"type": "object", "additionalProperties": {"type": "integer"}},
    },
})  # fmt: skip
GOOD = b'{"name": "a", "count": 1}'


def value_file() -> str:
    """A message with a field of google.protobuf.Value."""
    made = descriptor_pb2.FileDescriptorProto(name="any.proto", syntax="proto3", package="p")
    made.dependency.append("google/protobuf/struct.proto")
    message = made.message_type.add(name="Any")
    message.field.add(name="any", number=1, type=11, label=1, type_name=".google.protobuf.Value")
    return base64.b64encode(made.SerializeToString()).decode()


def framed(schema_id: int, body: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + body


def decoded(server, kind: SchemaType, schema: str, bodies: list[bytes], *, written: str | None = None):
    schema_id = server.register("any-value", written or schema, kind)
    values = pa.array([framed(schema_id, body) for body in bodies], pa.binary())
    return decode(values, None, Registry.of(server.url), QuerySchema(SchemaText(kind, schema)))


@pytest.mark.parametrize(
    ("body", "cause"),
    [
        (b'{"name": "\\ud800"}', Cause.INCOMPATIBLE),
        (b'{"labels": {"\\ud800": 1}}', Cause.UNDECODABLE),
        (b'{"count": 1e400}', Cause.OUT_OF_RANGE),
        (b'{"price": 1e400}', Cause.OUT_OF_RANGE),
        (b'{"step": 1e400}', Cause.OUT_OF_RANGE),
        (b'{"step": ' + b"9" * 400 + b"}", Cause.OUT_OF_RANGE),
        (b'{"name": "a", "other": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", Cause.UNDECODABLE),
    ],
    ids=["half of a pair", "in a key", "an infinite integer", "an infinite number", "its multiple", "long", "nested"],
)
def test_json_that_python_reads_and_spark_cannot_hold_is_a_fault_of_its_row(server, body, cause):
    found = decoded(server, "JSON", JSON_SCHEMA, [GOOD, body, GOOD])
    assert [row and row["name"] for row in found.values.to_pylist()] == ["a", None, "a"]
    assert {row: fault.cause for row, fault in found.faults.items()} == {1: cause}


def test_a_protobuf_value_that_json_cannot_hold_is_a_fault_of_its_row(server):
    bodies = [
        b"\0\x0a" + bytes([value.ByteSize()]) + value.SerializeToString()
        for number in (1.0, float("nan"), 2.0, float("inf"), 3.0)
        for value in [struct_pb2.Value(number_value=number)]
    ]
    found = decoded(server, "PROTOBUF", value_file(), bodies)
    assert [row and row["any"] for row in found.values.to_pylist()] == ["1.0", None, "2.0", None, "3.0"]
    assert {row: fault.cause for row, fault in found.faults.items()} == dict.fromkeys([1, 3], Cause.UNDECODABLE)
    assert "cannot be decoded with schema 1: ValueError" in found.faults[1].message


def test_a_schema_whose_reference_leaves_the_registry_is_a_fault_of_its_rows_and_nobody_is_asked(server):
    with socket.create_server(("127.0.0.1", 0)) as elsewhere:
        elsewhere.settimeout(0)
        lost = json.dumps({"properties": {"name": {"$ref": f"http://127.0.0.1:{elsewhere.getsockname()[1]}/a.json"}}})
        found = decoded(server, "JSON", JSON_SCHEMA, [GOOD, GOOD], written=lost)
        with pytest.raises(BlockingIOError):
            elsewhere.accept()
    assert found.values.null_count == 2
    assert {fault.cause for fault in found.faults.values()} == {Cause.INCOMPATIBLE}
    assert "nothing is found under one of its references" in found.faults[0].message


@pytest.mark.parametrize(
    "pattern", ["^(a+)+$", "^(?=(a+)+$)a", r"^(a|a)*\1$", "^(a?){100}a{100}$"], ids=["plain", "ahead", "back", "many"]
)
def test_a_schemas_pattern_takes_a_bounded_time_whatever_the_value(server, pattern):
    """Python's `re` takes seconds for 24 of these characters, and twice as long for each one more."""
    slow = json.dumps({"properties": {"name": {"type": "string", "pattern": pattern}}})
    body = json.dumps({"name": "a" * 5_000 + "!"}).encode()
    started = time.process_time()
    found = decoded(server, "JSON", JSON_SCHEMA, [body] * 10, written=slow)
    assert time.process_time() - started < 2.5
    assert {fault.cause for fault in found.faults.values()} == {Cause.UNDECODABLE}
    assert len(found.faults) == 10


NUMBERS = st.one_of(st.integers(), st.floats(allow_nan=False), st.just("1e999").map(json.loads))
PARTS = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, st.text(st.characters())),
    lambda part: st.lists(part, max_size=3) | st.dictionaries(st.text(st.characters(), max_size=4), part, max_size=3),
    max_leaves=8,
)
NAMES = st.sampled_from(["name", "count", "price", "step", "labels", "other"])


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.dictionaries(NAMES, PARTS, max_size=4), min_size=1, max_size=5), st.sampled_from([JSON_SCHEMA, "{}"])
)
def test_any_json_under_any_writers_schema_is_read_or_a_fault(values, written):
    reader = format_of(QuerySchema(SchemaText("JSON", JSON_SCHEMA)))
    rows = pa.array([framed(1, json.dumps(each).encode()) for each in values], pa.binary())
    (group,), _ = groups_of(rows)
    parts = list(_passes(rows, group, reader.reader(SchemaText("JSON", written)), reader.arrow))
    assert sum(len(part) for _, part, _ in parts) + sum(len(wrong) for rows, _, wrong in parts if not len(rows)) == len(
        values
    )


def doubling(levels: int) -> str:
    """An Avro record of two fields of a record of two fields, and so on: 2^levels leaves in few lines."""
    inner: object = "long"
    for level in range(levels):
        name = f"R{level}"
        inner = {
            "type": "record", "name": name,
            "fields": [{"name": "a", "type": inner}, {"name": "b", "type": f"R{level - 1}" if level else "long"}],
        }  # fmt: skip
    return json.dumps(inner)


def test_a_small_schema_that_unfolds_to_millions_of_parts_is_refused_in_milliseconds():
    schema = doubling(25)
    assert len(schema) < 2_500
    began = time.process_time()
    with pytest.raises(UnsupportedSchema, match="more than 10,000 parts"):
        parse(schema)
    assert time.process_time() - began < 1
    assert parse(doubling(8))


@pytest.mark.parametrize("levels", [25])
def test_the_same_in_json_and_protobuf(levels):
    definitions = {
        f"r{level}": {"properties": dict.fromkeys("ab", {"$ref": f"#/definitions/r{level - 1}"} if level else {})}
        for level in range(levels)
    }
    json_schema = json.dumps({"definitions": definitions, "$ref": f"#/definitions/r{levels - 1}"})
    made = descriptor_pb2.FileDescriptorProto(name="r.proto", syntax="proto3")
    for level in reversed(range(levels)):
        message = made.message_type.add(name=f"R{level}")
        for number, name in enumerate("ab", start=1):
            if level:
                message.field.add(name=name, number=number, type=11, label=1, type_name=f".R{level - 1}")
            else:
                message.field.add(name=name, number=number, type=3, label=1)
    protobuf = base64.b64encode(made.SerializeToString()).decode()
    for text in (SchemaText("JSON", json_schema), SchemaText("PROTOBUF", protobuf)):
        began = time.process_time()
        with pytest.raises(UnsupportedSchema, match="more than 10,000 parts"):
            format_of(QuerySchema(text))
        assert time.process_time() - began < 5


def test_a_deeply_nested_schema_is_refused():
    schema = '{"type": "array", "items": ' * 5_000 + '"long"' + "}" * 5_000
    with pytest.raises(UnsupportedSchema, match="nested too deeply"):
        parse(schema)


def test_an_id_that_no_registry_has_is_not_asked_for(server):
    """An id is 32 bits in a record, and a positive number of a registry: it answers others as a wrong path."""
    values = pa.array([framed(number, b"\2") for number in (2**31 - 1, 2**31, 2**32 - 1)], pa.binary())
    found = decode(values, None, Registry.of(server.url), QuerySchema(SchemaText("AVRO", '"long"')))
    assert [fault.cause for fault in found.faults.values()] == [Cause.UNKNOWN_SCHEMA] * 3
    assert len(server.requests) == 1


def test_of_many_unknown_ids_only_the_first_hundred_are_asked_for(server, monkeypatch):
    target = QuerySchema(SchemaText("AVRO", '"long"'))
    known = server.register("known-value", '"long"')
    values = pa.array([framed(number, b"\2") for number in range(1_000, 6_000)], pa.binary())
    registry = Registry.of(server.url)
    found = decode(values, None, registry, target)
    assert {fault.cause for fault in found.faults.values()} == {Cause.UNKNOWN_SCHEMA}
    assert len(found.faults) == 5_000
    assert len(server.requests) == 100
    assert "has no schema 1000" in found.faults[0].message
    assert "was not asked for schema 5999: it lacks too many others" in found.faults[4_999].message
    monkeypatch.setattr(client, "_UNKNOWN_AGAIN", 0.0)  # half a minute later
    assert decode(pa.array([framed(known, b"\2")]), None, registry, target).values.to_pylist() == [1]


@pytest.mark.parametrize("unknown", [1, client._MOST_UNKNOWN])
def test_a_schema_is_registered_although_records_had_its_id_before(server, unknown):
    values = pa.array([framed(number, b"\2") for number in range(1, unknown + 1)], pa.binary())
    registry = Registry.of(server.url)
    found = decode(values, None, registry, QuerySchema(SchemaText("AVRO", '"long"')))
    assert [fault.cause for fault in found.faults.values()] == [Cause.UNKNOWN_SCHEMA] * unknown
    encode = confluent_encoder(server.url, subject="new-value", schema='"long"', register=True)
    encoded = encode(pa.array([1]))
    assert decode(encoded, None, registry, QuerySchema(SchemaText("AVRO", '"long"'))).values.to_pylist() == [1]
