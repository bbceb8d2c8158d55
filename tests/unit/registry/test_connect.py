"""What Kafka Connect's converters and Debezium write is read as what they mean: JSON with its schema, and Avro."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from spark_kafka_eos import confluent_decoder, connect_decoder
from spark_kafka_eos.dead_letters.causes import Cause
from spark_kafka_eos.errors import ConfigurationError, UndecodableRecord
from spark_kafka_eos.registry import connect_json
from spark_kafka_eos.registry.avro import AvroFormat
from spark_kafka_eos.registry.client import SchemaText, close_sessions
from spark_kafka_eos.registry.formats import QuerySchema, format_of
from spark_kafka_eos.registry.rows import rows_of
from spark_kafka_eos.testing import schema_registry
from tests.unit.registry.change_events import ChangeEvent, Texts, change_events

DEBEZIUM, CONNECT = "io.debezium", "org.apache.kafka.connect.data"

# The types of the columns, the same from all converters.
TYPES = {
    "id": "int64", "tiny": "int32", "whole": "int32", "ratio": "float", "share": "double", "paid": "bool",
    "name": "string", "raw": "binary", "amount": "decimal128(9, 2)", "total": "decimal128(38, 4)",
    "any_scale": "string", "connect_date": "date32[day]", "connect_time": "int32",
    "connect_timestamp": "timestamp[us, tz=UTC]", "date": "date32[day]", "time": "int32", "micro_time": "int64",
    "nano_time": "int64", "timestamp": "timestamp[us]", "micro_timestamp": "timestamp[us]", "nano_timestamp": "int64",
    "zoned_timestamp": "timestamp[us, tz=UTC]", "year": "int32", "duration": "int64", "state": "string",
    "tags": "string", "document": "string", "uuid": "string", "bits": "binary",
    "place": "struct<x: double, y: double, wkb: binary, srid: int32>", "numbers": "list<element: int32>",
    "labels": "map<string, string>", "scores": "list<element: struct<key: int32, value: double>>",
}  # fmt: skip


@pytest.fixture(scope="module")
def events() -> list[ChangeEvent]:
    return change_events(seed=1, count=1_000)


def expected(texts: Texts | None) -> dict[str, Any] | None:
    """Java's texts as Python's values."""
    if texts is None:
        return None
    return {name: None if text is None else _value(name, text) for name, text in texts.items()}


def _value(name: str, text: str) -> Any:
    kind = TYPES[name]
    if kind.startswith("decimal"):
        return Decimal(text)
    if kind.startswith("timestamp"):
        return datetime.fromisoformat(text)
    if kind.startswith("int"):
        return int(text)
    match kind:
        case "float" | "double":
            return float(text)
        case "bool":
            return text == "true"
        case "binary":
            return bytes.fromhex(text)
        case "date32[day]":
            return date.fromisoformat(text)
    return text


def read(row: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """A row as it was read, in the form of `expected`."""
    if row is None:
        return None
    of_parts = {
        "place": lambda place: f"{place['x']} {place['y']} {place['wkb'].hex()}",
        "numbers": lambda numbers: f"[{', '.join(map(str, numbers))}]",
        "labels": lambda labels: labels[0][0],
        "scores": lambda scores: str(scores[0]["key"]),
    }
    return {
        name: of_parts.get(name, lambda value: value)(value) if value is not None else None
        for name, value in row.items()
    }


def equal(ours: dict[str, Any] | None, javas: dict[str, Any] | None) -> bool:
    if ours is None or javas is None:
        return ours is javas
    return ours.keys() == javas.keys() and all(_same(ours[name], javas[name]) for name in javas)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return one == pytest.approx(other, rel=1e-7) or (math.isnan(one) and math.isnan(other))
    return type(one) is type(other) and one == other


def assert_read(column: pa.Array, events: list[ChangeEvent]) -> None:
    after = column.type.field("after").type
    assert {field.name: str(field.type).replace(" ('element', 'value')", "") for field in after} == TYPES
    assert len(column) == len(events)
    for value, event in zip(column.to_pylist(), events, strict=True):
        if event.json is None:
            assert value is None
            continue
        assert (value["op"], value["ts_ms"]) == (event.op, event.ts_ms)
        assert value["source"]["table"] == "orders"
        for name, texts in (("before", event.before), ("after", event.after)):
            ours, javas = read(value[name]), expected(texts)
            assert equal(ours, javas), (ours, javas)


@pytest.mark.parametrize("decimals", ["BASE64", "NUMERIC"])
def test_change_events_in_json_are_read_as_debezium_means_them(events, decimals):
    if decimals == "NUMERIC":
        events = change_events(seed=2, count=200, decimals="NUMERIC")
    first = next(event.json for event in events if event.json is not None)
    decode = connect_decoder(first.decode())
    assert_read(decode(pa.array([event.json for event in events], pa.binary())), events)


def test_change_events_in_avro_are_read_as_debezium_means_them_with_one_option(events):
    events = [event for event in events if event.json is not None]
    schema = SchemaText("AVRO", events[0].schema)
    assert {event.schema for event in events} == {events[0].schema}
    named = AvroFormat(schema, connect_types=True)
    rows = rows_of(pa.array([event.avro for event in events]))
    column = named.reader(schema)(rows)
    rows.finish()
    assert not rows.faults.cause.any()
    assert_read(column, events)


# -- JSON Schema


def json_schema(tree: Mapping[str, Any], index: int | None = None, *, required: bool = False) -> dict[str, Any]:
    """What JsonSchemaConverter makes of a schema of Connect, here as JsonConverter has it.

    Source: `rawSchemaFromConnectSchema` of `JsonSchemaData`, Confluent Schema Registry 8.
    """
    made: dict[str, Any]
    match tree["type"]:
        case "struct":
            made = {
                "type": "object",
                "properties": {
                    part["field"]: json_schema(part, number)
                    for number, part in reversed([*enumerate(tree["fields"])])  # JSON's own order says nothing
                },
            }
        case "array":
            made = {"type": "array", "items": json_schema(tree["items"])}
        case "map" if tree["keys"] == {"type": "string", "optional": False}:
            made = {
                "type": "object", "additionalProperties": json_schema(tree["values"]), "connect.type": "map"
            }  # fmt: skip
        case "map":
            entry = {"key": json_schema(tree["keys"], 0), "value": json_schema(tree["values"], 1)}
            made = {"type": "array", "items": {"type": "object", "properties": entry}, "connect.type": "map"}
        case "boolean" | "string" as kind:
            made = {"type": kind}
        case "bytes":
            made = {"type": "string", "connect.type": "bytes"}
        case "float" | "double" as kind:
            made = {"type": "number", "connect.type": {"float": "float32", "double": "float64"}[kind]}
        case kind:
            made = {"type": "integer", "connect.type": kind}
    more = {"title": "name", "connect.version": "version", "connect.parameters": "parameters", "default": "default"}
    made |= {word: tree[name] for word, name in more.items() if name in tree}
    if tree.get("optional") and not required:
        made = {"oneOf": [{"type": "null"}, made]}
    return made if index is None else made | {"connect.index": index}


def in_json_schema(schema: Mapping[str, Any], payload: Any) -> Any:
    """A payload as JsonSchemaConverter writes it: as JsonConverter, but for maps whose keys are no strings."""
    match payload:
        case dict() if schema["type"] == "struct":
            return {part["field"]: in_json_schema(part, payload[part["field"]]) for part in schema["fields"]}
        case [[_, _], *_] if schema["type"] == "map":
            return [{"key": key, "value": value} for key, value in payload]
    return payload


def test_change_events_in_json_schema_are_read_as_debezium_means_them_with_one_option(events):
    events = [event for event in events if event.json is not None]
    first = json.loads(events[0].json)["schema"]
    bodies = [
        json.dumps(in_json_schema(first, json.loads(event.json, parse_float=float)["payload"])).encode()
        for event in events
    ]
    text = SchemaText("JSON", json.dumps(json_schema(first)))
    rows = rows_of(pa.array(bodies, pa.binary()))
    column = format_of(QuerySchema(text, connect_types=True)).reader(text)(rows)
    rows.finish()
    assert not rows.faults.cause.any()
    assert_read(column, events)


def of_fields(**kinds: dict[str, Any]) -> str:
    properties = {name: kind | {"connect.index": number} for number, (name, kind) in enumerate(kinds.items())}
    return json.dumps({"type": "object", "title": "R", "properties": properties})


def nullable(kind: dict[str, Any]) -> dict[str, Any]:
    return {"oneOf": [{"type": "null"}, kind]}


def decimals(scale: int, kind: str = "string", **more: str) -> dict[str, Any]:
    parameters = {"scale": str(scale)} | more
    return {
        "type": kind, "title": f"{CONNECT}.Decimal", "connect.version": 1, "connect.type": "bytes",
        "connect.parameters": parameters,
    }  # fmt: skip


TIMESTAMP = {"type": "integer", "title": f"{CONNECT}.Timestamp", "connect.version": 1, "connect.type": "int64"}
MICRO_TIMESTAMP = {"type": "integer", "title": f"{DEBEZIUM}.time.MicroTimestamp", "connect.type": "int64"}


@pytest.mark.parametrize(
    ("written", "wanted", "value", "expected"),
    [
        (decimals(2), decimals(4), "BNI=", Decimal("12.3400")),
        (decimals(2, "number"), decimals(2), 12.3, Decimal("12.30")),
        (decimals(4), decimals(2), "BNI=", Cause.INCOMPATIBLE),
        (decimals(2), decimals(2, **{"connect.decimal.precision": "3"}), "BNI=", Cause.OUT_OF_RANGE),
        (decimals(2), nullable(decimals(2)), "BNI=", Decimal("12.34")),
        (nullable(decimals(2)), nullable(decimals(2)), None, None),
        (decimals(2), decimals(2), None, Cause.UNDECODABLE),
        (decimals(2), decimals(2), "=", Cause.UNDECODABLE),
        (TIMESTAMP, TIMESTAMP, 1, datetime(1970, 1, 1, 0, 0, 0, 1000, UTC)),
        (TIMESTAMP, TIMESTAMP, "1", Cause.UNDECODABLE),
        (TIMESTAMP, MICRO_TIMESTAMP, 1, Cause.INCOMPATIBLE),  # a point in time is no local one
        ({"type": "integer", "connect.type": "int32"}, {"type": "integer"}, 7, 7),
        ({"type": "integer"}, {"type": "integer", "connect.type": "int32"}, 7, Cause.INCOMPATIBLE),
        ({"type": "integer", "connect.type": "int32"}, {"type": "integer"}, 2**31, Cause.UNDECODABLE),
        ({"type": "number", "connect.type": "float32"}, {"type": "number"}, 0.5, 0.5),
        ({"enum": ["a", "b"]}, {"type": "string"}, "b", "b"),
        ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, {"type": "string"}, "b", Cause.INCOMPATIBLE),
    ],
)  # fmt: skip
def test_types_of_json_schema_that_change_stay_what_was_written(written, wanted, value, expected):
    with schema_registry() as url, SchemaRegistryClient({"url": url}) as client:
        schema_id = client.register_schema("r-value", Schema(of_fields(a=written), "JSON"))
        options: dict[str, Any] = {"schema_type": "JSON", "connect_types": True, "mode": "permissive"}
        decode = confluent_decoder(url, schema=of_fields(a=wanted), **options)
        body = b"\0" + schema_id.to_bytes(4, "big") + json.dumps({"a": value}).encode()
        (row,) = decode(pa.array([body])).to_pylist()
    close_sessions()
    if isinstance(expected, Cause):
        assert row["error"]["cause"] == expected
    else:
        assert row == {"value": {"a": expected}, "error": None}


def test_a_field_of_json_schema_that_a_record_lacks_has_its_default_and_one_that_is_damaged_spoils_no_other():
    new = of_fields(
        a={"type": "string"},
        price=decimals(2) | {"default": "BNI="},
        cost=decimals(2, "number") | {"default": 1.5},
        share={"type": "number", "connect.type": "float64", "default": 0.25},
        at=nullable(TIMESTAMP),
    )
    old = SchemaText("JSON", of_fields(a={"type": "string"}))
    rows = rows_of(pa.array([b'{"a": "x"}', b'{"a": 1}', b"{", b'{"a": "y", "more": 1}']))
    column = format_of(QuerySchema(SchemaText("JSON", new), connect_types=True)).reader(old)(rows)
    rows.finish()
    more = {"price": Decimal("12.34"), "cost": Decimal("1.50"), "share": 0.25, "at": None}
    values = column.to_pylist()
    assert [values[0], values[3]] == [{"a": "x"} | more, {"a": "y"} | more]
    assert [rows.faults.of(number) for number in range(4)] == [None, Cause.UNDECODABLE, Cause.UNDECODABLE, None]


BYTES = {"type": "string", "connect.type": "bytes"}


def test_a_default_of_json_schema_has_its_type_at_any_depth():
    entry = {"type": "object", "properties": {"key": {"type": "integer"}, "value": decimals(2)}}
    new = of_fields(
        id={"type": "integer"},
        price=json.loads(of_fields(amount=decimals(2), raw=BYTES)) | {"default": {"amount": "BNI=", "raw": "AQI="}},
        rates={"type": "array", "connect.type": "map", "items": entry, "default": [{"key": 1, "value": "BNI="}]},
        raws=nullable({"type": "object", "additionalProperties": BYTES, "default": {"a": "AQI="}}),
    )
    target = format_of(QuerySchema(SchemaText("JSON", new), connect_types=True))
    rows = rows_of(pa.array([b'{"id": 1}']))
    (row,) = target.reader(SchemaText("JSON", of_fields(id={"type": "integer"})))(rows).to_pylist()
    amount = Decimal("12.34")
    rates = [{"key": 1, "value": amount}]
    assert row == {"id": 1, "price": {"amount": amount, "raw": b"\1\2"}, "rates": rates, "raws": [("a", b"\1\2")]}


@pytest.mark.parametrize(
    ("schema", "what"),
    [
        ({"type": "object"}, "type"),
        ({"$ref": "#/definitions/a", "definitions": {"a": {"type": "string"}}}, "ref"),
        ({"type": ["null", "string"]}, "type"),
        ({"type": "object", "properties": {"a": {}}}, "an empty schema"),
        ({"type": "object", "properties": {"a": {"oneOf": [{"type": "string"}, {"type": "integer"}]}}}, "union"),
        ({"allOf": [{"type": "string"}]}, "allOf"),
        ([], "list"),
    ],
)  # fmt: skip
def test_a_json_schema_that_no_converter_of_connect_writes_is_refused_with_the_option(schema, what):
    with pytest.raises(ConfigurationError, match="JsonSchemaConverter writes"):
        confluent_decoder("http://nowhere", schema=json.dumps(schema), schema_type="JSON", connect_types=True)


# -- schemas that change, and records of others


def struct(*fields: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "struct", "optional": False, "fields": list(fields)} | more


def field(column: str, kind: str, *, optional: bool = True, **more: Any) -> dict[str, Any]:
    return {"field": column, "type": kind, "optional": optional} | more


def record(schema: Any, payload: Any) -> bytes:
    """In the form of the converter: without spaces, the schema first."""
    return json.dumps({"schema": schema, "payload": payload}, separators=(",", ":")).encode()


def decoded(wanted: Any, *records: bytes | None) -> list[Any]:
    """The values, or the faults' causes."""
    decode = connect_decoder(json.dumps(wanted), mode="permissive")
    return [
        row["error"]["cause"] if row["error"] else row["value"]
        for row in decode(pa.array(records, pa.binary())).to_pylist()
    ]


ID = field("id", "int64", optional=False)


def test_each_record_is_read_from_its_own_schema_to_the_querys():
    wanted = struct(ID, field("note", "string"), field("level", "int32", optional=False, default=3))
    older, newer = (
        struct(field("id", "int32", optional=False)),
        struct(ID, field("note", "string"), field("more", "bytes")),
    )
    rows = decoded(
        wanted,
        record(older, {"id": 1}),
        record(newer, {"id": 2**40, "note": "x", "more": "AA=="}),
        record(wanted, {"id": 3, "note": None, "level": 9}),
        record(older, {"id": 4}),
    )
    assert rows == [
        {"id": 1, "note": None, "level": 3},
        {"id": 2**40, "note": "x", "level": 3},
        {"id": 3, "note": None, "level": 9},
        {"id": 4, "note": None, "level": 3},
    ]


MILLIS = field("at", "int64", name=f"{DEBEZIUM}.time.Timestamp")
MICROS = field("at", "int64", name=f"{DEBEZIUM}.time.MicroTimestamp")
NANOS = field("at", "int64", name=f"{DEBEZIUM}.time.NanoTimestamp")
INSTANT = field("at", "int64", name=f"{CONNECT}.Timestamp")
AT = datetime.fromisoformat("2026-11-28T12:40:00.123")
AT_MS = round(AT.replace(tzinfo=UTC).timestamp() * 1_000)


@pytest.mark.parametrize(
    ("written", "wanted", "raw", "value"),
    [
        (MILLIS, MICROS, AT_MS, AT),
        (MICROS, MILLIS, AT_MS * 1_000, AT),
        (MILLIS, NANOS, AT_MS, AT_MS * 1_000_000),
        (NANOS, MICROS, AT_MS * 1_000_000, Cause.INCOMPATIBLE),
        (INSTANT, MICROS, AT_MS, Cause.INCOMPATIBLE),
        (MICROS, INSTANT, AT_MS, Cause.INCOMPATIBLE),
        (INSTANT, INSTANT, AT_MS, AT.replace(tzinfo=UTC)),
        (field("at", "int64"), MILLIS, AT_MS, AT),
    ],
)
def test_a_precision_mode_that_changes_keeps_the_time_or_its_record_is_incompatible(written, wanted, raw, value):
    (row,) = decoded(struct(wanted), record(struct(written), {"at": raw}))
    assert row == (value if isinstance(value, Cause) else {"at": value})


HOUR, DAY = 3_600_000_000_000, 86_400_000_000_000  # in nanoseconds
# By the databases' types: what a number stands for, and its unit. A timestamp's column has microseconds.
TIMES = {
    f"{CONNECT}.Date": ("int32", "local", DAY),
    f"{CONNECT}.Time": ("int32", "of the day", 1_000_000),
    f"{CONNECT}.Timestamp": ("int64", "instant", 1_000_000),
    f"{DEBEZIUM}.time.Date": ("int32", "local", DAY),
    f"{DEBEZIUM}.time.Time": ("int32", "of the day", 1_000_000),
    f"{DEBEZIUM}.time.MicroTime": ("int64", "of the day", 1_000),
    f"{DEBEZIUM}.time.NanoTime": ("int64", "of the day", 1),
    f"{DEBEZIUM}.time.Timestamp": ("int64", "local", 1_000_000),
    f"{DEBEZIUM}.time.MicroTimestamp": ("int64", "local", 1_000),
    f"{DEBEZIUM}.time.NanoTimestamp": ("int64", "local", 1),
    f"{DEBEZIUM}.time.MicroDuration": ("int64", "duration", 1_000),
    f"{DEBEZIUM}.time.NanoDuration": ("int64", "duration", 1),
    f"{DEBEZIUM}.time.Year": ("int32", "year", 365 * DAY),
}


def in_nanoseconds(value: Any, unit: int) -> int:
    match value:
        case datetime():
            return round(value.replace(tzinfo=UTC).timestamp() * 1_000_000) * 1_000
        case date():
            return (value - date(1970, 1, 1)).days * DAY
        case _:
            return int(value) * unit


@pytest.mark.parametrize("wanted", TIMES)
@pytest.mark.parametrize("written", TIMES)
def test_a_time_whose_type_changes_is_the_same_time_or_its_record_is_incompatible(written, wanted):
    (kind, family, unit), (to_kind, to_family, to_unit) = TIMES[written], TIMES[wanted]
    amount = max(unit, HOUR) * 3
    (row,) = decoded(
        struct(field("at", to_kind, name=wanted)),
        record(struct(field("at", kind, name=written)), {"at": amount // unit}),
    )
    is_number = to_family in ("of the day", "duration", "year") or to_unit in (1, DAY)
    exact = unit % (to_unit if is_number else 1_000) == 0
    if family == to_family and exact and (kind, to_kind) != ("int64", "int32"):
        assert row != Cause.INCOMPATIBLE
        assert in_nanoseconds(row["at"], to_unit) == amount
    else:
        assert row == Cause.INCOMPATIBLE


def price(scale: int, **more: str) -> dict[str, Any]:
    return field("price", "bytes", name=f"{CONNECT}.Decimal", version=1, parameters={"scale": str(scale)} | more)


def test_a_decimal_of_connect_keeps_its_value_when_its_scale_changes():
    wanted = struct(price(4, **{"connect.decimal.precision": "9"}))
    rows = decoded(
        wanted,
        record(struct(price(2)), {"price": "BNI="}),  # 1234
        record(struct(price(2)), {"price": 12.34}),
        record(struct(price(2)), {"price": 12.345}),
        record(struct(price(6)), {"price": "BNI="}),
        record(struct(price(2)), {"price": 123456.78}),
    )
    number = {"price": Decimal("12.3400")}
    assert rows == [number, number, Cause.UNDECODABLE, Cause.INCOMPATIBLE, Cause.OUT_OF_RANGE]


ZONED = struct(field("at", "string", name=f"{DEBEZIUM}.time.ZonedTimestamp"))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2026-11-28T12:00:00Z", datetime(2026, 11, 28, 12, tzinfo=UTC)),
        ("2026-11-28T12:00:00.000001+02:00", datetime(2026, 11, 28, 10, microsecond=1, tzinfo=UTC)),
        ("2026-11-28T12:00:00.1234567Z", Cause.OUT_OF_RANGE),
        ("+12345-11-28T12:00:00Z", Cause.OUT_OF_RANGE),
        ("infinity", Cause.OUT_OF_RANGE),
    ],
)
def test_a_zoned_timestamp_is_that_time_or_out_of_range(text, value):
    rows = decoded(ZONED, record(ZONED, {"at": text}), record(ZONED, {"at": "2000-01-01T00:00:00Z"}))
    assert rows == [
        value if isinstance(value, Cause) else {"at": value},
        {"at": datetime(2000, 1, 1, tzinfo=UTC)},
    ]


ANY_SCALE = struct(
    field("scale", "int32", optional=False),
    field("value", "bytes", optional=False),
    name=f"{DEBEZIUM}.data.VariableScaleDecimal",
)


@pytest.mark.parametrize(
    ("scale", "value", "text"),
    [
        (2, "BNI=", "12.34"),
        (0, "BNI=", "1234"),
        (-3, "/w==", "-1000"),
        (5, "/w==", "-0.00001"),
        (2, "AA==", "0.00"),
        (-2, "AA==", "0"),
        (2**31 - 1, "AQ==", Cause.OUT_OF_RANGE),
        (-(2**31), "AQ==", Cause.OUT_OF_RANGE),
    ],
)
def test_a_decimal_of_any_scale_has_all_its_digits(scale, value, text):
    assert decoded(ANY_SCALE, record(ANY_SCALE, {"scale": scale, "value": value})) == [text]


FLAT = struct(ID, field("kind", "boolean"), field("ratio", "float"), field("tags", "array", items={"type": "string"}))


@pytest.mark.parametrize(
    ("value", "cause"),
    [
        (b"", Cause.NOT_FRAMED),
        (b"\0\0\0\0\1", Cause.NOT_FRAMED),
        (b'{"id": 1}', Cause.NOT_FRAMED),
        (b'{"schema":null,"payload":{"id":1}}', Cause.NOT_FRAMED),
        (b"[" * 100_000, Cause.NOT_FRAMED),
        (record(FLAT, {"id": 1})[:-1], Cause.NOT_FRAMED),
        (record(FLAT, {"id": None}), Cause.UNDECODABLE),
        (record(FLAT, {}), Cause.UNDECODABLE),
        (record(FLAT, {"id": 1.0}), Cause.UNDECODABLE),
        (record(FLAT, {"id": True}), Cause.UNDECODABLE),
        (record(FLAT, {"id": 2**63}), Cause.UNDECODABLE),
        (record(FLAT, {"id": 1, "kind": 1}), Cause.UNDECODABLE),
        (record(FLAT, {"id": 1, "ratio": "1"}), Cause.UNDECODABLE),
        (record(FLAT, {"id": 1, "ratio": 1e300}), Cause.UNDECODABLE),
        (record(FLAT, {"id": 1, "tags": "x"}), Cause.UNDECODABLE),
        (record(FLAT, {"id": 1, "tags": [None]}), Cause.UNDECODABLE),
        (record(FLAT, {"id": 1, "tags": ["\ud800"]}), Cause.UNDECODABLE),
        (record(struct(field("id", "string")), {"id": "1"}), Cause.INCOMPATIBLE),
        (record({"type": "int64"}, 1), Cause.INCOMPATIBLE),
        (record({"type": "interval"}, 1), Cause.INCOMPATIBLE),
        (record(5, 1), Cause.INCOMPATIBLE),
        (record(FLAT, {"id": 1, "ratio": 0}).replace(b":0}", b":1E99999999999999999999}"), Cause.NOT_FRAMED),
        (record(FLAT, {"id": 1, "ratio": 0}).replace(b":0}", b":1E-99999999999999999999}"), Cause.NOT_FRAMED),
        (b'{"schema":1E99999999999999999999,"payload":{"id":1}}', Cause.NOT_FRAMED),
        (b'{"schema":{"type":"int64","version":1E99999999999999999999},"payload":1}', Cause.NOT_FRAMED),
        (b'{"payload":1E99999999999999999999,"schema":null}', Cause.NOT_FRAMED),
        (record(FLAT, {"id": 1, "ratio": 0}).replace(b":0}", b":1E9999999999}"), Cause.UNDECODABLE),
    ],
)
def test_a_record_that_is_not_one_stops_no_other(value, cause):
    good = record(FLAT, {"id": 7})
    assert [row if isinstance(row, str) else row["id"] for row in decoded(FLAT, good, value, good)] == [7, cause, 7]


def test_a_record_of_another_writer_may_have_spaces_another_order_and_more():
    spaced = json.dumps({"payload": {"id": 1, "x": 2}, "schema": struct(ID), "more": 1}, indent=1).encode()
    twice = (
        b'{"schema":{"type":"string"},"payload":"a","schema":'
        + json.dumps(struct(ID)).encode()
        + b',"payload":{"id":2}}'
    )
    assert decoded(struct(ID), spaced, twice) == [{"id": 1}, {"id": 2}]


@pytest.mark.parametrize("blanks", [" ", "\t", "\r\n"])
@pytest.mark.parametrize("before", ['{"schema":', ',"payload":', '{"id":', "}}"])
def test_blanks_may_be_anywhere_in_a_record(before, blanks):
    plain = record(struct(ID), {"id": 1})
    there = plain.rindex(before.encode()) + len(before)
    spaced = plain[:there] + blanks.encode() + plain[there:]
    assert decoded(struct(ID), plain, spaced, plain, spaced) == [{"id": 1}] * 4


def test_the_schemas_of_records_that_are_kept_have_a_bound_of_bytes():
    """Who writes to a topic chooses them: each may be as large as a record."""
    made = connect_json.ConnectFormat(json.dumps(struct(ID)))
    for number in range(40):
        schema = struct(ID, doc=f"{number} " + "x" * 900_000)
        assert (
            made.decode(pa.array([record(schema, {"id": number})] * 2, pa.binary())).values.to_pylist()
            == [{"id": number}] * 2
        )
        assert sum(map(len, made._writers)) <= 10_000_000
    assert len(made._writers) > 5


RAW = {"type": "bytes", "optional": False}
AMOUNT = RAW | {"name": f"{CONNECT}.Decimal", "parameters": {"scale": "2"}}
INTEGER = {"type": "int32", "optional": False}
PRICE = struct({"field": "amount"} | AMOUNT, {"field": "raw"} | RAW, field("more", "bytes"))


@pytest.mark.parametrize(
    ("kind", "default", "expected"),
    [
        (RAW, "AQI=", b"\1\2"),
        (RAW | {"optional": True}, "AQI=", b"\1\2"),
        (AMOUNT, "BNI=", Decimal("12.34")),
        (AMOUNT, 12.34, Decimal("12.34")),
        (
            PRICE,
            {"amount": "BNI=", "raw": "AQI=", "more": "AQI="},
            {"amount": Decimal("12.34"), "raw": b"\1\2", "more": b"\1\2"},
        ),
        (PRICE, {"amount": 0.5, "raw": ""}, {"amount": Decimal("0.50"), "raw": b"", "more": None}),
        ({"type": "array", "items": RAW}, ["AQI=", ""], [b"\1\2", b""]),
        ({"type": "array", "items": PRICE, "optional": True}, [], []),
        ({"type": "array", "items": AMOUNT}, ["BNI="], [Decimal("12.34")]),
        ({"type": "map", "keys": {"type": "string"}, "values": RAW}, {"a": "AQI="}, [("a", b"\1\2")]),
        ({"type": "map", "keys": INTEGER, "values": AMOUNT}, [[1, "BNI="]], [{"key": 1, "value": Decimal("12.34")}]),
        ({"type": "map", "keys": RAW, "values": INTEGER}, [["AQI=", 1]], [{"key": b"\1\2", "value": 1}]),
    ],
)
def test_a_default_has_its_type_at_any_depth(kind, default, expected):
    """As the converter writes a value of it: bytes in base64, an entry as an array of key and value."""
    wanted = struct(ID, {"field": "a", "default": default} | kind)
    assert decoded(wanted, record(struct(ID), {"id": 1})) == [{"id": 1, "a": expected}]


TEXT = {"type": "string", "optional": True}


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (TEXT | {"optional": False}, [("2026-01-02T03:04:05Z", 1)]),
        (
            TEXT | {"optional": False, "name": f"{DEBEZIUM}.time.ZonedTimestamp", "version": 1},
            [("2026-01-02T03:04:05Z", 1)],
        ),
        (TEXT | {"optional": False, "name": f"{DEBEZIUM}.data.Uuid"}, [("2026-01-02T03:04:05Z", 1)]),
        (TEXT | {"optional": False, "name": f"{DEBEZIUM}.data.Enum"}, [("2026-01-02T03:04:05Z", 1)]),
        (TEXT, [{"key": "2026-01-02T03:04:05Z", "value": 1}]),
        (
            TEXT | {"name": f"{DEBEZIUM}.time.ZonedTimestamp"},
            [{"key": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "value": 1}],
        ),
    ],
)
def test_a_map_whose_keys_are_strings_is_an_object_whatever_else_its_schema_says_of_them(keys, expected):
    """The columns are those of AvroConverter: a map of Avro has keys without a name, and never null."""
    kind = {"type": "map", "keys": keys, "values": INTEGER, "optional": False}
    written = {"2026-01-02T03:04:05Z": 1}
    schema = struct({"field": "a"} | kind)
    assert decoded(schema, record(schema, {"a": written}), record(schema, {"a": {}})) == [{"a": expected}, {"a": []}]
    lacking = struct(ID, {"field": "a", "default": written} | kind)
    assert decoded(lacking, record(struct(ID), {"id": 1})) == [{"id": 1, "a": expected}]


def test_a_map_of_json_schema_whose_keys_may_be_null_is_an_array():
    entry = {"type": "object", "properties": {"key": nullable({"type": "string"}), "value": {"type": "integer"}}}
    text = SchemaText("JSON", of_fields(a={"type": "array", "items": entry, "connect.type": "map"}))
    rows = rows_of(pa.array([b'{"a": [{"key": "x", "value": 1}, {"key": null, "value": 2}]}']))
    (row,) = format_of(QuerySchema(text, connect_types=True)).reader(text)(rows).to_pylist()
    assert row == {"a": [{"key": "x", "value": 1}, {"key": None, "value": 2}]}


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        ({"type": "array", "items": RAW}, {"a": 1}),
        ({"type": "array", "items": RAW}, ["no base64"]),
        ({"type": "map", "keys": INTEGER, "values": INTEGER}, {"1": 1}),
        ({"type": "map", "keys": INTEGER, "values": INTEGER}, [[1, 2, 3]]),
        (PRICE, {"raw": "AQI="}),
        (PRICE, ["BNI=", "AQI="]),
    ],
)
def test_a_default_of_another_type_is_refused_by_the_querys_schema(kind, default):
    wanted = struct(ID, {"field": "a", "default": default} | kind)
    with pytest.raises((ConfigurationError, UndecodableRecord)):
        connect_decoder(json.dumps(wanted))(pa.array([record(struct(ID), {"id": 1})]))


def test_a_tombstone_and_a_payload_of_null_are_null():
    nothing = b'{"schema":null,"payload":null}'
    assert decoded(struct(ID, optional=True), None, record(struct(ID, optional=True), None), nothing) == [None] * 3


def test_a_schema_that_spark_has_no_type_for_is_refused_by_name():
    for schema, message in {
        "{": "not a schema of Kafka Connect",
        json.dumps(struct()): "has no fields",
        json.dumps(struct(price(-1))): "a scale below 0",
        json.dumps({"type": "interval"}): "not a schema of Kafka Connect",
    }.items():
        with pytest.raises(ConfigurationError, match=message):
            connect_decoder(schema)
    with pytest.raises(ConfigurationError, match="mode"):
        connect_decoder(json.dumps(FLAT), mode="lenient")  # type: ignore[arg-type]


def test_in_mode_fail_the_first_record_that_is_none_raises_without_its_content():
    with pytest.raises(UndecodableRecord, match=r"row 1 .*undecodable.*does not fit the record's own schema") as raised:
        connect_decoder(json.dumps(FLAT))(pa.array([record(FLAT, {"id": 1}), record(FLAT, {"id": "secret"})]))
    assert "secret" not in str(raised.value)


def test_avros_names_of_connect_count_with_the_option_only_and_not_in_other_types():
    text = json.dumps(
        {
            "type": "record", "name": "R", "fields": [
                {"name": "at", "default": "1970-01-01T00:00:00Z", "type": {
                    "type": "string", "connect.name": f"{DEBEZIUM}.time.ZonedTimestamp",
                    "connect.default": "1970-01-01T00:00:00Z", "connect.version": 1}},
                {"name": "name", "type": {"type": "string", "connect.name": f"{DEBEZIUM}.time.MicroTimestamp"}},
            ],
        }
    )  # fmt: skip
    empty = json.dumps({"type": "record", "name": "R", "fields": [{"name": "name", "type": "string"}]})
    with schema_registry() as url:
        plain = confluent_decoder(url, schema=text)
        named = confluent_decoder(url, schema=text, connect_types=True)
    assert plain.type == pa.struct([("at", pa.string()), ("name", pa.string())])
    assert named.type == pa.struct([("at", pa.timestamp("us", "UTC")), ("name", pa.string())])
    read_rows = AvroFormat(SchemaText("AVRO", text), connect_types=True).reader(SchemaText("AVRO", empty))
    assert read_rows(rows_of(pa.array([b"\2x"]))).to_pylist() == [{"at": datetime(1970, 1, 1, tzinfo=UTC), "name": "x"}]
