"""What Confluent's Protobuf serializer writes is read, and what is written, its deserializer reads."""

from __future__ import annotations

import base64
import math
import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, header_schema_id_serializer
from confluent_kafka.schema_registry.common.protobuf import decimal_to_protobuf, protobuf_to_decimal
from confluent_kafka.schema_registry.confluent import meta_pb2
from confluent_kafka.schema_registry.confluent.type import decimal_pb2
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, json_format
from google.protobuf.descriptor_pool import Default, DescriptorPool
from google.protobuf.duration_pb2 import Duration
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.source_context_pb2 import SourceContext
from google.protobuf.struct_pb2 import Struct
from google.protobuf.timestamp_pb2 import Timestamp
from google.protobuf.wrappers_pb2 import Int64Value
from google.type import date_pb2, latlng_pb2, money_pb2, timeofday_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_eos import confluent_decoder, confluent_encoder
from spark_kafka_eos.dead_letters.causes import Cause
from spark_kafka_eos.errors import ConfigurationError, InvalidRow, InvalidSchema
from spark_kafka_eos.registry import protobuf
from spark_kafka_eos.registry.arrow import ConfluentEncoder
from spark_kafka_eos.registry.avro_reading import Incompatible
from spark_kafka_eos.registry.client import Registry, SchemaText
from spark_kafka_eos.registry.decoding import decode
from spark_kafka_eos.registry.formats import QuerySchema, format_of
from spark_kafka_eos.registry.framing import HeaderIds
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
    found = decode(values, HeaderIds(ids, {}), Registry.of(server.url), TARGET)
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
        (text_of(file("t", LINE, imports=("../type/missing",))), r"imports google/protobuf/\.\./type/missing.proto"),
        (SchemaText("PROTOBUF", "AAAA"), "in base64"),
        (SchemaText("PROTOBUF", 'syntax = "proto4";'), "syntax proto4"),
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


@pytest.mark.parametrize(("kind", "of"), [("INT32", None), ("DOUBLE", None), ("STRING", None), ("MESSAGE", ".t.I")])
def test_a_field_that_was_repeated_is_incompatible_and_one_that_is_now_is_a_list_of_one(kind, of):
    """Protobuf's own class has the last value, and of packed numbers the default."""

    def made(label):
        nested = 'nested_type { name: "I" ' + field("n", 1, "INT32") + "}"
        return text_of(file("t", f'name: "A" {nested} ' + field("a", 1, kind, label=label, of=of and ".t.A.I")))

    with pytest.raises(Incompatible, match=r"field t\.A\.a .* is repeated"):
        format_of(QuerySchema(made("OPTIONAL"))).reader(made("REPEATED"))
    body = b"\x00\x09" + bytes(8) if kind == "DOUBLE" else b"\x00\x08\x05" if kind == "INT32" else b"\x00\x0a\x00"
    (row,) = format_of(QuerySchema(made("REPEATED"))).reader(made("OPTIONAL"))(rows_of(pa.array([body]))).to_pylist()
    assert len(row["a"]) == 1


D = Decimal


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        *((kind, D("12.34"), D("12.34")) for kind in ("DOUBLE", "FLOAT")),
        *((kind, D("-0.99"), D("-0.99")) for kind in ("DOUBLE", "FLOAT")),
        *((kind, D("12.00"), 12) for kind in ("INT32", "INT64", "UINT32", "FIXED64", "SINT64", "DOUBLE")),
        *((kind, D("12.34"), None) for kind in ("INT32", "INT64", "UINT32", "FIXED64", "SINT64", "ENUM")),
        *((kind, 1.5, None) for kind in ("INT32", "UINT64", "ENUM")),
        ("ENUM", 1, 1),
        ("INT64", 2**63 - 1, 2**63 - 1),
        ("INT64", D(2**63), None),
        ("DOUBLE", 2**53, 2**53),
        ("DOUBLE", 2**53 + 1, None),
        ("FLOAT", 2**24 + 1, None),
        ("FLOAT", 1e300, None),
        ("FLOAT", math.inf, math.inf),
        ("DOUBLE", 1e300, 1e300),
    ],
)
@pytest.mark.parametrize("place", ["single", "repeated", "map"])
def test_a_number_is_written_whole_or_its_row_is_refused(kind, value, expected, place):
    """Protobuf's own class takes 12 for the decimal 12.34, and infinity for 1e300."""
    symbols = 'enum_type { name: "E" value { name: "X" number: 0 } value { name: "Y" number: 1 } }'
    of = ".t.A.E" if kind == "ENUM" else None
    label = "OPTIONAL" if place == "single" else "REPEATED"
    fields = field("a", 1, kind, label=label, of=of)
    if place == "map":
        entry = field("key", 1, "STRING") + field("value", 2, kind, of=of)
        symbols += ' nested_type { name: "AEntry" ' + entry + " options { map_entry: true } }"
        fields = field("a", 1, "MESSAGE", label=label, of=".t.A.AEntry")
    made = file("t", f'name: "A" {symbols} {fields}')
    part = {"single": value, "repeated": [value], "map": [("k", value)]}[place]
    plain = pa.array([value]).type
    arrow = {"single": plain, "repeated": pa.list_(plain), "map": pa.map_(pa.string(), plain)}[place]
    column = pa.array([{"a": part}], pa.struct([("a", arrow)]))
    target = format_of(QuerySchema(text_of(made)))
    if expected is None:
        with pytest.raises(InvalidRow, match="does not fit"):
            target.write(column, b"")
        return
    (body,) = target.write(column, b"").to_pylist()
    pool = DescriptorPool()
    own = GetMessageClass(pool.AddSerializedFile(made.SerializeToString()).message_types_by_name["A"])
    message = own.FromString(body[1:])
    number = message.a if place == "single" else message.a[0 if place == "repeated" else "k"]
    assert number == {"FLOAT": np.float32, "DOUBLE": float}.get(kind, int)(expected)


def test_a_message_is_found_by_its_place_from_the_outermost_one_inwards():
    inner = 'nested_type { name: "B2" nested_type { name: "C0" } nested_type { name: "C1" } }'
    outer = f'name: "A1" nested_type {{ name: "B0" }} nested_type {{ name: "B1" }} {inner}'
    pool = DescriptorPool()
    pool.Add(file("deep", 'name: "A0"', outer))
    places = {"A0": [0], "A1": [1, 1], "A1.B2": [2, 1, 2], "A1.B2.C1": [3, 1, 2, 1]}
    for name, place in places.items():
        zigzag = bytes(2 * number for number in place)
        assert protobuf._indexes(pool.FindMessageTypeByName(f"deep.{name}")) == zigzag


CUSTOMER = 'syntax = "proto3"; package shop; message Customer { string name = 1; }'
ORDERS = (
    'syntax = "proto3"; package shop; import "customer.proto"; '
    "message Order { string id = 1; Customer customer = 2; message Line { string sku = 1; } }"
)


def test_a_message_that_the_file_imports_is_read_and_not_written_as_another_message_of_it(server, client):
    """Its place in its own file is that of another message in this one."""
    client.register_schema("customer", Schema(CUSTOMER, "PROTOBUF"))
    references = [SchemaReference("customer.proto", "customer", 1)]
    client.register_schema("orders-value", Schema(ORDERS, "PROTOBUF", references))
    with pytest.raises(ConfigurationError, match=r"the file has no message shop\.Customer, but imports it"):
        confluent_encoder(server.url, topic="orders", message="shop.Customer")
    target = QuerySchema(SchemaText("PROTOBUF", ORDERS, (("customer.proto", CUSTOMER),)), "shop.Customer")
    with pytest.raises(UnsupportedSchema, match="imports it"):
        format_of(target).write(pa.array([{"name": "Zoë"}]), b"")

    customers = confluent_encoder(server.url, subject="customer")(pa.array([{"name": "Zoë"}]))
    decoder = confluent_decoder(server.url, topic="orders", message="shop.Customer", mode="permissive")
    assert decoder(customers).to_pylist() == [{"value": {"name": "Zoë"}, "error": None}]
    (order,) = confluent_encoder(server.url, topic="orders")(pa.array([{"id": "7"}])).to_pylist()
    assert decoder(pa.array([order])).to_pylist()[0]["error"]["cause"] == "wrong-schema"
    line = confluent_encoder(server.url, topic="orders", message="shop.Order.Line")(pa.array([{"sku": "a"}]))
    assert line[0].as_py()[5:8] == bytes((4, 0, 0))


OUTER = """syntax = "proto3";
package p;
message Outer {
  map<string, int32> counts = 1;
  message Order { string id = 1; map<string, string> labels = 2; message Line { string sku = 1; } }
  map<string, Order> orders = 2;
  message Invoice { string number = 1; }
}
"""
OUTER_PLACES = {"Outer": [0], "Outer.Order": [0, 0], "Outer.Order.Line": [0, 0, 0], "Outer.Invoice": [0, 1]}


def of_registry() -> tuple[descriptor_pb2.FileDescriptorProto, SchemaText]:
    """OUTER as Confluent's registry has it: Java's client adds the entries of maps after all other messages."""
    entry = "options { map_entry: true } " + field("key", 1, "STRING")
    counts = f'nested_type {{ name: "CountsEntry" {entry}' + field("value", 2, "INT32") + "}"
    orders = f'nested_type {{ name: "OrdersEntry" {entry}' + field("value", 2, "MESSAGE", of=".p.Outer.Order") + "}"
    labels = f'nested_type {{ name: "LabelsEntry" {entry}' + field("value", 2, "STRING") + "}"
    line = 'nested_type { name: "Line" ' + field("sku", 1, "STRING") + "}"
    order = field("id", 1, "STRING") + field("labels", 2, "MESSAGE", label="REPEATED", of=".p.Outer.Order.LabelsEntry")
    order = f'nested_type {{ name: "Order" {order} {line} {labels} }}'
    invoice = 'nested_type { name: "Invoice" ' + field("number", 1, "STRING") + "}"
    fields = field("counts", 1, "MESSAGE", label="REPEATED", of=".p.Outer.CountsEntry")
    fields += field("orders", 2, "MESSAGE", label="REPEATED", of=".p.Outer.OrdersEntry")
    made = file("p", f'name: "Outer" {fields} {order} {invoice} {counts} {orders}')
    return made, text_of(made)


@pytest.mark.parametrize("name", OUTER_PLACES)
def test_the_place_of_a_message_in_a_text_does_not_count_the_entries_of_maps(name):
    text, (descriptor, registered) = SchemaText("PROTOBUF", OUTER), of_registry()
    place = OUTER_PLACES[name]
    indexes = b"\0" if place == [0] else bytes((2 * len(place), *(2 * number for number in place)))
    resolve = ProtobufDeserializer.__new__(ProtobufDeserializer)._get_message_desc_proto
    assert resolve("p", descriptor, place)[0] == f"p.{name}"  # by Confluent's own client
    target = format_of(QuerySchema(text, f"p.{name}"))
    (value,) = target.write(pa.array([{}], pa.struct([])), b"").to_pylist()
    assert value == indexes
    for written in (text, registered):
        rows = rows_of(pa.array([indexes]))
        column = target.reader(written)(rows)
        assert rows.faults.of(0) is None and column[0].is_valid
    assert protobuf.same_file(text, registered)


def test_the_place_of_a_message_in_a_descriptor_is_the_one_that_it_has_there():
    """As protoc compiles a text, with the entry of a map where its field stands."""
    entry = 'name: "AEntry" options { map_entry: true } ' + field("key", 1, "STRING") + field("value", 2, "INT32")
    inner = 'name: "I" ' + field("n", 1, "INT32")
    fields = field("a", 1, "MESSAGE", label="REPEATED", of=".t.A.AEntry")
    compiled = text_of(file("t", f'name: "A" {fields} nested_type {{ {entry} }} nested_type {{ {inner} }}'))
    target = format_of(QuerySchema(compiled, "t.A.I"))
    assert target.write(pa.array([{"n": 1}]), b"").to_pylist() == [bytes((4, 0, 2, 8, 1))]
    text = 'syntax = "proto3"; package t; message A { map<string, int32> a = 1; message I { int32 n = 1; } }'
    assert not protobuf.same_file(SchemaText("PROTOBUF", text), compiled)  # the places are not the same


CONVERTED = file(
    "converted",
    'name: "A" '
    + field("price", 1, "MESSAGE", of=".confluent.type.Decimal")
    + field("day", 2, "MESSAGE", of=".google.type.Date")
    + field("time", 3, "MESSAGE", of=".google.type.TimeOfDay")
    + field("prices", 4, "MESSAGE", label="REPEATED", of=".confluent.type.Decimal")
    + field("inner", 5, "MESSAGE", of=".converted.A.I")
    + ' nested_type { name: "I" '
    + field("day", 1, "MESSAGE", of=".google.type.Date")
    + " }",
)
CONVERTED.dependency.extend(("confluent/type/decimal.proto", "google/type/date.proto", "google/type/timeofday.proto"))


def converted(*messages: dict[str, Any]) -> tuple[list[Any], list[Cause | None]]:
    """What rows and faults become of messages of CONVERTED with Connect's types."""
    text = SchemaText("PROTOBUF", base64.b64encode(CONVERTED.SerializeToString()).decode())
    pool = DescriptorPool()
    for module in (decimal_pb2, date_pb2, timeofday_pb2):
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(CONVERTED.SerializeToString())
    kind = GetMessageClass(pool.FindMessageTypeByName("converted.A"))
    bodies = [b"\0" + kind(**message).SerializeToString() for message in messages]
    rows = rows_of(pa.array(bodies, pa.binary()))
    column = format_of(QuerySchema(text, connect_types=True)).reader(text)(rows)
    faults = [rows.faults.of(row) for row in range(len(bodies))]
    column.validate(full=True)
    return column.to_pylist(), faults


def in_protobuf(number: str, scale: int) -> dict[str, Any]:
    """As Confluent's own function has a decimal; its inverse is the witness."""
    message = decimal_to_protobuf(Decimal(number), scale)
    assert protobuf_to_decimal(message) == Decimal(number)
    return {"value": message.value, "precision": message.precision, "scale": message.scale}


def test_what_connects_converter_writes_has_the_types_of_connect():
    numbers = ["12.3400", "-0.0001", "0.0000", "-99999999999999999999999999999999999999999999.5000"]
    message = {
        "price": in_protobuf("-12.34", 2), "day": {"year": 1969, "month": 12, "day": 31},
        "time": {"hours": 23, "minutes": 59, "seconds": 59, "nanos": 999_000_000},
        "prices": [in_protobuf(number, 4) for number in numbers],
        "inner": {"day": {"year": 2026, "month": 2, "day": 28}},
    }  # fmt: skip
    rows, faults = converted(message, {})
    assert faults == [None, None]
    assert rows[0] == {
        "price": "-12.34", "day": date(1969, 12, 31), "time": 86_399_999, "prices": numbers,
        "inner": {"day": date(2026, 2, 28)},
    }  # fmt: skip
    assert rows[1] == {"price": None, "day": None, "time": None, "prices": [], "inner": None}


def test_a_date_without_a_day_and_parts_of_a_millisecond_are_out_of_range_with_connects_types():
    rows, faults = converted(
        {"day": {"year": 2026, "month": 11}},
        {"time": {"hours": 1, "nanos": 1}},
        {"price": {"value": b"\1", "scale": 2**31 - 1}},
        {"prices": [in_protobuf("1.5", 1), {"value": b"\1", "scale": 2**31 - 1}]},
        {"inner": {"day": {"year": 10_000, "month": 1, "day": 1}}},
        {"day": {"year": 2026, "month": 11, "day": 30}},
    )
    assert faults == [Cause.OUT_OF_RANGE] * 5 + [None]
    assert rows[5]["day"] == date(2026, 11, 30)


@pytest.mark.parametrize(
    ("wrote", "wanted"),
    [
        ("google.protobuf.Timestamp", "google.protobuf.Duration"),
        ("google.protobuf.Duration", "google.protobuf.Timestamp"),
        ("google.type.Date", "google.type.TimeOfDay"),
        ("google.type.TimeOfDay", "google.type.Date"),
    ],
)
@pytest.mark.parametrize("label", ["OPTIONAL", "REPEATED"])
def test_a_message_of_the_same_fields_that_means_another_quantity_is_incompatible(wrote, wanted, label):
    def text(full_name: str) -> SchemaText:
        made = file("times", 'name: "A" ' + field("a", 1, "MESSAGE", label=label, of=f".{full_name}"))
        made.dependency.append(full_name.lower().replace(".", "/") + ".proto")
        return SchemaText("PROTOBUF", base64.b64encode(made.SerializeToString()).decode())

    assert format_of(QuerySchema(text(wanted))).reader(text(wanted)) is not None
    with pytest.raises(Incompatible, match=r"field times\.A\.a \(number 1\) has another type"):
        format_of(QuerySchema(text(wanted))).reader(text(wrote))


def built_in(name, full_name):
    """A message with a field of a type that a registry has without a reference."""
    made = file("built", 'name: "A" ' + field("a", 1, "MESSAGE", of=f".{full_name}"))
    made.dependency.append(name)
    return made


@pytest.mark.parametrize(
    ("name", "message", "row"),
    [
        ("google/type/date.proto", date_pb2.Date(year=2026, month=11), {"year": 2026, "month": 11, "day": 0}),
        (
            "google/type/timeofday.proto",
            timeofday_pb2.TimeOfDay(hours=7),
            {"hours": 7, "minutes": 0, "seconds": 0, "nanos": 0},
        ),
        ("google/type/money.proto", money_pb2.Money(units=5), {"currency_code": "", "units": 5, "nanos": 0}),
        ("google/type/latlng.proto", latlng_pb2.LatLng(latitude=0.5), {"latitude": 0.5, "longitude": 0.0}),
        (
            "confluent/type/decimal.proto",
            GetMessageClass(decimal_pb2.DESCRIPTOR.message_types_by_name["Decimal"])(
                value=b"\x04\xd2", precision=4, scale=2
            ),
            {"value": b"\x04\xd2", "precision": 4, "scale": 2},
        ),
        ("google/protobuf/source_context.proto", SourceContext(file_name="f"), {"file_name": "f"}),
    ],
    ids=str,
)
def test_a_type_that_every_registry_has_is_read_and_written(server, client, name, message, row):
    made = built_in(name, type(message).DESCRIPTOR.full_name)
    pool = DescriptorPool()
    for needed in (type(message).DESCRIPTOR.file, made):
        pool.AddSerializedFile(getattr(needed, "serialized_pb", None) or needed.SerializeToString())
    holder = GetMessageClass(pool.FindMessageTypeByName("built.A"))()
    holder.a.MergeFromString(message.SerializeToString())
    (value,) = written(client, holder)
    decoder, encoder = (each(server.url, topic="orders") for each in (confluent_decoder, confluent_encoder))
    rows = decoder(pa.array([value], pa.binary()))
    assert rows.to_pylist() == [{"a": row}]
    assert encoder(rows).to_pylist() == [value]


@pytest.mark.parametrize("name", [
    *(f"google/protobuf/{each}.proto" for each in (
        "any", "api", "descriptor", "duration", "empty", "field_mask", "source_context", "struct", "timestamp", "type",
        "wrappers",
    )),
    *(f"google/type/{each}.proto" for each in (
        "calendar_period", "color", "date", "datetime", "dayofweek", "expr", "fraction", "latlng", "money", "month",
        "postal_address", "quaternion", "timeofday",
    )),
    "confluent/meta.proto", "confluent/type/decimal.proto", "confluent/types/decimal.proto",
    "confluent/type/variant.proto",
])  # fmt: skip
def test_a_file_that_every_registry_has_may_be_imported_without_a_reference(name):
    made = file("t", LINE)
    made.dependency.append(name)
    assert format_of(QuerySchema(text_of(made))).arrow.names == ["sku", "n"]


def test_a_field_with_confluents_tags_is_read_as_without():
    made = file("t", LINE)
    made.dependency.append("confluent/meta.proto")
    made.message_type[0].field[0].options.Extensions[meta_pb2.DESCRIPTOR.extensions_by_name["field_meta"]].tags.append(
        "PII"
    )
    rows = rows_of(pa.array([b"\0\x0a\x01x"]))
    assert format_of(QuerySchema(text_of(made))).reader(text_of(made))(rows).to_pylist() == [
        {"sku": "x", "n": Decimal(0)}
    ]


MARKED = file(
    "marked",
    'name: "Marked" oneof_decl { name: "kind" } '
    + field("id", 1, "INT64")
    + field("created", 2, "MESSAGE", of=".marked.Marked.Created", oneof=0)
    + field("deleted", 3, "MESSAGE", of=".google.protobuf.Empty", oneof=0)
    + field("marker", 4, "MESSAGE", of=".marked.Marked.Marker")
    + field("ticks", 5, "MESSAGE", label="REPEATED", of=".google.protobuf.Empty")
    + field("named", 6, "MESSAGE", label="REPEATED", of=".marked.Marked.NamedEntry")
    + 'nested_type { name: "Created" ' + field("by", 1, "STRING") + "} "
    + 'nested_type { name: "Marker" } '
    + 'nested_type { name: "NamedEntry" options { map_entry: true } ' + field("key", 1, "STRING")
    + field("value", 2, "MESSAGE", of=".google.protobuf.Empty") + "}",
    imports=("empty",),
)  # fmt: skip


def test_a_field_of_a_message_without_fields_says_whether_it_is_set(server, client):
    pool = DescriptorPool()
    pool.AddSerializedFile(Empty.DESCRIPTOR.file.serialized_pb)
    marked = GetMessageClass(pool.AddSerializedFile(MARKED.SerializeToString()).message_types_by_name["Marked"])
    deleted = marked(id=1, deleted={}, ticks=[{}, {}])
    deleted.named["a"].SetInParent()
    created = marked(id=2, created={"by": "Zoë"}, marker={})
    values = pa.array(written(client, deleted, created, marked()), pa.binary())
    decoder, encoder = (each(server.url, topic="orders") for each in (confluent_decoder, confluent_encoder))
    rows = decoder(values)
    nothing: dict[str, Any] = {"id": 0, "created": None, "deleted": None, "marker": None, "ticks": [], "named": []}
    assert rows.to_pylist() == [
        nothing | {"id": 1, "deleted": True, "ticks": [True, True], "named": [("a", True)]},
        nothing | {"id": 2, "created": {"by": "Zoë"}, "marker": True},
        nothing,
    ]
    assert encoder(rows).to_pylist() == values.to_pylist()
    unset = pa.array([nothing | {"deleted": False, "marker": False}], rows.type)
    assert encoder(unset).to_pylist() == [values[2].as_py()]
    for wrong in ({"ticks": [False]}, {"ticks": [None]}, {"named": [("a", False)]}):
        with pytest.raises(InvalidRow, match="has a value that does not fit"):
            encoder(pa.array([nothing | wrong], rows.type))


NUMBERS = {f"{kind}{bits}": bits for kind in ("INT", "UINT", "SINT", "FIXED", "SFIXED") for bits in (32, 64)} | {
    "BOOL": 1
}


@pytest.mark.parametrize("wrote", NUMBERS)
@pytest.mark.parametrize("wanted", NUMBERS)
def test_a_number_is_read_as_another_type_only_if_each_number_is_the_same_in_it(wrote, wanted):
    """Protobuf's own class cuts bits off."""

    def message(kind):
        made = file("t", 'name: "A" ' + field("a", 1, kind))
        return made, GetMessageClass(
            DescriptorPool().AddSerializedFile(made.SerializeToString()).message_types_by_name["A"]
        )

    (old, old_class), (new, new_class) = message(wrote), message(wanted)
    unsigned = wrote.startswith(("U", "F", "B"))
    bits = NUMBERS[wrote]
    ends = (0, 1, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), -1, 0, 2 ** (bits - 1) - 1)
    written_rows = [old_class(a=end) for end in ends]
    exact = all(new_class.FromString(each.SerializeToString()).a == each.a for each in written_rows)
    query = format_of(QuerySchema(text_of(new)))
    if not exact:
        with pytest.raises(Incompatible, match=r"field t\.A\.a"):
            query.reader(text_of(old))
        return
    rows = rows_of(pa.array([b"\0" + each.SerializeToString() for each in written_rows]))
    assert [row["a"] for row in query.reader(text_of(old))(rows).to_pylist()] == [each.a for each in written_rows]


def test_a_field_of_a_nested_message_that_changed_is_incompatible_too():
    def nested(kind):
        inner = 'nested_type { name: "Inner" ' + field("a", 1, kind) + "}"
        return text_of(file("t", 'name: "A" ' + field("in", 1, "MESSAGE", of=".t.A.Inner") + inner))

    query = format_of(QuerySchema(nested("STRING"), "t.A.Inner"))
    with pytest.raises(Incompatible, match=r"field t\.A\.Inner\.a"):
        query.reader(nested("INT64"))


@pytest.mark.parametrize("nanos", [-1, -999, -1_000, -500_000_500, -1_500_000_500, 1_999, 0])
def test_a_durations_parts_of_a_microsecond_are_cut_off_as_protobufs_own_class_does(nanos):
    seconds, rest = divmod(abs(nanos), 10**9)
    sign = -1 if nanos < 0 else 1
    lasted = Duration(seconds=sign * seconds, nanos=sign * rest)
    rows = rows_of(pa.array([b"\0" + Order(lasted=lasted).SerializeToString()]))
    (row,) = format_of(TARGET).reader(TEXT)(rows).to_pylist()
    assert row["lasted"] == timedelta(microseconds=lasted.ToMicroseconds())


def test_a_column_that_is_no_struct_is_refused_before_a_row_is():
    for column in (pa.array([1]), pa.array([], pa.string())):
        with pytest.raises(InvalidSchema, match=rf"type {column.type}.*message shop\.Order"):
            format_of(TARGET).write(column, b"")


def test_of_two_names_of_a_number_the_first_one_is_read_as_in_java():
    symbols = 'value { name: "X" number: 0 } value { name: "Y" number: 1 } value { name: "Z" number: 1 }'
    symbols = f'enum_type {{ name: "E" {symbols} options {{ allow_alias: true }} }}'
    made = text_of(file("t", f'name: "A" {symbols} ' + field("a", 1, "ENUM", of=".t.A.E")))
    target = format_of(QuerySchema(made))
    column = target.reader(made)(rows_of(pa.array([b"\0\x08\1"])))
    assert column.to_pylist() == [{"a": "Y"}]
    for name in ("Y", "Z"):
        assert target.write(pa.array([{"a": name}]), b"").to_pylist() == [b"\0\x08\1"]


@pytest.mark.parametrize("label", ["OPTIONAL", "REPEATED"])
def test_bytes_that_are_no_text_in_a_string_of_proto2_are_undecodable(label):
    made = file("t", 'name: "A" ' + field("a", 1, "STRING", label=label))
    made.syntax = "proto2"
    rows = rows_of(pa.array([b"\0\x0a\1\xff", b"\0\x0a\1x"]))
    format_of(QuerySchema(text_of(made))).reader(text_of(made))(rows)
    assert [rows.faults.of(row) for row in range(2)] == [Cause.UNDECODABLE, None]


PAIRS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.int32())]))


@pytest.mark.parametrize(
    ("name", "kind", "wanted"),
    [
        *((name, pa.string(), "an array") for name in ("lines", "flags")),
        ("flags", pa.struct([("a", pa.bool_())]), "an array"),
        ("flags", pa.binary(), "an array"),
        *(("labels", kind, "a map") for kind in (PAIRS, pa.string(), pa.list_(pa.string()))),
        *((name, pa.bool_(), wanted) for name, wanted in (("id", "int64"), ("price", "double"), ("score", "int64"))),
        *((name, pa.string(), "int64") for name in ("id", "count", "score")),
        ("customer", pa.int64(), "string"),
        ("raw", pa.string(), "binary"),
        ("state", pa.bool_(), "string"),
        *(("at", kind, r"timestamp\[us, tz=UTC\]") for kind in (pa.timestamp("us"), pa.date32(), pa.int64())),
        ("lasted", pa.int64(), r"duration\[us\]"),
        ("more", pa.struct([("a", pa.int32())]), "string"),
        ("first", pa.string(), r"message shop\.Order\.Line"),
        ("first", pa.map_(pa.string(), pa.string()), r"message shop\.Order\.Line"),
    ],
    ids=str,
)
def test_a_column_of_a_type_that_its_field_never_takes_is_refused_by_name_before_any_row(name, kind, wanted):
    """Python takes a text for a list of its letters, pairs for a map of their fields' names, and true for 1."""
    said = rf"shop\.Order\.{name} has the type {re.escape(str(kind))}, and its Protobuf schema wants {wanted}.*Cast"
    column = pa.array([], pa.struct([(name, kind)]))
    for refused in (
        lambda: format_of(TARGET).write(column, b""),
        lambda: ConfluentEncoder(TARGET, 1).check(column.type),
    ):
        with pytest.raises(InvalidSchema, match=said):
            refused()


@pytest.mark.parametrize(
    ("name", "kind", "place"),
    [
        ("flags", pa.list_(pa.int32()), "flags.element"),
        ("lines", pa.list_(pa.struct([("sku", pa.int32())])), "lines.element.sku"),
        ("labels", pa.map_(pa.int32(), pa.int32()), "labels.key"),
        ("labels", pa.map_(pa.string(), pa.string()), "labels.value"),
        ("first", pa.struct([("n", pa.date32())]), "first.n"),
    ],
)
def test_a_part_of_a_wrong_type_is_named_by_its_path(name, kind, place):
    with pytest.raises(InvalidSchema, match=re.escape(f"shop.Order.{place} has the type")):
        ConfluentEncoder(TARGET, 1).check(pa.struct([(name, kind)]))
    with pytest.raises(InvalidSchema, match=r"shop\.Order\.first has fields that its message lacks: x"):
        ConfluentEncoder(TARGET, 1).check(pa.struct([("first", pa.struct([("x", pa.int32())]))]))


def test_a_field_whose_values_may_fit_is_taken():
    taken = {
        "id": pa.decimal128(38, 2), "count": pa.float64(), "price": pa.int64(), "customer": pa.large_string(),
        "raw": pa.large_binary(), "state": pa.int32(), "lines": pa.null(), "at": pa.timestamp("ms", "Europe/Berlin"),
        "flags": pa.list_(pa.null()), "labels": pa.map_(pa.string(), pa.int64()),
        "mail": pa.dictionary(pa.int8(), pa.string()),
    }  # fmt: skip
    ConfluentEncoder(TARGET, 1).check(pa.struct(list(taken.items())))
    ConfluentEncoder(TARGET, 1).check(pa.null())


def test_a_row_without_a_required_field_is_refused_without_its_content():
    made = file("t", 'name: "A" ' + field("a", 1, "INT64", label="REQUIRED") + field("b", 2, "STRING"))
    made.syntax = "proto2"
    column = pa.array([{"a": 1, "b": "x"}, {"a": None, "b": "secret"}])
    with pytest.raises(InvalidRow, match=r"a required field of message t\.A is null") as raised:
        format_of(QuerySchema(text_of(made))).write(column, b"")
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("name", "kind", "value"),
    [
        ("at", pa.timestamp("us", "UTC"), 2**62),
        ("lasted", pa.duration("ms"), 2**62),
    ],
)
def test_a_time_that_python_lacks_is_refused_as_a_row(name, kind, value):
    column = pa.StructArray.from_arrays([pa.array([value], pa.int64()).cast(kind)], [name])
    with pytest.raises(InvalidRow, match="a timestamp or an interval") as raised:
        format_of(TARGET).write(column, b"")
    assert str(value) not in str(raised.value)


CHOICE = (
    'syntax = "proto3"; message Choice { oneof one { string a = 1; int32 b = 2; Empty e = 3; Choice.Inner in = 4; } '
    "optional string c = 5; string d = 6; message Empty {} message Inner { oneof one { string x = 1; string y = 2; } } "
    "repeated Inner list = 7; map<string, Inner> map = 8; }"
)
INNER = pa.struct([("x", pa.string()), ("y", pa.string())])
CHOSEN = pa.struct([
    ("b", pa.int32()), ("a", pa.string()), ("e", pa.bool_()), ("in", INNER), ("c", pa.string()), ("d", pa.string()),
    ("list", pa.list_(INNER)), ("map", pa.map_(pa.string(), INNER)),
])  # fmt: skip


@pytest.mark.parametrize(
    ("row", "place", "both"),
    [
        ({"a": "secret", "b": 1}, "Choice", "b and a"),
        ({"a": "", "b": 0}, "Choice", "b and a"),
        ({"a": "secret", "e": True}, "Choice", "a and e"),
        ({"b": 1, "in": {"x": "1"}}, "Choice", "b and in"),
        ({"in": {"x": "1", "y": "2"}}, "Choice.in", "x and y"),
        ({"list": [{"x": "1"}, {"x": "1", "y": "2"}]}, "Choice.list", "x and y"),
        ({"map": [("secret", {"x": "1", "y": "2"})]}, "Choice.map", "x and y"),
    ],
    ids=str,
)
def test_a_row_with_two_fields_of_a_oneof_is_refused_without_its_content(row, place, both):
    """Protobuf would keep the last one: which that is depends on the order of the columns."""
    made = format_of(QuerySchema(SchemaText("PROTOBUF", CHOICE)))
    with pytest.raises(InvalidRow, match=rf"{place} has {both} set in a row, of which its oneof one") as raised:
        made.write(pa.array([row], CHOSEN), b"")
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    "row", [{"a": "x", "e": False, "c": "y", "d": "z"}, {"b": 0}, {"e": True}, {"in": {"y": ""}}, {"c": ""}], ids=str
)
def test_a_row_with_one_field_of_a_oneof_or_none_is_written(row):
    text = SchemaText("PROTOBUF", CHOICE)
    made = format_of(QuerySchema(text))
    (read,) = made.reader(text)(rows_of(made.write(pa.array([row], CHOSEN), b""))).to_pylist()
    set_there = {name: value for name, value in row.items() if value is not False}
    assert {name: read[name] for name in set_there} == {
        name: {"x": None, **value} if name == "in" else value for name, value in set_there.items()
    }
    assert all(read[name] is None for name in {"a", "b", "e", "in"} - set_there.keys())


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Europe/Berlin", "Asia/Tokyo"])
@pytest.mark.parametrize("seconds", [-62_135_596_800, 253_402_300_799], ids=["the first", "the last"])
def test_a_time_is_written_whatever_the_sessions_time_zone_is(zone, seconds):
    """Spark's columns have the session's, in which the years 1 and 9999 begin and end at another time."""
    files = "google/protobuf/timestamp.proto"
    made = f'syntax = "proto3"; import "{files}"; message M {{ google.protobuf.Timestamp t = 1; A a = 2; '
    made += "message A { repeated google.protobuf.Timestamp l = 1; map<string, google.protobuf.Timestamp> m = 2; } }"
    times = pa.array([seconds * 1_000_000], pa.timestamp("us", zone))
    one = pa.array([0, 1], pa.int32())
    within = pa.StructArray.from_arrays(
        [pa.ListArray.from_arrays(one, times), pa.MapArray.from_arrays(one, pa.array(["k"]), times)], ["l", "m"]
    )
    target = format_of(QuerySchema(SchemaText("PROTOBUF", made)))
    (body,) = target.write(pa.StructArray.from_arrays([times, within], ["t", "a"]), b"").to_pylist()
    time = Timestamp(seconds=seconds).SerializeToString()
    assert body.count(time) == 3


@pytest.mark.parametrize(
    "text", ["NaN", "Infinity", "-Infinity", "1e400", "[1, -1e400]", '{"a": {"b": NaN}}', "1" + "0" * 400, "secret", ""]
)
@pytest.mark.parametrize("column", ["value", "struct", "list"])
def test_a_text_that_json_has_not_is_refused_without_its_content(text, column):
    made = 'syntax = "proto3"; import "google/protobuf/struct.proto"; message M { '
    made += "google.protobuf.Value value = 1; google.protobuf.Struct struct = 2; google.protobuf.ListValue list = 3; }"
    text = {"value": text, "struct": f'{{"x": {text}}}', "list": f"[{text}]" if text else "["}[column]
    with pytest.raises(InvalidRow, match=f"M.{column} has a value that does not fit") as raised:
        format_of(QuerySchema(SchemaText("PROTOBUF", made))).write(pa.array([{column: text}]), b"")
    assert "secret" not in str(raised.value)
