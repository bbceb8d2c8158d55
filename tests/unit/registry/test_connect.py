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

from spark_kafka_eos import confluent_decoder, connect_decoder
from spark_kafka_eos.dead_letters.causes import Cause
from spark_kafka_eos.errors import ConfigurationError, UndecodableRecord
from spark_kafka_eos.registry.avro import AvroFormat
from spark_kafka_eos.registry.client import SchemaText
from spark_kafka_eos.registry.rows import rows_of
from spark_kafka_eos.testing import schema_registry
from tests.unit.registry.change_events import ChangeEvent, Texts, change_events

# The types of the columns, the same from both converters.
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
DEBEZIUM, CONNECT = "io.debezium", "org.apache.kafka.connect.data"


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
        with pytest.raises(ConfigurationError, match="connect_types.* it is for Avro and Protobuf"):
            confluent_decoder(url, schema='{"type": "object"}', schema_type="JSON", connect_types=True)
    assert plain.type == pa.struct([("at", pa.string()), ("name", pa.string())])
    assert named.type == pa.struct([("at", pa.timestamp("us", "UTC")), ("name", pa.string())])
    read_rows = AvroFormat(SchemaText("AVRO", text), connect_types=True).reader(SchemaText("AVRO", empty))
    assert read_rows(rows_of(pa.array([b"\2x"]))).to_pylist() == [{"at": datetime(1970, 1, 1, tzinfo=UTC), "name": "x"}]
