"""What Confluent's JSON serializer writes is validated and read; what is written, its deserializer reads."""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_eos.dead_letters.causes import Cause
from spark_kafka_eos.errors import InvalidRow, InvalidSchema
from spark_kafka_eos.registry.arrow import ConfluentEncoder
from spark_kafka_eos.registry.client import Registry, SchemaText
from spark_kafka_eos.registry.decoding import decode
from spark_kafka_eos.registry.formats import QuerySchema, format_of
from spark_kafka_eos.registry.json_shapes import Shape
from spark_kafka_eos.registry.json_values import reader
from spark_kafka_eos.registry.nesting import UnsupportedSchema
from spark_kafka_eos.registry.rows import rows_of

VALUE = SerializationContext("orders", MessageField.VALUE)
SCHEMA = json.dumps({
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Order",
    "type": "object",
    "definitions": {"line": {"type": "object", "properties": {"sku": {"type": "string"}, "n": {"type": "integer"}}}},
    "properties": {
        "id": {"type": "integer"},
        "price": {"type": "number", "minimum": 0},
        "paid": {"type": "boolean"},
        "note": {"oneOf": [{"type": "null"}, {"type": "string"}]},
        "lines": {"type": "array", "items": {"$ref": "#/definitions/line"}},
        "labels": {"type": "object", "additionalProperties": {"type": "integer"}},
        "any": {},
    },
    "required": ["id"],
})  # fmt: skip
TARGET = QuerySchema(SchemaText("JSON", SCHEMA))
ORDER = {
    "id": 7,
    "price": 1.5,
    "paid": True,
    "note": None,
    "lines": [{"sku": "a", "n": 2}],
    "labels": {"x": 1},
    "any": [1, "two"],
}
ROW = ORDER | {"labels": [("x", 1)], "any": '[1, "two"]'}
BASE: dict[str, Any] = {
    "$id": "https://schemas.example/base.json",
    "type": "object",
    "properties": {"messageId": {"type": "string"}, "at": {"type": "integer"}},
    "required": ["messageId"],
}
OWN = {"type": "object", "properties": {"userId": {"type": "string"}}}
A = {"properties": {"a": {"type": "integer"}}}
B = {"properties": {"b": {"type": "integer"}}}
MAP = {"type": "object", "additionalProperties": {"type": "integer"}}
INHERITED = {"messageId": "m", "at": 5, "userId": "u"}
DRAFT_2020 = {"$schema": "https://json-schema.org/draft/2020-12/schema"}


def text_of(schema: object) -> SchemaText:
    """With BASE as a reference."""
    return SchemaText("JSON", json.dumps(schema), ((BASE["$id"], json.dumps(BASE)),))


def read(schema: object, body: bytes) -> Any:
    """What a record of this schema is, read with the same: the value, or the cause of its fault."""
    text = text_of(schema)
    rows = rows_of(pa.array([body]))
    (value,) = format_of(QuerySchema(text)).reader(text)(rows).to_pylist()
    return rows.faults.of(0) or value


def written(schema: object, column: pa.Array) -> list[Any]:
    """The values that are written of a column."""
    bodies = format_of(QuerySchema(text_of(schema))).write(column, b"").to_pylist()
    return [None if body is None else json.loads(body) for body in bodies]


def field(kind: object, column: pa.Array) -> tuple[dict[str, Any], pa.Array]:
    """A schema with one field `a` of this kind, and the column as its values."""
    return {"properties": {"a": kind}}, pa.StructArray.from_arrays([column], ["a"])


def test_confluents_records_are_read_and_what_does_not_fit_is_a_fault(server, client):
    serialize = JSONSerializer(SCHEMA, client)
    good = serialize(ORDER, VALUE)
    bodies = [
        b'{"price": 1}',
        b'{"id": 1, "price": -1}',
        b"{",
        b'{"id": 9223372036854775808}',
        b'{"id": NaN}',
        b"[" * 99999,
    ]
    found = decode(pa.array([good, *(good[:5] + body for body in bodies), None]), None, Registry.of(server.url), TARGET)
    assert found.values.to_pylist() == [ROW, *[None] * 7]
    assert [found.faults[row].cause for row in range(1, 7)] == [
        *[Cause.UNDECODABLE] * 3,
        Cause.OUT_OF_RANGE,
        *[Cause.UNDECODABLE] * 2,
    ]


def test_what_is_written_is_read_by_confluents_deserializer(server, client):
    schema_id = server.register("orders-value", SCHEMA, "JSON")
    values = pa.array([ROW, None], format_of(TARGET).arrow)
    first, second = ConfluentEncoder(TARGET, schema_id)(values).to_pylist()
    assert second is None
    expected = {name: value for name, value in ORDER.items() if name != "note"}
    assert JSONDeserializer(SCHEMA, schema_registry_client=client)(first, VALUE) == expected
    with pytest.raises(InvalidRow, match=r"\$\.price does not fit its JSON schema: minimum"):
        ConfluentEncoder(TARGET, schema_id)(pa.array([ROW | {"price": -99.5}], values.type))


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (
            '{"$ref": "#/definitions/a", "definitions": {"a": {"properties": {"b": {"$ref": "#/definitions/a"}}}}}',
            "itself",
        ),
        ('{"$ref": "#/definitions/a"}', "nothing is found"),
        ('{"type": 5}', "not a JSON schema"),
        ("{", "not a JSON schema"),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused_by_name(schema, said):
    with pytest.raises(UnsupportedSchema, match=said):
        format_of(QuerySchema(SchemaText("JSON", schema)))


@pytest.mark.parametrize("kind", ["integer", "number"])
@pytest.mark.parametrize("value", [True, False, "1", [1]])
def test_nothing_else_is_taken_for_a_number(kind, value):
    with pytest.raises(TypeError):
        reader(Shape(kind))(value)
    assert reader(Shape(kind))(1) == 1


@pytest.mark.parametrize(
    "schema",
    [
        {"allOf": [{"$ref": BASE["$id"]}], **OWN},
        {"allOf": [{"$ref": BASE["$id"]}, OWN]},
        {"$ref": BASE["$id"], **OWN},
        {"$ref": BASE["$id"], **OWN, **DRAFT_2020},
        {"oneOf": [{"type": "null"}, {"$ref": BASE["$id"]}], **OWN},
        {"anyOf": [{"$ref": BASE["$id"]}, {"type": ["null"]}], **OWN},
        {"allOf": [{"allOf": [{"$ref": BASE["$id"]}]}, {"anyOf": [OWN, {"const": None}]}]},
    ],
)
def test_a_field_that_is_inherited_has_a_column_beside_a_schemas_own(schema):
    expected = pa.struct([("userId", pa.string()), ("messageId", pa.string()), ("at", pa.int64())])
    kind = format_of(QuerySchema(text_of(schema))).arrow
    assert sorted(kind, key=lambda each: each.name) == sorted(expected, key=lambda each: each.name)
    assert read(schema, json.dumps(INHERITED).encode()) == INHERITED
    assert written(schema, pa.array([INHERITED], kind)) == [INHERITED]
    for nested, value in (
        ({"type": "array", "items": schema}, [INHERITED]),
        ({"properties": {"x": schema}}, {"x": INHERITED}),
        ({"type": "object", "additionalProperties": schema}, {"x": INHERITED}),
    ):
        column = read(nested, json.dumps(value).encode())
        assert (dict(column) if isinstance(value, dict) else column) == value


@pytest.mark.parametrize(
    "more",
    [
        {"oneOf": [A | {"required": ["a"]}, B | {"required": ["b"]}]},
        {"anyOf": [A, B]},
        {"if": {"required": ["userId"]}, "then": A},
        {"if": {"required": ["b"]}, "else": {"allOf": [A]}},
        {"dependencies": {"userId": A}},
        {"dependentSchemas": {"userId": A}, **DRAFT_2020},
        {"$dynamicRef": "#", **DRAFT_2020},
        {"anyOf": [{"type": "null"}, {"anyOf": [A, B]}]},
        {"oneOf": [{"$ref": "#"}, {"type": "string"}]},
    ],
)
def test_an_object_some_of_whose_values_have_further_fields_is_text_with_all_of_them(more):
    schema = OWN | more
    value = {"userId": "u", "a": 1}
    assert format_of(QuerySchema(text_of({"properties": {"x": schema}}))).arrow == pa.struct([("x", pa.string())])
    assert json.loads(read({"properties": {"x": schema}}, json.dumps({"x": value}).encode())["x"]) == value


def test_what_drafts_up_to_7_ignore_beside_a_reference_names_fields_and_restricts_nothing():
    number = {"$ref": "#/definitions/x", "required": ["b"], "allOf": [B], "properties": {"a": {"type": "string"}}}
    schema = {"properties": {"n": number}, "definitions": {"x": A | {"type": "object"}}}
    assert read(schema, b'{"n": {"a": 1}}') == {"n": {"a": 1, "b": None}}
    kind = format_of(QuerySchema(text_of(schema))).arrow
    assert written(schema, pa.array([{"n": {"a": 1, "b": None}}], kind)) == [{"n": {"a": 1}}]
    assert read(schema | DRAFT_2020, b'{"n": {"a": 1}}') is Cause.UNDECODABLE


@pytest.mark.parametrize(
    "more",
    [
        {"anyOf": [{"required": ["userId"]}, {"required": ["b"]}]},
        {"oneOf": [{"properties": {"userId": {"const": "u"}}}, {"properties": {"userId": {"const": "v"}}}]},
        {"if": {"properties": {"userId": {"const": "v"}}}, "then": {"required": ["x"]}},
        {"not": {"required": ["x"]}},
        {"allOf": [{"minProperties": 1}, True]},
        {"dependencies": {"x": ["y"]}},
    ],
)
def test_what_only_says_which_values_fit_leaves_an_object_its_columns(more):
    assert read(OWN | more, b'{"userId": "u"}') == {"userId": "u"}


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"oneOf": [{"type": "string", "format": "date"}, {"type": "string", "maxLength": 3}]}, pa.string()),
        ({"anyOf": [A | {"required": ["a"]}, A | {"maxProperties": 3}]}, pa.struct([("a", pa.int64())])),
        ({"type": ["integer", "number", "null"]}, pa.float64()),
        ({"type": "number", "allOf": [{"type": ["integer", "string"]}]}, pa.int64()),
        ({"enum": [1, 2.5, None]}, pa.float64()),
        ({"enum": [1, 2]}, pa.int64()),
        ({"const": True}, pa.bool_()),
        ({"allOf": [{"properties": {"x": A}}, {"properties": {"x": B}}]}, "struct<x: struct<a: int64, b: int64>>"),
        ({"type": "array", "items": A, "allOf": [{"items": B}]}, "list<element: struct<a: int64, b: int64>>"),
        ({"type": "object", "additionalProperties": A, "patternProperties": {"^x": {}}}, pa.string()),
        ({"type": "array", "items": A, "prefixItems": [B], **DRAFT_2020}, pa.string()),
        ({"type": "array", "items": [A, B]}, pa.string()),
        ({"type": "object", "allOf": [{"type": "string"}]}, pa.string()),
        ({"allOf": [{"type": "object", "additionalProperties": {"type": "integer"}}, A]}, pa.string()),
        (True, pa.string()),
    ],
)
def test_a_part_has_the_type_of_all_its_values_or_is_text(schema, kind):
    made = format_of(QuerySchema(text_of(schema))).arrow
    assert (made if isinstance(kind, pa.DataType) else str(made)) == kind


def test_two_documents_with_definitions_of_one_name_do_not_contain_each_other():
    other = {"$ref": "#/definitions/a", "definitions": {"a": {"type": "integer"}}}
    schema = {"properties": {"x": {"$ref": "#/definitions/a"}}, "definitions": {"a": {"$ref": "other.json"}}}
    text = SchemaText("JSON", json.dumps(schema), (("other.json", json.dumps(other)),))
    assert format_of(QuerySchema(text)).arrow == pa.struct([("x", pa.int64())])


def test_a_reference_is_resolved_by_the_id_that_is_next_to_it():
    inner = {"$id": "https://other.example/in.json", "properties": {"x": {"$ref": "#/definitions/a"}}}
    inner |= {"definitions": {"a": {"type": "integer"}}}
    schema = {"properties": {"in": inner}, "definitions": {"a": {"type": "string"}}}
    assert read(schema, b'{"in": {"x": 1}}') == {"in": {"x": 1}}


@pytest.mark.parametrize("own", [None, "http://shop.example/v1/customer.json", "http://else.example/c.json"])
@pytest.mark.parametrize("named", ["customer.json", "/v1/customer.json", "http://shop.example/v1/customer.json"])
@pytest.mark.parametrize("draft", ["", "http://json-schema.org/draft-04/schema#", DRAFT_2020["$schema"]])
def test_the_name_of_a_reference_is_resolved_by_the_id_of_the_schema(named, own, draft):
    """As Confluent's Java does, and Confluent's Python does not."""
    name = "id" if "draft-04" in draft else "$id"
    elsewhere = own is not None and "else" in own
    parts = {"n": {"$ref": "#/definitions/n"}} | ({} if elsewhere else {"to": {"$ref": "address.json"}})
    customer = {"type": "object", "properties": parts, "definitions": {"n": {"type": "string"}}}
    customer |= {name: own} if own else {}
    address = {"type": "object", "properties": {"city": {"type": "string"}}}
    order = {name: "http://shop.example/v1/order.json", "properties": {"c": {"$ref": named}}}
    order |= {"$schema": draft} if draft else {}
    others = (("address.json", json.dumps(address)), (named, json.dumps(customer)))
    text = SchemaText("JSON", json.dumps(order), others)
    made = format_of(QuerySchema(text))
    row = {"c": {"n": "x"} | ({} if elsewhere else {"to": {"city": "Rome"}})}
    rows = rows_of(pa.array([json.dumps(row).encode(), b'{"c": {"n": 1}}']))
    assert made.reader(text)(rows).to_pylist()[0] == row
    assert [rows.faults.of(number) for number in range(2)] == [None, Cause.UNDECODABLE]


@pytest.mark.parametrize("named", [True, False], ids=["named", "the referrer's"])
def test_a_schema_that_is_referred_to_is_validated_by_its_own_draft(named):
    pair = {"type": "array", "prefixItems": [{"type": "string"}]} | (DRAFT_2020 if named else {})
    schema = {"properties": {"a": {"$ref": "pair.json"}}} | ({} if named else DRAFT_2020)
    text = SchemaText("JSON", json.dumps(schema), (("pair.json", json.dumps(pair)),))
    rows = rows_of(pa.array([b'{"a": ["x"]}', b'{"a": [1]}']))
    assert format_of(QuerySchema(text)).reader(text)(rows).to_pylist() == [{"a": '["x"]'}, None]
    assert rows.faults.of(1) is Cause.UNDECODABLE


def test_a_number_that_is_too_large_is_out_of_range_in_text_too():
    assert read({"properties": {"a": {}}}, b'{"a": [1e400]}') is Cause.OUT_OF_RANGE


def test_a_string_that_is_part_of_a_text_is_told_from_other_values():
    schema = {"properties": {"a": {"type": ["string", "integer"]}}}
    for value in ("5", 5, 'a "quoted" word', ""):
        row = read(schema, json.dumps({"a": value}).encode())
        assert json.loads(row["a"]) == value
        assert written(schema, pa.array([row])) == [{"a": value}]


@pytest.mark.parametrize(
    "schema",
    [
        {"anyOf": [{"type": "string"}, MAP], "allOf": [A]},
        {"anyOf": [MAP, A]},
        A | {"oneOf": [MAP, {"required": ["a"]}]},
        A | {"if": {"required": ["x"]}, "then": MAP},
        A | {"dependencies": {"x": MAP}},
        {"$ref": "#/definitions/a", "additionalProperties": {"type": "integer"}},
    ],
)
def test_an_object_that_some_values_have_as_a_map_keeps_the_maps_keys(schema):
    whole = {"properties": {"o": schema}, "definitions": {"a": A}}
    row = read(whole, b'{"o": {"x": 5}}')
    assert json.loads(row["o"]) == {"x": 5}
    assert written(whole, pa.array([row])) == [{"o": {"x": 5}}]


def test_a_field_that_no_schema_names_has_no_column():
    others: dict[str, Any]
    for others in ({}, {"additionalProperties": {"type": "integer"}}, {"patternProperties": {"^x": {}}}):
        assert read(OWN | others, b'{"userId": "u", "x": 1}') == {"userId": "u"}


def test_a_number_that_is_read_is_a_double():
    schema = {"properties": {"a": {"type": "number"}}}
    assert read(schema, b'{"a": 0.12345678901234567}') == {"a": 0.12345678901234567}
    assert read(schema, b'{"a": 9007199254740993}') == {"a": 9007199254740992.0}


@pytest.mark.parametrize("value", ["1", "x", True, [1], {"b": 1}])
def test_a_value_of_another_type_than_the_columns_is_incompatible(value):
    wanted = text_of({"properties": {"a": {"type": "integer"}}})
    rows = rows_of(pa.array([json.dumps({"a": value}).encode(), json.dumps(["a"]).encode()]))
    assert format_of(QuerySchema(wanted)).reader(text_of({}))(rows).to_pylist() == [None, None]
    assert [rows.faults.of(row) for row in range(2)] == [Cause.INCOMPATIBLE] * 2


# -- written


def test_a_field_that_is_null_is_written_where_the_schema_requires_it_and_is_left_out_elsewhere():
    number = {"type": ["integer", "null"]}
    schema: dict[str, Any] = {
        "properties": {"a": number, "b": number},
        "required": ["a"],
        "allOf": [{"required": ["c"]}],
    }
    schema["properties"]["c"] = {"oneOf": [{"type": "null"}, A | {"type": "object", "required": ["a"]}]}
    kind = format_of(QuerySchema(text_of(schema))).arrow
    rows = [{"a": None, "b": None, "c": None}, {"a": 1, "b": 2, "c": {"a": 3}}, None]
    assert written(schema, pa.array(rows, kind)) == [{"a": None, "c": None}, rows[1], None]
    nested = {"type": "array", "items": {"type": "object", "additionalProperties": schema}}
    column = pa.array([[[("x", rows[0])], None]], format_of(QuerySchema(text_of(nested))).arrow)
    with pytest.raises(InvalidRow, match=r"\$\[1\] does not fit its JSON schema: type"):
        written(nested, column)


NULLABLE = {"type": ["integer", "null"]}
NULLABLES = {"type": "object", "properties": {"a": NULLABLE, "b": NULLABLE, "c": {"type": "integer"}, "d": NULLABLE}}


@pytest.mark.parametrize(
    ("requires", "value"),
    [
        ({"if": {"required": ["c"]}, "then": {"required": ["a"]}}, {"a": None, "c": 1}),
        ({"if": {"required": ["c"]}, "else": {"required": ["a"]}}, {"a": None}),
        ({"dependentRequired": {"c": ["a", "b"]}}, {"a": None, "b": None, "c": 1}),
        ({"dependentRequired": {"c": ["a"], "a": ["b"]}}, {"a": None, "b": None, "c": 1}),
        ({"dependentSchemas": {"c": {"required": ["b"]}}}, {"b": None, "c": 1}),
        ({"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"a": None}),
        ({"anyOf": [{"required": ["c"]}, {"required": ["b"]}]}, {"b": None}),
        ({"oneOf": [{"required": ["a", "d"]}, {"required": ["b", "c"]}]}, {"a": None, "d": None}),
        ({"allOf": [{"anyOf": [{"anyOf": [{"required": ["a"]}]}, {"required": ["c"]}]}]}, {"a": None}),
    ],
)
@pytest.mark.parametrize("place", ["top", "item"])
def test_a_null_that_only_a_part_of_the_schema_requires_is_written_so_that_a_valid_record_can_be_copied(
    requires, value, place
):
    schema: dict[str, Any] = DRAFT_2020 | NULLABLES | requires
    if place == "item":
        schema = {
            **DRAFT_2020,
            "type": "object",
            "properties": {"list": {"type": "array", "items": NULLABLES | requires}},
        }
        value = {"list": [{"c": 1, "a": 2, "b": 3}, value]}
    column = format_of(QuerySchema(text_of(schema))).reader(text_of(schema))(
        rows_of(pa.array([json.dumps(value).encode()]))
    )
    assert written(schema, column) == [value]


def test_a_branch_that_needs_more_than_nulls_is_refused_as_before():
    schema = (
        DRAFT_2020
        | NULLABLES
        | {"anyOf": [{"required": ["a", "c"]}, {"properties": {"b": {"const": 1}}, "required": ["b"]}]}
    )
    kind = format_of(QuerySchema(text_of(schema))).arrow
    with pytest.raises(InvalidRow, match=r"\$ does not fit its JSON schema: anyOf"):
        written(schema, pa.array([{"a": None, "b": None, "c": None, "d": None}], kind))


def test_an_error_names_fields_of_the_schema_and_no_key_of_a_map():
    limited = {"type": "object", "properties": {"age": {"type": "integer", "minimum": 0}}}
    schema = {"properties": {"people": {"type": "object", "additionalProperties": {"type": "array", "items": limited}}}}
    kind = format_of(QuerySchema(text_of(schema))).arrow
    column = pa.array([{"people": [("Zoë", [{"age": 1}, {"age": -1}])]}], kind)
    with pytest.raises(InvalidRow, match=r"\$\.people\.\*\[1\]\.age does not fit its JSON schema: minimum") as refused:
        written(schema, column)
    assert "Zoë" not in str(refused.value)


def test_a_field_that_is_required_and_may_not_be_null_is_refused_when_it_is():
    schema = {"properties": {"a": {"type": "integer"}}, "required": ["a"]}
    with pytest.raises(InvalidRow, match=r"\$\.a does not fit its JSON schema: type"):
        written(schema, pa.array([{"a": None}], pa.struct([("a", pa.int64())])))


@pytest.mark.parametrize(
    ("rule", "values"),
    [
        ({"minProperties": 1}, [{"a": None}, {"a": 1}, {"a": None, "d": None}]),
        ({"minProperties": 2}, [{"a": None, "d": 1}]),
        ({"not": {"not": {"required": ["a"]}}}, [{"a": None}]),
        ({"not": {"maxProperties": 0}}, [{"a": None}]),
        ({"if": {"required": ["c"]}, "else": {"minProperties": 1}}, [{"a": None}]),
        ({"if": {"maxProperties": 0}, "then": False}, [{"a": None}]),
        ({"anyOf": [{"minProperties": 1}, {"required": ["x"]}]}, [{"a": None}]),
        ({"allOf": [{"oneOf": [{"minProperties": 1}, {"type": "null"}]}]}, [{"a": None}]),
    ],
)
def test_nulls_are_written_where_an_object_fits_a_rule_of_any_kind_only_with_them(rule, values):
    parts = {"a": NULLABLE, "c": {"type": "integer"}, "d": NULLABLE}
    schema: dict[str, Any] = DRAFT_2020 | {"type": "object", "properties": parts} | rule
    kind = format_of(QuerySchema(text_of(schema))).arrow
    whole: dict[str, Any] = {"a": None, "c": None, "d": None}
    for value in values:
        (found,) = written(schema, pa.array([whole | value], kind))
        assert whole | found == whole | value
        assert "c" not in found  # which may not be null
        nested = {"type": "object", "additionalProperties": {"oneOf": [{"type": "null"}, schema]}}
        column = pa.array([[("k", whole | value), ("none", None)]], pa.map_(pa.string(), kind))
        assert written(nested, column) == [{"k": found, "none": None}]


def test_nulls_are_written_where_an_array_contains_what_it_must_only_with_them():
    schema = {"type": "array", "items": NULLABLES, "contains": {"required": ["a"]}}
    kind = format_of(QuerySchema(text_of(schema))).arrow
    row = {"a": None, "b": 1, "c": None, "d": None}
    assert written(schema, pa.array([[row]], kind)) == [[{"a": None, "b": 1, "d": None}]]


def test_a_null_of_a_map_or_a_text_that_does_not_fit_is_never_left_out():
    parts = {"a": NULLABLE, "map": MAP, "text": {"properties": {"x": {"type": "integer"}}, "anyOf": [A, MAP]}}
    schema = {"type": "object", "properties": parts, "minProperties": 3}
    kind = format_of(QuerySchema(text_of(schema))).arrow
    for value in ({"map": [("k", None)], "text": "{}"}, {"map": [], "text": '{"x": null}'}):
        with pytest.raises(InvalidRow):
            written(schema, pa.array([{"a": None} | value], kind))


REQUIRING: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": ["string", "null"]}, "b": {"type": "string"}},
    "required": ["a"],
}
ONLY_B = pa.struct([("b", pa.string())])


@pytest.mark.parametrize(
    ("schema", "kind", "missing"),
    [
        (REQUIRING, ONLY_B, "$.a"),
        (REQUIRING | {"required": ["a", "x"]}, ONLY_B, "$.a, $.x"),
        ({"allOf": [REQUIRING]}, ONLY_B, "$.a"),
        ({"type": "array", "items": REQUIRING}, pa.list_(ONLY_B), "$[*].a"),
        ({"type": "object", "additionalProperties": REQUIRING}, pa.map_(pa.string(), ONLY_B), "$.*.a"),
        ({"properties": {"o": {"oneOf": [{"type": "null"}, REQUIRING]}}}, pa.struct([("o", ONLY_B)]), "$.o.a"),
        ({"properties": {"o": REQUIRING | {"type": ["object", "null"]}}}, pa.struct([("o", ONLY_B)]), "$.o.a"),
    ],
)
def test_a_struct_without_a_field_that_the_schema_requires_is_refused_by_name_before_any_row(schema, kind, missing):
    with pytest.raises(InvalidSchema, match=rf"requires without a default, .*: {re.escape(missing)}\. .*Add them"):
        ConfluentEncoder(QuerySchema(text_of(schema)), 1).check(kind)


@pytest.mark.parametrize(
    "default",
    [{"default": "new"}, {"$ref": "#/definitions/text"}, {"oneOf": [{"type": "null"}, {"default": "new"}]}],
)
def test_a_field_that_the_schema_requires_and_the_struct_lacks_is_written_with_its_default(default):
    schema = REQUIRING | {"definitions": {"text": {"type": "string", "default": "new"}}}
    schema["properties"] = REQUIRING["properties"] | {"a": default}
    ConfluentEncoder(QuerySchema(text_of(schema)), 1).check(ONLY_B)
    assert written(schema, pa.array([{"b": "x"}, {"b": None}], ONLY_B)) == [{"a": "new", "b": "x"}, {"a": "new"}]


def test_a_row_without_fields_that_only_its_value_requires_is_refused_with_their_names():
    schema = REQUIRING | {"required": [], "dependentRequired": {"b": ["a", "x"]}, **DRAFT_2020}
    inside = {"type": "array", "items": schema}
    with pytest.raises(
        InvalidRow, match=r"\$\[1\] does not fit its JSON schema: required \(it lacks a, x\)"
    ) as refused:
        written(inside, pa.array([[{"b": None}, {"b": "secret"}]], pa.list_(ONLY_B)))
    assert "secret" not in str(refused.value)


DIGITS = Decimal("12345678901234567890.123456789012345678")
SUMMER = datetime(2026, 7, 1, 0, 30, 0, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "column", "text"),
    [
        ("number", pa.array([Decimal("9.50")], pa.decimal128(9, 2)), "9.50"),
        ("number", pa.array([DIGITS], pa.decimal128(38, 18)), str(DIGITS)),
        ("number", pa.array([Decimal(0)], pa.decimal128(9, 8)), "0E-8"),
        ("number", pa.array([0.1], pa.float32()), "0.1"),
        ("number", pa.array([np.float32(8623.88)]), "8623.88"),
        ("number", pa.array([1e-7], pa.float32()), "1e-07"),
        ("number", pa.array([2.0**24], pa.float32()), "16777216.0"),
        ("number", pa.array([-0.0], pa.float32()), "-0.0"),
        ("number", pa.array([np.float16(0.1)]), "0.1"),
        ("number", pa.array([float(np.float32(0.1))]), "0.10000000149011612"),
        ("integer", pa.array([123456789.0], pa.float32()), "123456792"),
        ("integer", pa.array([Decimal(2**64)], pa.decimal128(20, 0)), "18446744073709551616"),
        ("integer", pa.array([Decimal("7.00")], pa.decimal128(9, 2)), "7"),
        ("integer", pa.array([7.0]), "7"),
        ("integer", pa.array([2**64 - 1], pa.uint64()), "18446744073709551615"),
        ("string", pa.array([date(1969, 12, 31)]), '"1969-12-31"'),
        ("string", pa.array([SUMMER], pa.timestamp("us", "UTC")), '"2026-07-01T00:30:00.000005Z"'),
        ("string", pa.array([SUMMER], pa.timestamp("us", "Europe/Berlin")), '"2026-07-01T00:30:00.000005Z"'),
        ("string", pa.array([-62135596800000000], pa.timestamp("us", "America/Lima")), '"0001-01-01T00:00:00Z"'),
        ("string", pa.array([-1], pa.timestamp("us", "UTC")), '"1969-12-31T23:59:59.999999Z"'),
        ("string", pa.array([0], pa.timestamp("us")), '"1970-01-01T00:00:00"'),
        ("string", pa.array(["Zoë"], pa.large_string()), '"Zo\\u00eb"'),
        ("string", pa.array(["a"]).dictionary_encode(), '"a"'),
        (None, pa.array(['{"b": [1.50, null]}']), '{"b": [1.50, null]}'),
        (None, pa.array([f'{{"b": {DIGITS}, "c": 1e-7}}']), f'{{"b": {DIGITS}, "c": 1E-7}}'),
        (None, pa.array(["0.1234567890123456789"]), "0.1234567890123456789"),
        (None, pa.array(["12345678901234567890123"]), "12345678901234567890123"),
        (None, pa.array([[("k", None)]], pa.map_(pa.string(), pa.null())), '{"k": null}'),
        (None, pa.array([{"b": None, "c": DIGITS}], pa.struct([("b", pa.string()), ("c", pa.decimal128(38, 18))])),
         f'{{"b": null, "c": {DIGITS}}}'),
        (None, pa.array([[[("k", SUMMER)]]], pa.list_(pa.map_(pa.string(), pa.timestamp("us", "UTC")))),
         '[{"k": "2026-07-01T00:30:00.000005Z"}]'),
        (None, pa.array([True]), "true"),
        (None, pa.array([0.1], pa.float32()), "0.1"),
        (None, pa.array([{"b": [("k", [0.1, None])]}],
                        pa.struct([("b", pa.map_(pa.string(), pa.list_(pa.float32())))])), '{"b": {"k": [0.1, null]}}'),
    ],
)  # fmt: skip
def test_a_column_is_written_as_the_schemas_type(kind, column, text):
    schema, rows = field({"type": kind} if kind else {}, column)
    body = format_of(QuerySchema(text_of(schema))).write(rows, b"").to_pylist()
    assert body == [b'{"a": %s}' % text.encode()]
    inside = {"type": "array", "items": {"type": "object", "additionalProperties": schema}}
    offsets, ends = pa.array([0, 1], pa.int32()), pa.array([0, 1], pa.int32())
    maps = pa.MapArray.from_arrays(offsets, pa.array(["k"]), rows)
    nested = format_of(QuerySchema(text_of(inside))).write(pa.ListArray.from_arrays(ends, maps), b"").to_pylist()
    assert nested == [b'[{"k": {"a": %s}}]' % text.encode()]


def test_a_float_fits_a_bound_that_it_was_made_of():
    schema, rows = field({"type": "number", "maximum": 19.99, "minimum": 0.1}, pa.array([19.99, 0.1], pa.float32()))
    assert written(schema, rows) == [{"a": 19.99}, {"a": 0.1}]


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_a_float_is_written_with_the_fewest_digits_that_are_the_same_float(value):
    schema, rows = field({"type": "number"}, pa.array([value], pa.float32()))
    (body,) = format_of(QuerySchema(text_of(schema))).write(rows, b"").to_pylist()
    number = json.loads(body)["a"]
    assert np.float32(number) == np.float32(value)
    assert Decimal(repr(number)) == Decimal(pa.array([value], pa.float32()).cast(pa.string())[0].as_py())


@pytest.mark.parametrize("kind", ["string", "integer", "number", "boolean", "array", None])
@pytest.mark.parametrize(
    "column", [pa.array([b"secret"]), pa.array([5], pa.duration("us")), pa.array([5], pa.time64("us"))], ids=str
)
def test_a_column_of_a_type_that_json_has_not_is_refused_by_name_before_any_row(kind, column):
    schema, rows = field({"type": kind} if kind else {}, column)
    with pytest.raises(InvalidSchema, match=rf"\$\.a has type {re.escape(str(column.type))}, but") as refused:
        ConfluentEncoder(QuerySchema(text_of(schema)), 1).check(rows.type)
    assert "secret" not in str(refused.value)
    inside = {"type": "object", "additionalProperties": schema}
    outside = {"type": "array", "items": {"properties": {"x": inside}}}
    none = pa.array([], pa.list_(pa.struct([("x", pa.map_(pa.string(), rows.type))])))
    with pytest.raises(InvalidSchema, match=r"\$\[\*\]\.x\.\*\.a has type"):
        written(outside, none)


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        ("string", pa.array([1])),
        ("string", pa.array([Decimal("1.5")])),
        ("string", pa.array([{"b": 1}])),
        ("number", pa.array(["1"])),
        ("integer", pa.array([True])),
        ("integer", pa.array([date(2026, 1, 1)])),
        ("boolean", pa.array([1])),
    ],
)
def test_a_column_of_another_type_than_the_schemas_is_refused_by_name_before_any_row(kind, column):
    schema, rows = field({"type": kind}, column)
    with pytest.raises(InvalidSchema, match=r"\$\.a has type"):
        ConfluentEncoder(QuerySchema(text_of(schema)), 1).check(rows.type)


@pytest.mark.parametrize(
    ("kind", "column", "said"),
    [
        ({"type": "integer"}, pa.array([Decimal("7.5")]), r"\$\.a does not fit its JSON schema: type"),
        ({"type": "number", "multipleOf": 0.01}, pa.array([Decimal("1.234")]), r"\$\.a does .*: multipleOf"),
        ({"type": "integer"}, pa.array([math.nan]), "NaN or infinity"),
        ({"type": "number"}, pa.array([math.inf]), "NaN or infinity"),
        ({}, pa.array([math.nan]), "NaN or infinity"),
        ({"type": "number"}, pa.array([math.nan], pa.float32()), "NaN or infinity"),
        ({}, pa.array([-math.inf], pa.float32()), "NaN or infinity"),
        ({}, pa.array(["secret"]), r"\$\.a must be the text of a JSON value"),
        ({}, pa.array(["NaN"]), r"\$\.a must be the text of a JSON value"),
        ({}, pa.array(["[1e400]"]), r"\$\.a must be .* numbers that a double can hold"),
        ({}, pa.array(["1e-99999999999999999999"]), r"\$\.a must be .* numbers that a double can hold"),
        ({}, pa.array(['{"secret": 1, "secret": 2}']), r"\$\.a must be .* no name twice"),
        ({"type": "string"}, pa.array([2**60], pa.timestamp("us", "UTC")), "outside of the years 1 to 9999"),
        ({"type": "string"}, pa.array([2**31 - 1], pa.date32()), "outside of the years 1 to 9999"),
        ({"type": "string", "format": "date-time"}, pa.array([0], pa.timestamp("us")), r"\$\.a does .*: format"),
    ],
)
def test_a_value_that_json_or_its_schema_has_not_is_refused_without_its_content(kind, column, said):
    schema, rows = field(kind, column)
    with pytest.raises(InvalidRow, match=said) as refused:
        written(schema, rows)
    assert "secret" not in str(refused.value)


def converted(name: str, kind: str, connect: str, *, index: int, optional: bool = False) -> dict[str, Any]:
    """A field as Kafka Connect's JsonSchemaConverter writes its schema."""
    plain = {"type": kind, "title": name, "connect.version": 1, "connect.type": connect}
    if not optional:
        return plain | {"connect.index": index}
    return {"oneOf": [{"type": "null"}, plain], "connect.index": index}


CONNECT = "org.apache.kafka.connect.data"
CONVERTED = {
    "type": "object",
    "title": "shop.public.orders.Value",
    "properties": {
        "at": converted(f"{CONNECT}.Timestamp", "integer", "int64", index=0, optional=True),
        "day": converted(f"{CONNECT}.Date", "integer", "int32", index=1),
        "time": converted(f"{CONNECT}.Time", "integer", "int32", index=2),
        "price": converted(f"{CONNECT}.Decimal", "string", "bytes", index=3) | {"connect.parameters": {"scale": "2"}},
        "numeric": converted(f"{CONNECT}.Decimal", "number", "bytes", index=4) | {"connect.parameters": {"scale": "2"}},
        "changed": converted("io.debezium.time.MicroTimestamp", "integer", "int64", index=5),
        "raw": {"type": "string", "connect.type": "bytes", "connect.index": 6},
        "labels": {"type": "object", "connect.type": "map", "connect.index": 7, "additionalProperties": {
            "type": "integer", "connect.type": "int8"}},
        "by_number": {"type": "array", "connect.type": "map", "connect.index": 8, "items": {
            "type": "object", "properties": {
                "key": {"type": "integer", "connect.index": 0, "connect.type": "int32"},
                "value": {"type": "string", "connect.index": 1}}}},
    },
}  # fmt: skip


def test_what_connects_converter_for_json_schema_writes_is_read_as_the_numbers_and_texts_that_it_writes():
    record = {
        "at": 1_700_000_000_123, "day": 19_675, "time": 3_600_000, "price": "BNI=", "numeric": 12.34,
        "changed": 1_700_000_000_123_456, "raw": "AAE=", "labels": {"a": 1}, "by_number": [{"key": 1, "value": "x"}],
    }  # fmt: skip
    assert read(CONVERTED, json.dumps(record).encode()) == record | {"labels": [("a", 1)]}
    assert read(CONVERTED, json.dumps(record | {"at": None}).encode())["at"] is None
    kind = format_of(QuerySchema(text_of(CONVERTED))).arrow
    assert [kind.field(name).type for name in ("at", "day", "time", "changed")] == [pa.int64()] * 4
    assert [kind.field(name).type for name in ("price", "numeric", "raw")] == [pa.string(), pa.float64(), pa.string()]
