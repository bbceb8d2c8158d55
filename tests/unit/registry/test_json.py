"""What Confluent's JSON serializer writes is validated and read; what is written, its deserializer reads."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from spark_kafka_eos.dead_letters.causes import Cause
from spark_kafka_eos.errors import InvalidRow
from spark_kafka_eos.registry import json_schema
from spark_kafka_eos.registry.arrow import ConfluentEncoder
from spark_kafka_eos.registry.client import Registry, SchemaText
from spark_kafka_eos.registry.decoding import decode
from spark_kafka_eos.registry.formats import QuerySchema, format_of
from spark_kafka_eos.registry.nesting import UnsupportedSchema

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
    expected = ORDER | {"any": '[1, "two"]'}
    del expected["note"]
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


@pytest.mark.parametrize("kind", [pa.int64(), pa.float64()])
@pytest.mark.parametrize("value", [True, False, "1", None, [1]])
def test_nothing_else_is_taken_for_a_number(kind, value):
    with pytest.raises(TypeError):
        json_schema._number(value, kind)
    assert json_schema._number(1, kind) == 1
