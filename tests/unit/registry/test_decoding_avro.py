"""What Confluent's serializer writes is read as it was; what does not fit is a fault of its own record."""

from __future__ import annotations

import io
import json
from typing import cast
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_eos.dead_letters.causes import Cause
from spark_kafka_eos.errors import RegistryError, UndecodableRecord
from spark_kafka_eos.kafka.wire.headers import HEADERS
from spark_kafka_eos.registry.avro_reading import Incompatible, reader
from spark_kafka_eos.registry.avro_schema import arrow_type, parse
from spark_kafka_eos.registry.client import Registry, SchemaText
from spark_kafka_eos.registry.decoding import decode, refuse, with_errors
from spark_kafka_eos.registry.formats import QuerySchema
from spark_kafka_eos.registry.framing import header_ids
from spark_kafka_eos.registry.nesting import UnsupportedSchema
from spark_kafka_eos.registry.rows import rows_of
from tests.unit.registry.avro_samples import EVERY_KIND, order, row

VALUE = SerializationContext("orders", MessageField.VALUE)
VALUE_HEADER = "__value_schema_id"


def record(*fields):
    named = [
        {"name": name, "type": kind} | ({"default": default[0]} if default else {}) for name, kind, *default in fields
    ]
    return json.dumps({"type": "record", "name": "R", "fields": named})


@pytest.fixture
def written(client):
    serialize = AvroSerializer(client, EVERY_KIND)
    return [serialize(order(number), VALUE) for number in range(200)]


def decoded(server, values, schema=EVERY_KIND):
    return decode(pa.array(values, pa.binary()), None, Registry.of(server.url), QuerySchema(SchemaText("AVRO", schema)))


def test_what_confluents_serializer_writes_is_read_as_it_was(server, written):
    found = decoded(server, written)
    assert found.faults == {}
    assert found.values.to_pylist() == [row(order(number)) for number in range(200)]


def test_a_schema_is_asked_for_once_however_many_records_have_it(server, written):
    server.requests.clear()
    for _ in range(3):
        assert decoded(server, written).faults == {}
    asked = [request for request in server.requests if "/schemas/ids/" in request]
    assert len(written) == 200 and len(asked) == 1


def test_each_bad_record_is_a_fault_of_its_own(server, written):
    json_id = server.register("events-value", '{"type": "object"}', "JSON")
    damaged = {
        1: (b"", Cause.NOT_FRAMED),
        2: (b"\0\0\0", Cause.NOT_FRAMED),
        3: (b"no magic byte", Cause.NOT_FRAMED),
        4: (b"\3\0" + bytes(16), Cause.NOT_FRAMED),
        5: (written[5][:1] + b"\0\0\x27\x0f" + written[5][5:], Cause.UNKNOWN_SCHEMA),
        6: (written[6][:-1], Cause.UNDECODABLE),
        7: (written[7] + b"\0", Cause.UNDECODABLE),
        8: (b"\0" + json_id.to_bytes(4, "big") + b"{}", Cause.WRONG_SCHEMA),
    }
    values = [damaged[number][0] if number in damaged else value for number, value in enumerate(written)]
    found = decoded(server, [*values, None])
    assert {number: fault.cause for number, fault in found.faults.items()} == {
        number: cause for number, (_, cause) in damaged.items()
    }
    expected = [None if number in damaged else row(order(number)) for number in range(200)]
    assert found.values.to_pylist() == [*expected, None]
    told = with_errors(found).to_pylist()
    assert "Glue" in told[4]["error"]["message"]
    assert told[6]["error"]["schema_id"] == 1
    assert told[200] == {"value": None, "error": None}
    errors = str([each["error"] for each in told])
    assert "not-framed" in errors and "customer" not in errors and "no magic byte" not in errors
    with pytest.raises(UndecodableRecord, match=r"row 1 of a batch of 201 \(not-framed\)"):
        refuse(found)


@pytest.mark.parametrize("status", [401, 403, 503])
def test_an_outage_is_never_a_bad_record(server, written, status):
    server.fail = status
    options = {"url": server.url, "basic.auth.user.info": "reader:secret", "max.retries": 0}
    with pytest.raises(RegistryError, match=f"HTTP {status}") as raised:
        decode(pa.array(written), None, Registry.of(options), QuerySchema(SchemaText("AVRO", EVERY_KIND)))
    assert "secret" not in str(raised.value) + repr(Registry.of(options))


def test_records_of_several_schemas_are_read_with_the_readers(server):
    old = record(["a", "int"], ["gone", "string"])
    new = record(["a", "long"], ["b", "double", 7.5])
    registry = Registry.of(server.url)
    first = b"\0" + server.register("t-value", old).to_bytes(4, "big") + b"\x02\x04hi"
    second = b"\0" + server.register("t-value", new).to_bytes(4, "big") + b"\x04" + bytes(8)
    values = pa.array([first, second, first])
    found = decode(values, None, registry, QuerySchema(registry.session.latest("t-value").schema))
    assert found.values.to_pylist() == [{"a": 1, "b": 7.5}, {"a": 2, "b": 0.0}, {"a": 1, "b": 7.5}]


def test_schema_ids_are_found_in_headers_before_the_value_and_as_guids(server, client, written):
    guid = client.get_latest_version("orders-value").guid
    by_guid = b"\1" + UUID(guid).bytes
    body = written[3][5:]
    headers = pa.array(
        [
            [(VALUE_HEADER, b"stale"), ("other", b"x"), (VALUE_HEADER, by_guid)],
            [(VALUE_HEADER, written[3][:5])],
            None,
            [],
            [(VALUE_HEADER, b"damaged")],
            [(VALUE_HEADER, by_guid)],
        ],
        pa.map_(pa.string(), pa.binary()),
    ).cast(pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))
    values = pa.array([body, body, written[3], by_guid + body, body, None], pa.binary())
    ids = header_ids(headers, "value")
    found = decode(values, ids, Registry.of(server.url), QuerySchema(SchemaText("AVRO", EVERY_KIND)))
    assert found.values.to_pylist() == [*[row(order(3))] * 4, None, None]
    assert {number: fault.cause for number, fault in found.faults.items()} == {4: Cause.NOT_FRAMED}
    assert header_ids(headers[1:], "value").confluent.equals(ids.confluent[1:])


# Of other registries' serializers: the header, and what its error names.
OTHER_HEADERS = [
    ("apicurio.value.globalId", (7).to_bytes(8, "big"), "apicurio.registry.headers.enabled=false"),
    ("apicurio.value.contentId", (7).to_bytes(8, "big"), "apicurio.registry.use-id=contentId"),
    ("apicurio.value.artifactId", b"orders", "Apicurio's"),
    ("apicurio.value.contentHash", b"4f", "Apicurio's"),
    ("value.schema.version.id", b"\3\0\0\0\1", "store.schema.version.id.in.header=false"),
    ("content-type", b"avro/binary+" + b"0f" * 16, "Azure Schema Registry's"),
    ("com.ibm.eventstreams.schemaregistry.schema.id", b"orders", "IBM Event Streams'"),
]


@pytest.mark.parametrize(("name", "content", "hint"), OTHER_HEADERS, ids=[name for name, *_ in OTHER_HEADERS])
def test_a_value_whose_schema_a_header_of_another_registry_names_is_never_taken_for_framed(
    server, client, written, name, content, hint
):
    """A bare value may begin as a framed one does, and even as one whose id the registry has."""
    guid = client.get_latest_version("orders-value").guid
    confluents = (VALUE_HEADER, b"\1" + UUID(guid).bytes)
    headers = [
        [(name, content)],
        [(name, content), confluents],  # the last one counts
        [confluents, (name, content)],
        [(name.replace("value", "key") if "value" in name else "other", content)],
        [(name, content)],
    ]
    column = pa.array(headers, pa.map_(pa.string(), pa.binary())).cast(HEADERS)
    values = pa.array([written[3], written[3][5:], written[3][5:], written[3], None], pa.binary())
    result = decode(
        values, header_ids(column, "value"), Registry.of(server.url), QuerySchema(SchemaText("AVRO", EVERY_KIND))
    )
    assert result.values.to_pylist() == [None, row(order(3)), None, row(order(3)), None]
    assert {number: fault.cause for number, fault in result.faults.items()} == dict.fromkeys((0, 2), Cause.NOT_FRAMED)
    message = result.faults[0].message
    assert name in message and hint in message and "do not pass headers" in message and len(message) <= 500


def test_a_content_type_that_names_no_schema_says_nothing():
    headers = pa.array(
        [[("content-type", b"avro/binary")], [("content-type", None)]], pa.map_(pa.string(), pa.binary())
    )
    ids = header_ids(headers.cast(pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))), "value")
    assert ids.others == {}
    assert ids.confluent.null_count == 2


def test_an_id_that_a_registry_cannot_have_is_a_bad_record_and_not_an_outage(server, written):
    junk = [b"\0\xff\xff\xff\xff" + bytes(20), b"\1" + bytes(40)]
    found = decoded(server, [written[0], *junk])
    assert [found.faults[row].cause for row in (1, 2)] == [Cause.UNKNOWN_SCHEMA] * 2
    requests = len(server.requests)
    decoded(server, [written[0], *junk])
    assert len(server.requests) == requests  # what is unknown is remembered


def test_named_types_of_other_subjects_are_found(server, client):
    from confluent_kafka.schema_registry import Schema, SchemaReference

    client.register_schema("money", Schema(record(["cents", "int"]).replace('"R"', '"shop.Money"'), "AVRO"))
    reference = SchemaReference("shop.Money", "money", 1)
    using = Schema(record(["price", "shop.Money"]), "AVRO", [reference])
    schema_id = client.register_schema("t-value", using)
    registry = Registry.of(server.url)
    values = pa.array([b"\0" + schema_id.to_bytes(4, "big") + b"\x0a"])
    found = decode(values, None, registry, QuerySchema(registry.session.latest("t-value").schema))
    assert found.values.to_pylist() == [{"price": {"cents": 5}}]


@pytest.mark.parametrize("sign", [1, -1])
def test_milliseconds_are_read_as_far_as_sparks_microseconds_go(sign):
    kind = parse('{"type": "long", "logicalType": "timestamp-millis"}')
    last = (2**63 - 1) // 1000
    rows = rows_of(pa.array([varint(sign * last), varint(sign * (last + 1))]))
    column = reader(kind, kind)(rows)
    rows.finish()
    assert column[0].value == sign * last * 1000
    assert (rows.faults.of(0), rows.faults.of(1)) == (None, Cause.OUT_OF_RANGE)


def varint(number):
    """A number as Avro has it."""
    written = io.BytesIO()
    fastavro.schemaless_writer(written, "long", number)
    return written.getvalue()


def test_more_bytes_of_a_decimal_than_it_needs_may_only_repeat_its_sign():
    kind = parse('{"type": "bytes", "logicalType": "decimal", "precision": 38}')
    numbers = [bytes(16) + b"\x07", b"\xff" * 16 + b"\xf9", b"\x01" + bytes(16), bytes(17) + b"\x05", b"\x09"]
    numbers += [b"\x7f" + b"\xff" * 16, b"\xff" * 20]
    rows = rows_of(pa.array([bytes([2 * len(number)]) + number for number in numbers]))
    column = reader(kind, kind)(rows)
    rows.finish()
    wide = {2: Cause.OUT_OF_RANGE, 5: Cause.OUT_OF_RANGE}
    assert {number: rows.faults.of(number) for number in range(len(numbers)) if rows.faults.of(number)} == wide
    read = [None if number in wide else value for number, value in enumerate(map(int, column.to_pylist()))]
    assert read == [7, -7, None, 5, 9, None, -1]


ENUM = '{"type": "enum", "name": "E", "symbols": %s}'


@pytest.mark.parametrize(
    ("writer", "wanted", "body", "expected"),
    [
        ('"int"', '"double"', b"\x03", -2.0),
        ('"long"', '"float"', b"\x03", -2.0),
        ('"float"', '"double"', bytes(4), 0.0),
        ('"bytes"', '"string"', b"\x02a", "a"),
        ('"string"', '"bytes"', b"\x02a", b"a"),
        ('"int"', '["null", "long"]', b"\x03", -2),
        ('["null", "int"]', '"int"', b"\x02\x03", -2),
        ('["null", "int"]', '"int"', b"\x00", Cause.INCOMPATIBLE),
        ('["int", "string"]', '["null", "int", "string"]', b"\x02\x02a", {"member0": None, "member1": "a"}),
        ('["int", "long"]', '["int", "long"]', b"\x02\x03", -2),
        (ENUM % '["A", "B"]', ENUM % '["B", "C"]', b"\x02", "B"),
        (ENUM % '["A", "B"]', ENUM % '["B", "C"]', b"\x00", Cause.INCOMPATIBLE),
        (ENUM % '["A"]', ENUM.replace("%s", '["B"], "default": "B"'), b"\x00", "B"),
        (
            record(["old", "int"]),
            record(["new", "int"]).replace('"new"', '"new", "aliases": ["old"]'),
            b"\x03",
            {"new": -2},
        ),
        (
            record(["a", ["null", "int"]]),
            record(["b", ["null", "int"], None], ["a", ["null", "int"]]),
            b"\x00",
            {"b": None, "a": None},
        ),
        ('{"type": "long", "logicalType": "timestamp-millis"}',) * 2 + (b"\xff" * 9 + b"\x01", Cause.OUT_OF_RANGE),
        ('{"type": "bytes", "logicalType": "decimal", "precision": 2}',) * 2 + (b"\x02\x64", Cause.OUT_OF_RANGE),
        ('"int"', '"int"', b"\x80\x80\x80\x80\x80\x01", Cause.UNDECODABLE),
        ('"string"', '"string"', b"\x02\xff", Cause.UNDECODABLE),
        ('"boolean"', '"boolean"', b"\x02", Cause.UNDECODABLE),
        ('{"type": "array", "items": "long"}',) * 2 + (b"\x03\x04\x02\x04\x00", [1, 2]),  # a block with its size
        ('{"type": "array", "items": "long"}',) * 2 + (b"\xfe\xff\xff\xff\x0f", Cause.UNDECODABLE),
    ],
)
def test_a_value_is_read_as_the_readers_type_or_says_why_not(writer, wanted, body, expected):
    rows = rows_of(pa.array([body]))
    column = reader(parse(writer), parse(wanted))(rows)
    rows.finish()
    cause = rows.faults.of(0)
    assert (column[0].as_py() if cause is None else cause) == expected


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ('{"type": "record", "name": "a.Tree", "fields": [{"name": "up", "type": ["null", "a.Tree"]}]}', "a.Tree"),
        (record(["a", {"type": "bytes", "logicalType": "decimal", "precision": 40, "scale": 39}]), r"decimal\(40,39\)"),
        ("{", "not an Avro schema"),
        ('{"type": "nothing"}', "not an Avro schema"),
    ],
)
def test_a_schema_that_spark_has_no_type_for_is_refused_by_name(schema, said):
    with pytest.raises(UnsupportedSchema, match=said):
        arrow_type(parse(schema))


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        ({"type": "int", "logicalType": "date"}, "today"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 1}, "\n"),
        ({"type": "fixed", "name": "F", "size": 2}, "x"),
        ({"type": "fixed", "name": "F", "size": 16, "logicalType": "uuid"}, "x"),
        ("int", None),
        ("int", 2**31),
        ("string", 1),
        (["null", "int"], "null"),
        ({"type": "array", "items": "int"}, {}),
        ({"type": "map", "values": "int"}, []),
    ],
)
def test_a_default_that_does_not_fit_only_matters_where_it_is_needed(kind, default):
    """Registries have many of them, such as "null" for a union of null and int."""
    written, without = parse(record(["a", kind, default], ["b", "int"])), record(["b", "int"])
    assert reader(parse(without), parse(without))(rows_of(pa.array([b"\2"]))).to_pylist() == [{"b": 1}]
    assert reader(written, written)(rows_of(pa.array([], pa.binary()))).to_pylist() == []
    with pytest.raises(UnsupportedSchema, match="default of field a does not fit its type"):
        reader(parse(without), written)


@pytest.mark.parametrize(
    ("writer", "wanted", "said"),
    [
        ('"string"', '"int"', "^string cannot be read as int$"),
        (record(["a", "int"]), record(["b", "int"]), "field b is not in the writer's schema"),
        (record(["a", "long"]), record(["a", "int"]), "field a"),
    ],
)
def test_schemas_that_do_not_resolve_are_named(writer, wanted, said):
    with pytest.raises(Incompatible, match=said):
        reader(parse(writer), parse(wanted))


@settings(max_examples=150, deadline=None)
@given(st.lists(st.binary(max_size=60), min_size=1, max_size=8), st.integers(0, 60), st.binary(max_size=4))
def test_any_bytes_are_read_or_refused_as_fastavro_does(values, cut_at, inserted):
    good = io.BytesIO()
    fastavro.schemaless_writer(good, json.loads(EVERY_KIND), order(7))
    body = good.getvalue()
    values.append(body[:cut_at] + inserted + body[cut_at + len(inserted) :])
    rows = rows_of(pa.array(values, pa.binary()))
    column = reader(parse(EVERY_KIND), parse(EVERY_KIND))(rows)
    rows.finish()
    for number, value in enumerate(values):
        source = io.BytesIO(value)
        try:
            expected = row(cast(dict, fastavro.schemaless_reader(source, json.loads(EVERY_KIND))))
        except Exception:  # noqa: BLE001 - whatever the witness raises, it did not read the record
            continue
        if rows.faults.of(number) is None:
            assert source.tell() == len(value)
            found = column[number].as_py()
            found["token"] = str(UUID(found["token"]))  # the text as it is written, such as 0x0…; fastavro reads a UUID
            assert repr(found) == repr(pa.array([expected], column.type)[0].as_py())
