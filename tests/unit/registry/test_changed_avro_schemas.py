"""Avro of a writer whose schema has changed: a value is the one that was written, or its record is `incompatible`."""

from __future__ import annotations

import itertools
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_kafka_eos.dead_letters.causes import Cause
from spark_kafka_eos.registry.avro_reading import Incompatible, reader
from spark_kafka_eos.registry.avro_schema import parse
from spark_kafka_eos.registry.nesting import UnsupportedSchema
from spark_kafka_eos.registry.rows import rows_of
from tests.unit.registry.test_decoding_avro import varint

PAGE = Path(__file__).parents[3] / "docs" / "schemas.md"
FULL = "a number with more digits than Spark has"


def decimal(precision: int, scale: int, **more: Any) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale} | more


def connects(precision: int = 64) -> dict[str, Any]:
    """As Kafka Connect's converter writes it."""
    name = "org.apache.kafka.connect.data.Decimal"
    parameters = {"scale": "2", "connect.decimal.precision": str(precision)}
    return decimal(precision, 2) | {"connect.version": 1, "connect.parameters": parameters, "connect.name": name}


def logical(name: str) -> Any:
    """The schema of a logical type; "" and names of Avro's own types stand for those."""
    bases = {"date": "int", "time-millis": "int", "uuid": "string", "big-decimal": "bytes"}
    if name in {"int", "long", "string", "bytes", "float", "double"}:
        return name
    if name == "decimal":
        return decimal(9, 2)
    fixed = {"fixed 12": (12, ""), "fixed 16": (16, ""), "fixed uuid": (16, "uuid"), "duration": (12, "duration")}
    fixed |= {"fixed 12 decimal": (12, "decimal"), "fixed 16 decimal": (16, "decimal")}
    if name in fixed:
        size, kind = fixed[name]
        return {"type": "fixed", "name": "F", "size": size, "precision": 9, "scale": 2} | (
            {"logicalType": kind} if kind else {}
        )
    return {"type": bases.get(name, "long"), "logicalType": name}


def in_record(kind: Any, name: str = "price") -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": kind}]}


def read(written: Any, wanted: Any, body: bytes) -> Any:
    """The value, or the fault's cause; raises Incompatible."""
    rows = rows_of(pa.array([body]))
    column = reader(parse(json.dumps(written)), parse(json.dumps(wanted)))(rows)
    rows.finish()
    return rows.faults.of(0) or column[0].as_py()


def raw(number: Decimal, scale: int, size: int | None = None) -> bytes:
    unscaled = int(number.scaleb(scale))
    content = unscaled.to_bytes(size or (unscaled.bit_length() + 8) // 8, "big", signed=True)
    return content if size else varint(len(content)) + content


AMOUNT = Decimal("-12.34")
PLACES = {
    "alone": lambda kind: kind,
    "in a record": in_record,
    "nullable": lambda kind: in_record(["null", kind]),
    "in an array": lambda kind: in_record({"type": "array", "items": kind}),
    "in a map": lambda kind: in_record({"type": "map", "values": kind}),
    "in an array of records": lambda kind: {"type": "array", "items": in_record(kind)},
    "in a union": lambda kind: in_record(["null", kind, "long"]),
    "before and after": lambda kind: {
        "type": "record", "name": "Envelope", "fields": [
            {"name": "before", "type": ["null", in_record(kind)]}, {"name": "after", "type": ["null", "R"]},
        ],
    },
}  # fmt: skip
BODIES = {
    "alone": (b"%s", lambda value: value),
    "in a record": (b"%s", lambda value: {"price": value}),
    "nullable": (b"\2%s", lambda value: {"price": value}),
    "in an array": (b"\4%s%s\0", lambda value: {"price": [value, value]}),
    "in a map": (b"\2\2k%s\0", lambda value: {"price": [("k", value)]}),
    "in an array of records": (b"\2%s\0", lambda value: [{"price": value}]),
    "in a union": (b"\2%s", lambda value: {"price": {"member0": value, "member1": None}}),
    "before and after": (b"\0\2%s", lambda value: {"before": None, "after": {"price": value}}),
}


def in_place(place: str, body: bytes) -> bytes:
    return BODIES[place][0].replace(b"%s", body)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("size", [None, 8], ids=["bytes", "fixed"])
def test_a_decimal_keeps_its_value_when_the_querys_schema_has_a_higher_scale(place, size):
    fixed = {} if size is None else {"type": "fixed", "size": size, "name": "Money"}
    written, wanted = (PLACES[place](decimal(*digits, **fixed)) for digits in ((15, 2), (17, 4)))
    value = read(written, wanted, in_place(place, raw(AMOUNT, 2, size)))
    assert repr(value) == repr(BODIES[place][1](Decimal("-12.3400")))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("size", [None, 8], ids=["bytes", "fixed"])
def test_a_decimal_is_not_read_with_a_lower_scale_and_the_error_names_both(place, size):
    fixed = {} if size is None else {"type": "fixed", "size": size, "name": "Money"}
    written, wanted = (PLACES[place](decimal(*digits, **fixed)) for digits in ((17, 4), (17, 2)))
    body = in_place(place, raw(AMOUNT, 4, size))
    if place in {"nullable", "in a union", "before and after"}:  # its null records are read
        assert read(written, wanted, body) is Cause.INCOMPATIBLE
    else:
        of = "" if size is None else " of 8 bytes"
        with pytest.raises(Incompatible, match=rf"decimal\(17,4\){of} cannot be read as decimal\(17,2\){of}"):
            read(written, wanted, body)


@pytest.mark.parametrize(
    ("written", "wanted", "number", "value"),
    [
        ((15, 2), (4, 2), "99.99", Decimal("99.99")),
        ((15, 2), (4, 2), "100.00", Cause.OUT_OF_RANGE),
        ((15, 2), (6, 4), "99.99", Decimal("99.9900")),
        ((15, 2), (6, 4), "-100.00", Cause.OUT_OF_RANGE),
        ((9, 0), (3, 3), "0", Decimal("0.000")),
        ((9, 0), (3, 3), "1", Cause.OUT_OF_RANGE),
        ((38, 0), (38, 10), "9" * 28, Decimal("9" * 28 + "." + "0" * 10)),
        ((38, 0), (38, 10), "1" + "0" * 28, Cause.OUT_OF_RANGE),
        ((64, 2), (38, 2), "9" * 36 + ".99", Decimal("9" * 36 + ".99")),
        ((64, 2), (38, 2), "-1" + "0" * 36, Cause.OUT_OF_RANGE),
        ((64, 2), (64, 2), "9" * 36 + ".99", Decimal("9" * 36 + ".99")),
        ((64, 2), (64, 2), "1" + "0" * 36, Cause.OUT_OF_RANGE),
        ((64, 2), (64, 2), "9" * 62, Cause.OUT_OF_RANGE),
    ],
)
def test_a_decimal_that_the_querys_type_cannot_hold_is_out_of_range(written, wanted, number, value):
    exact = int(number.replace(".", ""))
    exact *= 1 if "." in number else 10 ** written[1]
    body = exact.to_bytes((exact.bit_length() + 8) // 8, "big", signed=True)
    assert repr(read(decimal(*written), decimal(*wanted), varint(len(body)) + body)) == repr(value)


@pytest.mark.parametrize("wanted", [connects(), decimal(38, 2), connects(38)], ids=["the same", "38", "Connect's 38"])
def test_kafka_connects_decimal_of_64_digits_is_read_as_far_as_spark_has_digits(wanted):
    body = varint(2) + (1234).to_bytes(2, "big")
    assert read(in_record(connects()), in_record(wanted), body) == {"price": Decimal("12.34")}
    large = varint(17) + (10**38).to_bytes(17, "big")
    assert read(in_record(connects()), in_record(wanted), large) is Cause.OUT_OF_RANGE


UNWANTED = [
    decimal(64, 2),
    decimal(64, 40),
    ["null", decimal(64, 40)],
    {"type": "array", "items": decimal(64, 40)},
    {"type": "map", "values": ["null", decimal(64, 40)]},
    in_record(decimal(64, 40)) | {"name": "Inner"},
    {"type": "array", "items": in_record(decimal(64, 40)) | {"name": "Inner"}},
]


@pytest.mark.parametrize("kind", UNWANTED, ids=json.dumps)
def test_a_field_that_the_query_does_not_want_is_not_looked_at(kind):
    number = varint(20) + (10**46).to_bytes(20, "big")
    bodies = [number, number, b"\2" + number, b"\4" + number * 2 + b"\0", b"\2\2k\2" + number + b"\0", number]
    body = (*bodies, b"\2" + number + b"\0")[UNWANTED.index(kind)]
    written = in_record(kind)
    written["fields"].append({"name": "id", "type": "int"})
    assert read(written, in_record("int", "id"), body + b"\6") == {"id": 3}


def test_a_time_that_the_query_does_not_want_may_be_out_of_range():
    at = {"type": "long", "logicalType": "timestamp-millis"}
    written = in_record({"type": "array", "items": at})
    written["fields"].append({"name": "id", "type": "int"})
    assert read(written, in_record("int", "id"), b"\2" + varint(2**62) + b"\0\6") == {"id": 3}


MOMENT = datetime.fromisoformat("2026-11-27T01:02:03.456789")
MIDNIGHT = datetime.fromisoformat("2026-11-27")
DAYS, SECONDS = 20_784, 1_795_741_323
NUMBERS = {
    "int": 1_234,
    "long": 1_234,
    "date": DAYS,
    "time-millis": 3_723_456,
    "time-micros": 3_723_456_789,
    "timestamp-millis": SECONDS * 10**3 + 456,
    "timestamp-micros": SECONDS * 10**6 + 456_789,
    "timestamp-nanos": SECONDS * 10**9 + 456_789_123,
    "local-timestamp-millis": SECONDS * 10**3 + 456,
    "local-timestamp-micros": SECONDS * 10**6 + 456_789,
    "local-timestamp-nanos": SECONDS * 10**9 + 456_789_123,
}
INTS = {"int", "date", "time-millis"}


def times(local: str, moment: datetime) -> dict[tuple[str, str], Any]:
    """What becomes of a point in time, or of a local one, in each unit."""
    millis, micros, nanos = (f"{local}timestamp-{unit}" for unit in ("millis", "micros", "nanos"))
    in_millis = moment.replace(microsecond=456_000)
    return {
        (millis, millis): in_millis,
        (millis, micros): in_millis,
        (millis, nanos): NUMBERS[millis] * 10**6,
        (micros, millis): moment,
        (micros, micros): moment,
        (micros, nanos): NUMBERS[micros] * 10**3,
        (nanos, nanos): NUMBERS[nanos],
    }


# Every pair that has a value; all others are refused.
READ: dict[tuple[str, str], Any] = {
    **times("", MOMENT.replace(tzinfo=UTC)),
    **times("local-", MOMENT),
    ("date", "date"): MIDNIGHT.date(),
    ("date", "local-timestamp-millis"): MIDNIGHT,
    ("date", "local-timestamp-micros"): MIDNIGHT,
    ("date", "local-timestamp-nanos"): DAYS * 86_400 * 10**9,
    ("time-millis", "time-millis"): NUMBERS["time-millis"],
    ("time-millis", "time-micros"): NUMBERS["time-millis"] * 1_000,
    ("time-micros", "time-micros"): NUMBERS["time-micros"],
    ("int", "date"): date(1973, 5, 19),
    ("int", "time-millis"): 1_234,
    **{
        (number, kind): value
        for number in ("int", "long")
        for kind, value in {
            "time-micros": 1_234,
            "timestamp-millis": datetime(1970, 1, 1, 0, 0, 1, 234_000, UTC),
            "timestamp-micros": datetime(1970, 1, 1, 0, 0, 0, 1_234, UTC),
            "timestamp-nanos": 1_234,
            "local-timestamp-millis": datetime.fromisoformat("1970-01-01T00:00:01.234"),
            "local-timestamp-micros": datetime.fromisoformat("1970-01-01T00:00:00.001234"),
            "local-timestamp-nanos": 1_234,
        }.items()
    },
    **{(kind, "long"): number for kind, number in NUMBERS.items()},
    **{(kind, "int"): NUMBERS[kind] for kind in INTS},
}


@pytest.mark.parametrize("wanted", NUMBERS)
@pytest.mark.parametrize("written", NUMBERS)
def test_a_number_with_a_unit_is_the_same_time_in_the_querys_unit_or_refused(written, wanted):
    body = varint(NUMBERS[written])
    if (written, wanted) in READ:
        assert read(logical(written), logical(wanted), body) == READ[written, wanted]
        return
    promoted = written in INTS or wanted not in INTS
    both = "cannot be read as" if not promoted else rf"\({written}\) cannot be read as .*\({wanted}\)"
    with pytest.raises(Incompatible, match=both):
        read(logical(written), logical(wanted), body)


def named_long(name, logical_type=None):
    """As Debezium and Connect write a long: with the name of its meaning, and Connect's own with a logical type."""
    return {"type": "long", "connect.name": name} | ({"logicalType": logical_type} if logical_type else {})


MILLIS, MICROS = named_long("io.debezium.time.Timestamp"), named_long("io.debezium.time.MicroTimestamp")
MICRO_TIME, NANO_TIME = named_long("io.debezium.time.MicroTime"), named_long("io.debezium.time.NanoTime")
CONNECTS = named_long("org.apache.kafka.connect.data.Timestamp", "timestamp-millis")


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        (MILLIS, MICROS), (MICROS, MILLIS), (MICROS, CONNECTS), (CONNECTS, MICROS),
        (MICROS, logical("timestamp-millis")), (MICRO_TIME, NANO_TIME), (NANO_TIME, MICRO_TIME), (MILLIS, NANO_TIME),
        (NANO_TIME, logical("time-micros")),
        *itertools.permutations([named_long(f"io.debezium.time.{name}") for name in ("MicroDuration", "NanoDuration")]),
    ],
)  # fmt: skip
def test_a_number_whose_connect_name_has_another_unit_is_refused(written, wanted):
    with pytest.raises(Incompatible, match=r"cannot be read as .*connect\.name.*connect_types=True"):
        read(written, wanted, varint(1_234))


@pytest.mark.parametrize("written", [MILLIS, "long"])
@pytest.mark.parametrize("wanted", ["long", MILLIS, CONNECTS, logical("timestamp-millis")])
def test_a_number_whose_connect_name_has_no_other_unit_is_what_the_querys_schema_says(written, wanted):
    is_time = "logicalType" in wanted
    assert read(written, wanted, varint(1_234)) == (datetime(1970, 1, 1, 0, 0, 1, 234_000, UTC) if is_time else 1_234)


@pytest.mark.parametrize("wanted", ["float", "double"])
@pytest.mark.parametrize("written", ["date", "timestamp-millis"])
def test_a_number_without_a_logical_type_is_the_number_itself(written, wanted):
    assert read(logical(written), wanted, varint(1024)) == 1024.0


@pytest.mark.parametrize("written", ["date", "timestamp-millis", "timestamp-micros", "local-timestamp-millis"])
def test_a_time_that_does_not_fit_the_querys_unit_is_out_of_range(written):
    number = 2**31 - 1 if written == "date" else 2**62
    wanted = logical("local-timestamp-nanos" if written in {"date", "local-timestamp-millis"} else "timestamp-nanos")
    assert read(logical(written), wanted, varint(number)) is Cause.OUT_OF_RANGE
    assert read(logical(written), wanted, varint(-number - 1)) is Cause.OUT_OF_RANGE


TEXTS_AND_BYTES = ["string", "bytes", "uuid", "decimal", "big-decimal"]
NAMED = "4c6f7265-6d20-4970-8073-756d20646f6c"


@pytest.mark.parametrize("wanted", TEXTS_AND_BYTES)
@pytest.mark.parametrize("written", TEXTS_AND_BYTES)
def test_texts_and_numbers_in_bytes_are_never_taken_for_each_other(written, wanted):
    body = {"decimal": b"\x04\x04\xd2", "big-decimal": b"\x08\x04\x04\xd2\x04"}.get(written, b"\x48" + NAMED.encode())
    text = {"string", "uuid"}
    numbers = {"decimal", "big-decimal"}
    if written in numbers | text and wanted in numbers | text and written != wanted and {written, wanted} != text:
        with pytest.raises(Incompatible, match=r"decimal"):
            read(logical(written), logical(wanted), body)
    elif written == wanted == "decimal":
        assert read(logical(written), logical(wanted), body) == Decimal("12.34")
    elif wanted == "decimal":
        assert read("bytes", logical(wanted), b"\x04\x04\xd2") == Decimal("12.34")
    else:
        content = body[1:]
        assert read(logical(written), logical(wanted), body) == (content.decode() if wanted in text else content)


FIXED = ["fixed 12", "duration", "fixed 12 decimal", "fixed 16", "fixed uuid", "fixed 16 decimal"]


@pytest.mark.parametrize("wanted", FIXED)
@pytest.mark.parametrize("written", FIXED)
def test_a_fixed_keeps_its_meaning_or_is_refused(written, wanted):
    size = logical(written)["size"]
    body = (1234).to_bytes(size, "big")
    values = {
        "duration": body,
        "fixed uuid": "00000000-0000-0000-0000-0000000004d2",
        "fixed 12 decimal": Decimal("12.34"),
        "fixed 16 decimal": Decimal("12.34"),
    }
    plain = {"fixed 12", "fixed 16"}
    if size != logical(wanted)["size"] or (written != wanted and not {written, wanted} & plain):
        with pytest.raises(Incompatible):
            read(logical(written), logical(wanted), body)
    else:
        assert read(logical(written), logical(wanted), body) == values.get(wanted, body)


def created(namespace: str, *fields: dict[str, Any], name: str = "Created") -> dict[str, Any]:
    first = {"name": "id", "type": "int"}
    return {"type": "record", "name": name, "namespace": namespace, "fields": [first, *fields]}


NOTE = {"name": "note", "type": "string", "default": "x"}
MORE = {"name": "more", "type": ["null", "int"], "default": None}


def members(value: Any, number: int) -> dict[str, Any]:
    return {f"member{place}": value if place == number else None for place in range(2)}


@pytest.mark.parametrize("kind", ["record", "enum", "fixed"])
def test_of_two_types_of_one_short_name_the_full_name_counts(kind):
    def named(namespace: str, *, changed: bool = False) -> dict[str, Any]:
        match kind:
            case "record":
                return created(namespace, *([MORE] if changed else []))
            case "enum":
                symbols = ["A", "B", "C"] if changed else ["A", "B"]
                return {"type": "enum", "name": "Created", "namespace": namespace, "symbols": symbols}
        return {"type": "fixed", "name": "Created", "namespace": namespace, "size": 1} | (
            {"logicalType": "decimal", "precision": 2} if changed else {}
        )

    written = [named("ns1"), named("ns2")]
    wanted = [named("ns1"), named("ns2", changed=True)]
    value: Any = {"record": {"id": 1, "more": None}, "enum": "B", "fixed": Decimal(2)}[kind]
    assert read(written, wanted, b"\2\2") == members(value, 1)
    assert read(named("ns2"), wanted, b"\2") == members(value, 1)
    assert read(["null", named("ns2")], wanted, b"\2\2") == members(value, 1)


def test_a_record_is_not_taken_for_its_namesake_whose_fields_fit_better():
    written = [created("ns1", NOTE), created("ns2")]
    wanted = [created("ns1", NOTE), created("ns2", {"name": "must", "type": "int"})]
    assert read(written, wanted, b"\2\2") is Cause.INCOMPATIBLE
    assert read(written, wanted, b"\0\2\2y") == members({"id": 1, "note": "y"}, 0)


def test_a_record_of_a_union_is_not_taken_for_its_namesake_outside_of_one():
    written = [created("ns1"), created("ns2")]
    assert read(written, created("ns1"), b"\0\2") == {"id": 1}
    assert read(written, created("ns1"), b"\2\2") is Cause.INCOMPATIBLE
    assert read(written, [created("ns1"), created("ns3")], b"\2\2") is Cause.INCOMPATIBLE


def test_a_namespace_may_change_where_the_short_name_is_enough():
    assert read(created("old"), created("new"), b"\2") == {"id": 1}
    assert read(["null", created("old")], ["null", created("new")], b"\2\2") == {"id": 1}
    wanted = [created("new"), created("new", name="Deleted")]
    assert read([created("old"), created("old", name="Deleted")], wanted, b"\2\2") == members({"id": 1}, 1)


def test_an_alias_with_its_namespace_chooses_among_namesakes():
    wanted = [created("ns1"), created("ns2") | {"aliases": ["old.Created"]}]
    assert read(created("old"), wanted, b"\2") == members({"id": 1}, 1)
    with pytest.raises(Incompatible, match=r"fits no branch"):
        read(created("other"), wanted, b"\2")


def test_a_branch_of_the_same_type_is_the_one_whatever_its_logical_type():
    days, millis = logical("date"), logical("time-millis")
    assert read(days, ["string", "long", "int"], b"\2") == {"member0": None, "member1": None, "member2": 1}
    with pytest.raises(Incompatible, match=r"int \(date\) cannot be read as int \(time-millis\)"):
        read(days, ["string", "long", millis], b"\2")


MERGED = ["null", {"type": "int", "logicalType": "time-millis"}, {"type": "long", "logicalType": "timestamp-nanos"}]


def test_a_number_of_a_union_of_int_and_long_is_in_the_unit_of_its_branch():
    assert read(logical("timestamp-millis"), MERGED, varint(1_700_000_000_123)) == 1_700_000_000_123_000_000
    assert read(logical("time-millis"), MERGED, varint(5)) == 5
    for wanted in (MERGED, [*MERGED[:2], "long"]):
        with pytest.raises(Incompatible, match=r"int \(date\) cannot be read as int \(time-millis\)"):
            read(logical("date"), wanted, varint(5))


TIMES = [
    "date", "time-millis", "time-micros",
    *(f"{local}timestamp-{unit}" for local in ("", "local-") for unit in ("millis", "micros", "nanos")),
]  # fmt: skip


def pages_pairs() -> set[tuple[str, str]]:
    """Of two different times, which the page's table has."""
    section = PAGE.read_text().partition("## Logical types that change")[2].partition("\n## ")[0]
    pairs: set[tuple[str, str]] = set()
    for line in section.splitlines():
        writer, query, *_ = [*(cell.strip() for cell in line.strip("|").split("|")), ""]
        if writer.startswith("the same with"):
            pairs |= {(f"local-{one}", f"local-{other}") for one, other in pairs if one.startswith("timestamp")}
        elif query == "local-timestamp":
            pairs |= {(writer, name) for name in TIMES if name.startswith("local-")}
        else:
            pairs |= {(one, other) for one in writer.split(", ") for other in query.split(", ")}
    return {pair for pair in pairs if {*pair} <= {*TIMES} and pair[0] != pair[1]}


def test_the_pages_table_of_logical_types_is_that_of_the_code():
    def resolves(written: str, wanted: str) -> bool:
        try:
            reader(parse(json.dumps(logical(written))), parse(json.dumps(logical(wanted))))
        except Incompatible:
            return False
        return True

    pairs = {(written, wanted) for written in TIMES for wanted in TIMES if written != wanted}
    of_code = {pair for pair in pairs if resolves(*pair)}
    assert of_code == pages_pairs()
    assert len(of_code) > 10


def of_texts(*names: str, **aliases: list[str]) -> dict[str, Any]:
    """A record of texts, whose defaults are the fields' names in capitals."""
    columns = [
        {"name": name, "type": "string", "default": name.upper(), "aliases": aliases.get(name, [])} for name in names
    ]
    return {"type": "record", "name": "Texts", "fields": columns}


@pytest.mark.parametrize(
    ("written", "wanted", "expected"),
    [
        (["b"], of_texts("a", a=["b"]), {"a": "b"}),
        (["b"], of_texts("a", "b", a=["b"]), {"a": "b", "b": "B"}),
        (["b"], of_texts("b", "a", a=["b"]), {"b": "B", "a": "b"}),
        (["b", "c"], of_texts("a", "b", a=["b"], b=["c"]), {"a": "b", "b": "c"}),
        (["x"], of_texts("a", "b", a=["x"], b=["x"]), {"a": "A", "b": "x"}),
        (["a", "b"], of_texts("a", "b", "c", a=["b"]), {"a": "a", "b": "b", "c": "C"}),
        (["a", "b"], of_texts("a", "b", a=["b"], b=["a"]), {"a": "a", "b": "b"}),
        (["a"], of_texts("a", a=["a"]), {"a": "a"}),
        (["a", "b"], of_texts("a"), {"a": "a"}),
        (["a", "b"], of_texts("a", a=["b"]), r"fields a and b of the writer's schema are both field a of"),
        (["b", "a"], of_texts("a", a=["b"]), r"fields b and a of the writer's schema are both field a of"),
        (["a", "b"], of_texts("c", c=["a", "b"]), r"fields a and b of the writer's schema are both field c of"),
    ],
    ids=str,
)
def test_a_field_is_the_one_of_its_alias_and_two_are_never_one(written, wanted, expected):
    writer = in_record(of_texts(*written))
    body = b"".join(b"\2" + name.encode() for name in written)
    if isinstance(expected, dict):
        assert read(writer, in_record(wanted), body) == {"price": expected}
        return
    with pytest.raises(Incompatible, match="field price: " + expected):
        read(writer, in_record(wanted), body)


def test_two_fields_of_one_are_named_also_if_the_type_of_one_does_not_fit():
    written = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "a", "type": "int"}, {"name": "old", "type": "string"}],
    }
    wanted = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int", "aliases": ["old"]}]}
    with pytest.raises(Incompatible, match="fields a and old of the writer's schema are both field a of the reader's"):
        read(written, wanted, b"\2\2x")


def test_a_type_that_is_defined_again_is_the_one_whatever_its_docs_and_aliases():
    money = {
        "type": "record",
        "name": "Money",
        "fields": [{"name": "n", "type": {"type": "enum", "name": "E", "symbols": ["A"]}}],
    }
    twice = {
        "type": "record",
        "name": "a.R",
        "fields": [{"name": "x", "type": money}, {"name": "y", "type": ["null", money]}],
    }
    assert read(twice, twice, b"\0\2\0") == {"x": {"n": "A"}, "y": {"n": "A"}}
    other = twice | {"fields": [twice["fields"][0], {"name": "y", "type": money | {"namespace": "b"}}]}
    assert read(other, other, b"\0\0") == {"x": {"n": "A"}, "y": {"n": "A"}}
    explained = twice | {
        "fields": [twice["fields"][0], {"name": "y", "type": money | {"doc": "x", "aliases": ["Cash"]}}]
    }
    assert read(explained, explained, b"\0\0") == {"x": {"n": "A"}, "y": {"n": "A"}}
    changed = twice | {"fields": [twice["fields"][0], {"name": "y", "type": money | {"logicalType": "another"}}]}
    with pytest.raises(UnsupportedSchema, match=r"redefined named type: a\.Money"):
        parse(json.dumps(changed))


def test_a_type_without_a_namespace_that_is_defined_again_in_one_is_never_taken_for_that_namespaces_own():
    bare = {"type": "enum", "name": "E", "namespace": "", "symbols": ["A", "B"]}
    own = {"type": "enum", "name": "E", "namespace": "one", "symbols": ["X", "Y"]}
    fields = [{"name": name, "type": kind} for name, kind in (("a", bare), ("b", own), ("c", bare))]
    record = {"type": "record", "name": "one.R", "fields": fields}
    assert read(record, record, b"\2\2\2") == {"a": "B", "b": "Y", "c": "B"}


def test_a_type_that_no_definition_names_is_refused_by_name():
    with pytest.raises(UnsupportedSchema, match=r"type one\.E is not defined"):
        parse(json.dumps({"type": "record", "name": "one.R", "fields": [{"name": "a", "type": "E"}]}))


def test_a_default_that_spark_cannot_hold_refuses_only_the_records_that_lack_the_field():
    written = in_record([created("one"), "int"])
    added = {"name": "price", "type": decimal(2, 1), "default": "\u00ff\u0001"}  # -25.5
    wanted = in_record([created("one") | {"fields": [*created("one")["fields"], added]}, "int"])
    assert read(written, wanted, b"\2\2") == {"price": members(1, 1)}
    assert read(written, wanted, b"\0\2") is Cause.INCOMPATIBLE


@pytest.mark.parametrize("wanted", ["price", "another"])
def test_a_branch_of_values_that_take_no_bytes_refuses_only_the_records_that_have_it(wanted):
    written = in_record([{"type": "array", "items": "null"}, "int"])
    query = in_record([{"type": "array", "items": "null"}, "int"], wanted)
    query["fields"][0]["default"] = []
    assert read(written, query, b"\2\2") == {wanted: members(1, 1) if wanted == "price" else members([], 0)}
    assert read(written, query, b"\0\2\0") is Cause.INCOMPATIBLE
