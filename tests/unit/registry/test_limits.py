"""What becomes of each type in Spark, and what does not work, as docs/schemas.md has it."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2

from spark_kafka_eos import confluent_decoder
from spark_kafka_eos.dead_letters.causes import Cause
from spark_kafka_eos.errors import ConfigurationError
from spark_kafka_eos.registry.client import Registry, SchemaText
from spark_kafka_eos.registry.columns import _spark_type
from spark_kafka_eos.registry.decoding import decode
from spark_kafka_eos.registry.formats import QuerySchema, format_of
from spark_kafka_eos.registry.rows import rows_of
from tests.unit.registry import test_json, test_protobuf
from tests.unit.registry.test_hostile_records import framed

LONG_AS = {"type": "long", "logicalType": ""}


def record(**fields: Any) -> dict[str, Any]:
    made = [{"name": name, "type": kind} for name, kind in fields.items()]
    return {"type": "record", "name": "R", "fields": made}


def decimal(scale: int, precision: int = 9) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


def read(server: Any, written: Any, wanted: Any, body: bytes, kind: Any = "AVRO") -> Any:
    """The value of a record that was written with one schema and is read with another one, or its fault's cause."""
    schema_id = server.register("any-value", json.dumps(written), kind)
    target = QuerySchema(SchemaText(kind, json.dumps(wanted)))
    found = decode(pa.array([framed(schema_id, body)]), None, Registry.of(server.url), target)
    return found.faults[0].cause if found.faults else found.values[0].as_py()


@pytest.mark.parametrize(
    ("avro", "spark"),
    [
        *[(kind, kind) for kind in ("boolean", "int", "float", "double", "string")],
        ("long", "bigint"),
        ("bytes", "binary"),
        (record(a="int"), "struct<a:int>"),
        ({"type": "array", "items": "int"}, "array<int>"),
        ({"type": "map", "values": "int"}, "map<string,int>"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "string"),
        ({"type": "fixed", "name": "F", "size": 4}, "binary"),
        (["null", "string"], "string"),
        (["int", "long"], "bigint"),
        (["null", "double", "float"], "double"),
        (["null", "string", "long"], "struct<member0:string,member1:bigint>"),
        (decimal(2), "decimal(9,2)"),
        (decimal(2, 64), "decimal(38,2)"),
        ({"type": "int", "logicalType": "date"}, "date"),
        ({"type": "string", "logicalType": "uuid"}, "string"),
        (LONG_AS | {"logicalType": "timestamp-millis"}, "timestamp"),
        (LONG_AS | {"logicalType": "timestamp-micros"}, "timestamp"),
        (LONG_AS | {"logicalType": "local-timestamp-millis"}, "timestamp_ntz"),
        (LONG_AS | {"logicalType": "local-timestamp-micros"}, "timestamp_ntz"),
        ({"type": "int", "logicalType": "time-millis"}, "int"),
        (LONG_AS | {"logicalType": "time-micros"}, "bigint"),
        (LONG_AS | {"logicalType": "timestamp-nanos"}, "bigint"),
        (LONG_AS | {"logicalType": "local-timestamp-nanos"}, "bigint"),
        ([{"type": "int", "logicalType": "time-millis"}, "long"], "bigint"),
        (["int", LONG_AS | {"logicalType": "timestamp-nanos"}], "bigint"),
        ({"type": "bytes", "logicalType": "big-decimal"}, "binary"),
        ({"type": "fixed", "name": "F", "size": 4, "logicalType": "decimal", "precision": 9}, "decimal(9,0)"),
        ({"type": "fixed", "name": "F", "size": 4, "logicalType": "decimal", "precision": 10}, "binary"),
        ({"type": "fixed", "name": "F", "size": 12, "logicalType": "duration"}, "binary"),
        ({"type": "fixed", "name": "F", "size": 16, "logicalType": "uuid"}, "string"),
        (["null", {"type": "int", "logicalType": "date"}, "long"], "struct<member0:date,member1:bigint>"),
    ],
)
def test_an_avro_type_becomes_this_one_in_spark(avro: Any, spark: str) -> None:
    assert _spark_type(format_of(QuerySchema(SchemaText("AVRO", json.dumps(avro)))).arrow).simpleString() == spark


def test_protobufs_types_and_those_of_json_become_these_in_spark() -> None:
    types = descriptor_pb2.FileDescriptorProto()
    types.CopyFrom(test_protobuf.file("types", imports=("wrappers", "struct")))
    message = types.message_type.add(name="A")
    for number, name in enumerate(("Value", "ListValue", "Struct", "BoolValue", "UInt64Value", "BytesValue"), 1):
        message.field.add(name=name, number=number, type=11, label=1, type_name=f".google.protobuf.{name}")
    in_spark = {
        test_protobuf.TARGET: "id:bigint,count:bigint,big:decimal(20,0),price:double,customer:string,raw:binary,"
        "state:string,lines:array<struct<sku:string,n:decimal(20,0)>>,labels:map<string,int>,at:timestamp,"
        "lasted:interval day to second,score:bigint,more:string,first:struct<sku:string,n:decimal(20,0)>,"
        "phone:string,mail:string,flags:array<boolean>",
        QuerySchema(test_protobuf.text_of(types)): "Value:string,ListValue:string,Struct:string,BoolValue:boolean,"
        "UInt64Value:decimal(20,0),BytesValue:binary",
        test_json.TARGET: "id:bigint,price:double,paid:boolean,note:string,lines:array<struct<sku:string,n:bigint>>,"
        "labels:map<string,bigint>,any:string",
    }
    for target, spark in in_spark.items():
        assert _spark_type(format_of(target).arrow).simpleString() == f"struct<{spark}>"


@pytest.mark.parametrize("schema", [record(), record(a=["null", record() | {"name": "E"}])], ids=["itself", "inside"])
def test_an_avro_record_without_fields_is_refused_by_name(server, schema):
    with pytest.raises(ConfigurationError, match="has no fields, and Spark cannot read such a struct"):
        confluent_decoder(server.url, schema=json.dumps(schema))


def test_a_writers_record_without_fields_can_be_left_out(server):
    assert read(server, record(a="int", b=record() | {"name": "E"}), record(a="int"), b"\2") == {"a": 1}


def test_a_writers_type_that_contains_itself_is_refused_by_name(server):
    tree = record(up=["null", "R"]) | {"name": "Tree"}
    written = json.loads(json.dumps(record(a="int", b=tree)).replace('"R"]', '"Tree"]'))
    target = QuerySchema(SchemaText("AVRO", json.dumps(record(a="int"))))
    values = pa.array([framed(server.register("any-value", json.dumps(written)), b"\2\0")])
    found = decode(values, None, Registry.of(server.url), target)
    assert found.faults[0].cause is Cause.INCOMPATIBLE
    assert "type Tree contains itself" in found.faults[0].message


def test_a_logical_type_that_changed_is_read_as_what_was_written_or_is_incompatible(server):
    assert read(server, decimal(2), decimal(4), b"\x04\xd2") == Decimal("12.3400")
    assert read(server, decimal(4), decimal(2), b"\x04\xd2") is Cause.INCOMPATIBLE
    at = read(
        server, LONG_AS | {"logicalType": "timestamp-millis"}, LONG_AS | {"logicalType": "timestamp-micros"}, b"\2"
    )
    assert at == datetime(1970, 1, 1, 0, 0, 0, 1_000, tzinfo=UTC)


def test_the_fault_of_a_nullable_field_names_it_both_types_and_the_way_out(server):
    written, wanted = record(price=["null", decimal(4)]), record(price=["null", decimal(2)])
    target = QuerySchema(SchemaText("AVRO", json.dumps(wanted)))
    schema_id = server.register("any-value", json.dumps(written), "AVRO")
    values = pa.array([framed(schema_id, b"\2\x04\x04\xd2"), framed(schema_id, b"\0")])
    found = decode(values, None, Registry.of(server.url), target)
    assert found.values.to_pylist() == [None, {"price": None}]
    assert found.faults[0].cause is Cause.INCOMPATIBLE
    assert found.faults[0].message.endswith(
        "field price: decimal(9,4) cannot be read as decimal(9,2): digits would be lost. "
        "A schema of the query with a scale of at least 4 reads it"
    )


def test_an_unknown_number_of_a_closed_enum_is_null():
    made = descriptor_pb2.FileDescriptorProto(name="e.proto", syntax="proto2", package="e")
    message = made.message_type.add(name="A")
    message.field.add(name="state", number=1, type=14, label=1, type_name=".e.A.State")
    message.field.add(name="states", number=2, type=14, label=3, type_name=".e.A.State")
    message.field.add(name="by_number", number=3, type=11, label=3, type_name=".e.A.ByNumberEntry")
    entry = message.nested_type.add(name="ByNumberEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=5, label=1)
    entry.field.add(name="value", number=2, type=14, label=1, type_name=".e.A.State")
    message.enum_type.add(name="State").value.add(name="NEW", number=0)
    target = QuerySchema(test_protobuf.text_of(made))
    unknown, known = (
        bytes([0, 0x08, n, 0x10, n, 0x1A, 4, 0x08, 1, 0x10, n]) for n in (5, 0)
    )  # state: n, states: n, by_number: 1 to n
    rows = rows_of(pa.array([unknown, known]))
    assert format_of(target).reader(target.schema)(rows).to_pylist() == [
        {"state": None, "states": [], "by_number": []},
        {"state": "NEW", "states": ["NEW"], "by_number": [(1, "NEW")]},
    ]


def test_a_protobuf_schema_whose_text_is_refused_by_topic_can_be_given_as_a_descriptor(server):
    server.register("text-value", 'edition = "2023"; message A { int64 a = 1; }', "PROTOBUF")
    with pytest.raises(ConfigurationError, match="'edition' at the start"):
        confluent_decoder(server.url, topic="text")
    given = base64.b64encode(
        test_protobuf.file("t", 'name: "A" ' + test_protobuf.field("a", 1, "INT64")).SerializeToString()
    )
    assert confluent_decoder(server.url, schema=given.decode(), schema_type="PROTOBUF").type.names == ["a"]


def test_of_two_equal_keys_of_json_the_last_one_counts(server):
    schema = {"properties": {"a": {"type": "integer"}}}
    assert read(server, schema, schema, b'{"a": 1, "a": 2}', "JSON") == {"a": 2}


@pytest.mark.parametrize(
    ("draft", "checked"),
    [
        ("http://json-schema.org/draft-04/schema#", True),
        ("http://json-schema.org/draft-07/schema#", True),
        ("https://json-schema.org/draft/2019-09/schema", False),
        ("https://json-schema.org/draft/2020-12/schema", False),
    ],
)
def test_a_format_of_json_is_checked_up_to_draft_7(server, draft, checked):
    schema = {"$schema": draft, "properties": {"day": {"type": "string", "format": "date"}}}
    found = read(server, schema, schema, b'{"day": "tomorrow"}', "JSON")
    assert found == (Cause.UNDECODABLE if checked else {"day": "tomorrow"})
