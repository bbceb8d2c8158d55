"""What Confluent's Protobuf serializer writes is read, and what is written, its deserializer reads."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import header_schema_id_serializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, json_format
from google.protobuf.descriptor_pool import Default, DescriptorPool
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.struct_pb2 import Struct
from google.protobuf.timestamp_pb2 import Timestamp
from google.protobuf.wrappers_pb2 import Int64Value
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_eos.dead_letters.causes import Cause
from spark_kafka_eos.errors import InvalidRow
from spark_kafka_eos.registry import protobuf
from spark_kafka_eos.registry.arrow import ConfluentEncoder
from spark_kafka_eos.registry.avro_reading import Incompatible
from spark_kafka_eos.registry.client import Registry, SchemaText
from spark_kafka_eos.registry.decoding import decode
from spark_kafka_eos.registry.formats import QuerySchema, format_of
from spark_kafka_eos.registry.nesting import UnsupportedSchema
from spark_kafka_eos.registry.rows import rows_of

VALUE = SerializationContext("orders", MessageField.VALUE)
LINE = 'name: "Line" field { name: "sku" number: 1 type: TYPE_STRING } field { name: "n" number: 2 type: TYPE_UINT64 }'


def file(name, *messages, imports=()):
    """A file of Protobuf from its parts in text format."""
    from google.protobuf import text_format

    text = f'name: "{name}.proto" package: "{name}" syntax: "proto3"'
    text += "".join(f' dependency: "google/protobuf/{each}.proto"' for each in imports)
    text += "".join(f" message_type {{ {message} }}" for message in messages)
    return text_format.Parse(text, descriptor_pb2.FileDescriptorProto())


def field(name, number, kind, *, label="OPTIONAL", of=None, oneof=None):
    type_name = f' type_name: "{of}"' if of else ""
    in_oneof = "" if oneof is None else f" oneof_index: {oneof}"
    return f'field {{ name: "{name}" number: {number} type: TYPE_{kind} label: LABEL_{label}{type_name}{in_oneof} }} '


ORDER = 'name: "Order" ' + "".join([
    field("id", 1, "INT64"),
    field("count", 2, "UINT32"),
    field("big", 3, "FIXED64"),
    field("price", 4, "DOUBLE"),
    field("customer", 5, "STRING"),
    field("raw", 6, "BYTES"),
    field("state", 7, "ENUM", of=".shop.Order.State"),
    field("lines", 8, "MESSAGE", label="REPEATED", of=".shop.Order.Line"),
    field("labels", 9, "MESSAGE", label="REPEATED", of=".shop.Order.LabelsEntry"),
    field("at", 10, "MESSAGE", of=".google.protobuf.Timestamp"),
    field("lasted", 11, "MESSAGE", of=".google.protobuf.Duration"),
    field("score", 12, "MESSAGE", of=".google.protobuf.Int64Value"),
    field("more", 13, "MESSAGE", of=".google.protobuf.Struct"),
    field("first", 14, "MESSAGE", of=".shop.Order.Line"),
    field("phone", 15, "STRING", oneof=0),
    field("mail", 16, "STRING", oneof=0),
    field("flags", 17, "BOOL", label="REPEATED"),
    'oneof_decl { name: "contact" }',
    f"nested_type {{ {LINE} }}",
    'nested_type { name: "LabelsEntry" options { map_entry: true } '
    + field("key", 1, "STRING") + field("value", 2, "INT32") + "}",
    'enum_type { name: "State" value { name: "NEW" number: 0 } value { name: "SENT" number: 1 } }',
])  # fmt: skip
FILE = file(
    "shop", 'name: "First" ' + field("x", 1, "INT32"), ORDER, imports=("timestamp", "duration", "wrappers", "struct")
)
for needed in (Timestamp, Duration, Int64Value, Struct):
    assert needed.DESCRIPTOR.file.name in FILE.dependency
Default().Add(FILE)
Order = GetMessageClass(Default().FindMessageTypeByName("shop.Order"))
Line = GetMessageClass(Default().FindMessageTypeByName("shop.Order.Line"))
TEXT = SchemaText("PROTOBUF", base64.b64encode(FILE.SerializeToString()).decode())
TARGET = QuerySchema(TEXT, "shop.Order")

FULL = Order(
    id=-5, count=2**32 - 1, big=2**64 - 1, price=0.5, customer="Zoë", raw=b"\0", state=1,
    lines=[Line(sku="a", n=1), Line()], labels={"x": 3}, at=Timestamp(seconds=-1, nanos=5000),
    lasted=Duration(seconds=90), score=Int64Value(value=0), more=json_format.ParseDict({"a": [1]}, Struct()),
    first=Line(sku="b"), mail="z@example.org", flags=[True, False],
)  # fmt: skip
ROW = {
    "id": -5, "count": 2**32 - 1, "big": Decimal(2**64 - 1), "price": 0.5, "customer": "Zoë", "raw": b"\0",
    "state": "SENT",
    "lines": [{"sku": "a", "n": Decimal(1)}, {"sku": "", "n": Decimal(0)}], "labels": [("x", 3)],
    "at": datetime(1969, 12, 31, 23, 59, 59, 5, tzinfo=UTC), "lasted": timedelta(seconds=90), "score": 0,
    "more": '{"a": [1.0]}', "first": {"sku": "b", "n": Decimal(0)}, "phone": None, "mail": "z@example.org",
    "flags": [True, False],
}  # fmt: skip
EMPTY = {
    "id": 0, "count": 0, "big": Decimal(0), "price": 0.0, "customer": "", "raw": b"", "state": "NEW", "lines": [],
    "labels": [], "at": None, "lasted": None, "score": None, "more": None, "first": None, "phone": None, "mail": None,
    "flags": [],
}  # fmt: skip


def written(client, *messages):
    serializers = {type(each): ProtobufSerializer(type(each), client) for each in messages}
    return [serializers[type(each)](each, VALUE) for each in messages]


def test_confluents_records_are_read_and_what_does_not_fit_is_a_fault(server, client):
    full, empty, line = written(client, FULL, Order(), Line(sku="x"))
    values = [full, empty, line, full[:-3], full[:6], full[:5] + b"\x04\x63\x63", None]
    found = decode(pa.array(values), None, Registry.of(server.url), TARGET)
    assert found.values.to_pylist() == [ROW, EMPTY, *[None] * 5]
    assert {row: fault.cause for row, fault in found.faults.items()} == {
        2: Cause.WRONG_SCHEMA,
        3: Cause.UNDECODABLE,
        4: Cause.UNDECODABLE,
        5: Cause.UNDECODABLE,
    }


@pytest.mark.parametrize(
    ("message", "expected"),
    [(FULL, ROW), (Order(), EMPTY), (Line(sku="x"), Cause.WRONG_SCHEMA)],
    ids=["full", "empty", "inner"],
)
def test_the_guid_and_the_indexes_that_confluents_serializer_puts_into_a_header_are_read(
    server, client, message, expected
):
    headers: list = []
    conf = {"schema.id.serializer": header_schema_id_serializer}
    context = SerializationContext("orders", MessageField.VALUE, headers)
    body = ProtobufSerializer(type(message), client, conf)(message, context)
    ((_, header),) = headers
    (framed,) = written(client, message)
    ids = pa.array([header, header[:17], None, header[:9], header, header], pa.binary())
    values = pa.array([body, body, framed, body, None, body + b"\xff"], pa.binary())
    found = decode(values, ids, Registry.of(server.url), TARGET)
    faults = {row: fault.cause for row, fault in found.faults.items()}
    damaged = {1: Cause.NOT_FRAMED, 3: Cause.NOT_FRAMED}
    if isinstance(expected, Cause):
        assert faults == damaged | {0: expected, 2: expected, 5: expected}
        return
    assert faults == damaged | {5: Cause.UNDECODABLE}
    assert found.values.to_pylist() == [expected, None, expected, None, None, None]
    assert "header" in found.faults[1].message


def test_what_is_written_is_what_confluents_serializer_writes(server, client):
    expected = written(client, FULL, Order())
    values = pa.array([ROW, EMPTY, None], format_of(TARGET).arrow)
    first, second, third = ConfluentEncoder(TARGET, int.from_bytes(expected[0][1:5], "big"))(values).to_pylist()
    assert [second, third] == [expected[1], None]
    assert ProtobufDeserializer(Order, schema_registry_client=client)(first, VALUE) == FULL
    with pytest.raises(InvalidRow, match=r"shop\.Order\.count has a value that does not fit"):
        ConfluentEncoder(TARGET, 1)(pa.array([ROW | {"count": -99}], values.type))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.binary(max_size=40), min_size=1, max_size=4))
def test_any_bytes_are_read_or_refused(values):
    rows = rows_of(pa.array(values, pa.binary()))
    assert len(format_of(TARGET).reader(TEXT)(rows)) == len(values)


def text_of(made):
    return SchemaText("PROTOBUF", base64.b64encode(made.SerializeToString()).decode())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (text_of(file("t", 'name: "A" ' + field("a", 1, "MESSAGE", of=".t.A"))), "message t.A contains itself"),
        (text_of(file("t", 'name: "A"')), "message t.A has no fields"),
        (text_of(file("t")), "the file has no message"),
        (text_of(file("t", LINE, imports=("missing",))), "imports google/protobuf/missing.proto"),
        (SchemaText("PROTOBUF", 'syntax = "proto3";'), "in base64"),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused_by_name(text, said):
    with pytest.raises(UnsupportedSchema, match=said):
        format_of(QuerySchema(text))


def test_a_field_that_changed_its_type_is_incompatible_and_new_fields_are_not():
    old = text_of(file("t", 'name: "A" ' + field("a", 1, "INT32") + field("gone", 3, "STRING")))
    new = QuerySchema(text_of(file("t", 'name: "A" ' + field("a", 1, "INT64") + field("b", 2, "STRING"))))
    rows = rows_of(pa.array([b"\x00\x08\x05\x1a\x01x"]))
    assert format_of(new).reader(old)(rows).to_pylist() == [{"a": 5, "b": ""}]
    other = text_of(file("t", 'name: "A" ' + field("a", 1, "STRING")))
    with pytest.raises(Incompatible, match="field t.A.a"):
        format_of(new).reader(other)


def test_a_message_is_found_by_its_place_from_the_outermost_one_inwards():
    inner = 'nested_type { name: "B2" nested_type { name: "C0" } nested_type { name: "C1" } }'
    outer = f'name: "A1" nested_type {{ name: "B0" }} nested_type {{ name: "B1" }} {inner}'
    pool = DescriptorPool()
    pool.Add(file("deep", 'name: "A0"', outer))
    places = {"A0": [0], "A1": [1, 1], "A1.B2": [2, 1, 2], "A1.B2.C1": [3, 1, 2, 1]}
    for name, place in places.items():
        zigzag = bytes(2 * number for number in place)
        assert protobuf._indexes(pool.FindMessageTypeByName(f"deep.{name}")) == zigzag
