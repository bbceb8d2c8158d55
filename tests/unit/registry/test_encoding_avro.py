"""What is encoded is what Confluent's serializer writes, byte for byte; any schema's values come back."""

from __future__ import annotations

import io
import json
import math
import struct
from contextlib import suppress
from datetime import UTC
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from itertools import count
from typing import Any
from uuid import UUID

import avro.io
import avro.schema
import fastavro
import pyarrow as pa
import pytest
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from hypothesis import example, given, settings
from hypothesis import strategies as st

from spark_kafka_eos.errors import InvalidRow, InvalidSchema
from spark_kafka_eos.registry.avro_reading import reader
from spark_kafka_eos.registry.avro_schema import arrow_type, parse
from spark_kafka_eos.registry.avro_writing import write
from spark_kafka_eos.registry.rows import rows_of
from tests.unit.registry.avro_samples import EVERY_KIND, order, row


def test_the_bytes_are_those_of_confluents_serializer(client):
    serialize = AvroSerializer(client, EVERY_KIND)
    context = SerializationContext("orders", MessageField.VALUE)
    expected = [serialize(order(number), context) for number in range(100)]
    schema = parse(EVERY_KIND)
    column = pa.array([row(order(number)) for number in range(100)], arrow_type(schema))
    assert write(schema, column, expected[0][:5]).to_pylist() == expected


def test_a_timestamp_that_is_written_as_milliseconds_loses_its_microseconds():
    schema = parse('{"type": "long", "logicalType": "timestamp-millis"}')
    column = pa.array([1_700_000_000_123_456], pa.timestamp("us", "UTC"))
    (value,) = write(schema, column, b"").to_pylist()
    assert fastavro.schemaless_reader(io.BytesIO(value), {"type": "long"}) == 1_700_000_000_123


# Any schema, and values of it as Spark has them. `plain` is the schema for the witnesses: each branch of a union is a
# record of one field, which adds no byte, so that they, too, say which branch a value is of.

names = count()
INT, LONG = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
LEAVES = [
    ("int", INT),
    ("long", LONG),
    ("boolean", st.booleans()),
    ("double", st.floats(allow_nan=False)),
    ("float", st.floats(allow_nan=False, width=32)),
    ("string", st.text(max_size=5)),
    ("bytes", st.binary(max_size=5)),
    ({"type": "int", "logicalType": "date"}, st.dates()),
    ({"type": "long", "logicalType": "timestamp-micros"}, st.datetimes(timezones=st.just(UTC))),
    (
        {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 3},
        st.integers(1 - 10**38, 10**38 - 1).map(lambda n: Decimal(n).scaleb(-3, Context(prec=38))),
    ),
]


@st.composite
def schemas(draw, depth=0):
    """Pairs: a schema with its plain form, and a strategy of values."""
    kind = draw(st.integers(0, 7 if depth < 3 else 1))
    match kind:
        case 6:
            enum = {"type": "enum", "name": f"E{next(names)}", "symbols": ["A", "B", "C"]}
            return enum, enum, st.sampled_from("ABC")
        case 7:
            sized = {"type": "fixed", "name": f"F{next(names)}", "size": 3}
            return sized, sized, st.binary(min_size=3, max_size=3)
        case 0 | 1:
            schema, values = draw(st.sampled_from(LEAVES))
            return schema, schema, values
        case 2:
            schema, plain, values = draw(schemas(depth + 1))
            return {"type": "array", "items": schema}, {"type": "array", "items": plain}, st.lists(values, max_size=4)
        case 3:
            schema, plain, values = draw(schemas(depth + 1))
            pairs = st.lists(st.tuples(st.text(max_size=3), values), max_size=3, unique_by=lambda pair: pair[0])
            return {"type": "map", "values": schema}, {"type": "map", "values": plain}, pairs
        case 4:
            fields = [draw(schemas(depth + 1)) for _ in range(draw(st.integers(1, 3)))]
            name = f"R{next(names)}"

            def made(which):
                return {
                    "type": "record", "name": name,
                    "fields": [{"name": f"f{at}", "type": each[which]} for at, each in enumerate(fields)],
                }  # fmt: skip

            return made(0), made(1), st.fixed_dictionaries({f"f{at}": each[2] for at, each in enumerate(fields)})
    members = draw(
        st.lists(
            st.sampled_from(LEAVES[1:6:2] + LEAVES[6:7]), min_size=1, max_size=3, unique_by=lambda leaf: str(leaf[0])
        )
    )
    if len(members) == 1:
        return ["null", members[0][0]], ["null", members[0][0]], st.none() | members[0][1]
    plain = [
        {"type": "record", "name": f"U{next(names)}", "fields": [{"name": f"member{at}", "type": kind}]}
        for at, (kind, _) in enumerate(members)
    ]
    empty = {f"member{at}": None for at in range(len(members))}
    branches = [
        values.map(lambda value, at=at: empty | {f"member{at}": value}) for at, (_, values) in enumerate(members)
    ]
    return ["null", *(kind for kind, _ in members)], ["null", *plain], st.none() | st.one_of(branches)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_any_schemas_values_come_back_and_two_other_implementations_read_and_write_the_same(data):
    schema, plain, values = data.draw(schemas())
    parsed = parse(json.dumps({"type": "record", "name": "Top", "fields": [{"name": "top", "type": schema}]}))
    rows = [{"top": value} for value in data.draw(st.lists(values, min_size=1, max_size=25))]
    column = pa.array(rows, arrow_type(parsed))
    encoded = write(parsed, column)
    read = rows_of(encoded)
    decoded = reader(parsed, parsed)(read)
    read.finish()
    assert not read.faults.cause.any()
    assert decoded.to_pylist() == column.to_pylist()
    tree = {"type": "record", "name": "Top", "fields": [{"name": "top", "type": plain}]}
    for witness in (FastAvro(tree), PythonsAvro(tree)):
        records = [witness.read(value) for value in encoded.to_pylist()]
        assert pa.array(records, column.type).to_pylist() == column.to_pylist()
        assert [witness.written(record) for record in records] == encoded.to_pylist()


class FastAvro:
    def __init__(self, tree: dict[str, Any]) -> None:
        self._schema = fastavro.parse_schema(tree)

    def read(self, value: bytes) -> Any:
        return fastavro.schemaless_reader(io.BytesIO(value), self._schema, None)

    def written(self, record: Any) -> bytes:
        value = io.BytesIO()
        fastavro.schemaless_writer(value, self._schema, record)
        return value.getvalue()


class PythonsAvro:
    """Avro's own implementation in Python."""

    def __init__(self, tree: dict[str, Any]) -> None:
        self._schema = avro.schema.parse(json.dumps(tree))

    def read(self, value: bytes) -> Any:
        return avro.io.DatumReader(self._schema).read(avro.io.BinaryDecoder(io.BytesIO(value)))

    def written(self, record: Any) -> bytes:
        value = io.BytesIO()
        avro.io.DatumWriter(self._schema).write(record, avro.io.BinaryEncoder(value))
        return value.getvalue()


def test_a_long_array_of_one_row_is_read_at_once():
    schema = parse('{"type": "array", "items": {"type": "map", "values": ["null", "string", "int", "double"]}}')
    item = [[(f"k{at}", None if at % 4 == 0 else {f"member{at % 3}": ["x", at, 0.5][at % 3]})] for at in range(5000)]
    column = pa.array([item, [], item[:7], None], arrow_type(schema))
    encoded = write(schema, column)
    read = rows_of(encoded)
    decoded = reader(schema, schema)(read)
    assert decoded.to_pylist()[:3] == column.to_pylist()[:3]
    damaged = rows_of(pa.array([encoded[0].as_py()[:-9], encoded[2].as_py()]))
    assert reader(schema, schema)(damaged).to_pylist()[1] == column[2].as_py()
    damaged.finish()
    assert damaged.faults.cause.tolist()[1:] == [0]
    assert damaged.faults.of(0) is not None


@pytest.mark.parametrize(
    ("kind", "values", "error", "said"),
    [
        ("int", pa.array([2**40]), InvalidRow, "value.a has a value that is out of the range of int32"),
        ("int", pa.array(["secret"]), InvalidSchema, "value.a has the type string, and its Avro schema wants int32"),
        ("string", pa.array([b"\xffsecret"]), InvalidRow, "out of the range of string"),
        (
            {"type": "map", "values": "int"},
            pa.array([[(7, 1)]], pa.map_(pa.int64(), pa.int32())),
            InvalidSchema,
            "value.a.key has the type int64, and its Avro schema wants string",
        ),
        ("float", pa.array([1e300]), InvalidRow, "out of the range of float"),
        ("int", pa.array([1, None]), InvalidRow, "value.a is null in a row"),
        ("int", pa.array([[1]]), InvalidSchema, "value.a has the type list<item: int64>"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, pa.array(["secret"]), InvalidRow, "not a symbol of E"),
        ({"type": "fixed", "name": "F", "size": 2}, pa.array([b"secret"]), InvalidRow, "not 2 bytes long"),
        ({"type": "array", "items": "int"}, pa.array([1]), InvalidSchema, "wants an array"),
    ],
)
def test_what_does_not_fit_is_refused_without_its_content(kind, values, error, said):
    schema = parse(json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]}))
    with pytest.raises(error, match=said) as raised:
        write(schema, pa.StructArray.from_arrays([values], ["a"]))
    assert "secret" not in str(raised.value)


DATES = {
    "date": pa.array([1], pa.date32()), "local": pa.array([1], pa.timestamp("us")),
    "instant": pa.array([1], pa.timestamp("us", "UTC")), "duration": pa.array([1], pa.duration("us")),
    "number": pa.array([5]), "float": pa.array([5.0]), "decimal": pa.array([Decimal(5)]), "boolean": pa.array([True]),
    "text": pa.array(["2024-01-01"]), "digits": pa.array(["5"]), "uuid": pa.array([str(UUID(int=7))]),
    "symbol": pa.array(["true"]).dictionary_encode(), "bytes": pa.array([b"true"]), "list": pa.array([["5"]]),
}  # fmt: skip
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
WRITTEN_AS: dict[str, list[Any]] = {
    "date": [{"type": "int", "logicalType": "date"}],
    "local": [{"type": "long", "logicalType": f"local-timestamp-{unit}"} for unit in ("millis", "micros")],
    "instant": [{"type": "long", "logicalType": f"timestamp-{unit}"} for unit in ("millis", "micros")],
    "number": ["int", "long", "float", "double", {"type": "long", "logicalType": "time-micros"}, DECIMAL],
    "boolean": ["boolean"],
    "text": ["string"],
    "symbol": [{"type": "enum", "name": "E", "symbols": ["true"]}],
    "uuid": [
        {"type": "string", "logicalType": "uuid"},
        {"type": "fixed", "name": "F", "size": 16, "logicalType": "uuid"},
    ],
    "bytes": ["bytes", {"type": "fixed", "name": "F", "size": 4}],
}
# What may also be written where another kind is wanted: a date is its midnight, and bytes are the text that they have.
FITS = {("date", "local"), ("float", "number"), ("decimal", "number"), ("digits", "text"), ("uuid", "text")}
FITS |= {("symbol", "text"), ("bytes", "text"), ("bytes", "symbol")}
TEXTS = {"text", "digits", "symbol", "uuid"}


@pytest.mark.parametrize("wanted", WRITTEN_AS)
@pytest.mark.parametrize("kind", DATES)
def test_no_time_zone_no_unit_and_nothing_that_a_text_says_is_made_up(kind, wanted):
    column = pa.StructArray.from_arrays([DATES[kind]], ["a"])
    for written in WRITTEN_AS[wanted]:
        schema = parse(json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": written}]}))
        if kind == wanted or (kind, wanted) in FITS:
            assert write(schema, column).null_count == 0
        elif {kind, wanted} <= TEXTS or (kind, wanted) == ("bytes", "uuid"):
            with suppress(InvalidRow):  # the kind fits, and the value may not
                write(schema, column)
        else:
            with pytest.raises(InvalidSchema, match=r"value\.a has the type .*wants .*Cast"):
                write(schema, column)


@pytest.mark.parametrize("kind", [pa.int8(), pa.int32(), pa.int64()])
@pytest.mark.parametrize("base", [{"type": "bytes"}, {"type": "fixed", "name": "F", "size": 16}], ids=str)
def test_a_whole_number_is_written_as_a_decimal_that_holds_it(kind, base):
    """Arrow itself asks for a precision that holds every number of the type."""
    schema = parse(json.dumps({"type": "record", "name": "R", "fields": [
        {"name": "a", "type": base | {"logicalType": "decimal", "precision": 9, "scale": 2}}]}))  # fmt: skip
    column = pa.StructArray.from_arrays([pa.array([12, -99, 0], kind)], ["a"])
    rows = rows_of(write(schema, column))
    assert reader(schema, schema)(rows).field("a").to_pylist() == [Decimal("12.00"), Decimal("-99.00"), Decimal("0.00")]
    if kind != pa.int8():
        with pytest.raises(InvalidRow, match=r"value\.a has a value that is out of the range of decimal128\(9, 2\)"):
            write(schema, pa.StructArray.from_arrays([pa.array([10_000_000], kind)], ["a"]))


@pytest.mark.parametrize("base", [{"type": "bytes"}, {"type": "fixed", "name": "F", "size": 16}], ids=str)
@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()])
def test_a_float_is_written_as_a_decimal_only_if_that_is_the_same_number(kind, base):
    """Arrow itself rounds to the decimal's digits, and refuses the same of another decimal."""
    schema = parse(json.dumps(base | {"logicalType": "decimal", "precision": 9, "scale": 2}))
    column = pa.array([0.1, 12.0, -99.95, 1234567.0, -0.0], kind)
    read = reader(schema, schema)(rows_of(write(schema, column)))
    assert read.to_pylist() == [Decimal(text) for text in ("0.10", "12.00", "-99.95", "1234567.00", "0.00")]
    for value in (9.999, 0.004, 1.005, 1e-300 if kind == pa.float64() else 1e-30, 1e7, math.nan, math.inf):
        with pytest.raises(InvalidRow, match=r"value has a value that is out of the range of decimal128\(9, 2\)"):
            write(schema, pa.array([0.1, value], kind))


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (pa.float64(), 8623.88, "8623.88"),
        (pa.float64(), 0.1, "0.1"),
        (pa.float64(), 0.1 + 0.2, None),  # 17 digits after the point
        (pa.float64(), 1e-7, "1E-7"),
        (pa.float64(), 5e19, "5E+19"),
        (pa.float64(), 2.0**60, "1152921504606847000"),
        (pa.float32(), 0.1, "0.1"),
        (pa.float32(), 8623.88, "8623.88"),
        (pa.float32(), 16777216.0, "16777216"),
    ],
)
@pytest.mark.parametrize("scale", [16, 18])
def test_a_float_is_written_as_a_decimal_by_the_fewest_digits_that_are_the_same_number(kind, value, text, scale):
    """Arrow itself makes 8623.879999999999199645 of 8623.88, which is the same double, too."""
    text = repr(value) if text is None and scale == 18 else text
    schema = parse(json.dumps({"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": scale}))
    if text is None:
        with pytest.raises(InvalidRow, match="out of the range"):
            write(schema, pa.array([value], kind))
        return
    (read,) = reader(schema, schema)(rows_of(write(schema, pa.array([value], kind)))).to_pylist()
    assert read == Decimal(text)


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()])
@pytest.mark.parametrize(
    ("value", "precision", "scale"),
    [(194.01137, 38, 38), (-179041340.0, 38, 31), (1.0, 38, 38), (1e9, 9, 0), (1.0118774e-38, 9, 4), (5e-39, 38, 38)],
)
def test_a_float_that_is_too_large_or_too_small_for_a_decimal_is_refused(value, precision, scale, kind):
    """Arrow makes another number of some."""
    schema = parse(json.dumps({"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}))
    with pytest.raises(InvalidRow, match="out of the range of decimal"):
        write(schema, pa.array([None, 0.0, value], kind).drop_null())


@given(st.integers(-(10**15) + 1, 10**15 - 1), st.integers(0, 15))
@example(862388, 2)
def test_a_decimal_of_15_digits_that_is_a_double_is_written_as_it_was(unscaled, scale):
    schema = parse(json.dumps({"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 18}))
    number = Decimal(unscaled).scaleb(-scale)
    (read,) = reader(schema, schema)(rows_of(write(schema, pa.array([float(number)])))).to_pylist()
    assert read == number


@given(st.integers(1 - 10**38, 10**38 - 1), st.integers(0, 38), st.integers(0, 38))
@example(12345678901, 0, 30)  # of which Arrow's own cast makes 95513691.846…
def test_a_decimal_is_written_as_one_of_another_scale_if_it_fits_and_never_as_another_number(unscaled, scale, wanted):
    schema = parse(json.dumps({"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": wanted}))
    with localcontext(prec=100):
        number = Decimal(unscaled).scaleb(-scale)
        if number.scaleb(wanted) % 1 or abs(number.scaleb(wanted)) >= 10**38:
            with pytest.raises(InvalidRow, match="out of the range"):
                write(schema, pa.array([number], pa.decimal128(38, scale)))
            return
    (read,) = reader(schema, schema)(rows_of(write(schema, pa.array([number], pa.decimal128(38, scale))))).to_pylist()
    assert read == number


def test_a_decimal_that_is_larger_than_any_float_is_refused():
    with pytest.raises(InvalidRow, match="out of the range of float"):
        write(parse('"float"'), pa.array([Decimal(10) ** 60]))


@given(st.floats(-1e18, 1e18), st.integers(0, 20))
@example(1e18, 20)
def test_a_decimal_that_a_double_was_written_as_is_that_double_again(value, scale):
    schema = parse(json.dumps({"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": scale}))
    try:
        encoded = write(schema, pa.array([value]))
    except InvalidRow:
        nearest = round(Fraction(value) * 10**scale)
        assert abs(nearest) >= 10**38 or float(Fraction(nearest, 10**scale)) != value, "no such decimal is the number"
        return
    (read,) = reader(schema, schema)(rows_of(encoded)).to_pylist()
    assert float(read) == value


@given(st.integers(1 - 10**38, 10**38 - 1), st.integers(0, 38))
@example(862388, 2)
def test_of_a_decimal_a_double_is_the_nearest_number(unscaled, scale):
    """Arrow's own cast takes another one for every tenth decimal(9,2)."""
    value = Decimal(unscaled).scaleb(-scale, Context(prec=38))
    (encoded,) = write(parse('"double"'), pa.array([value], pa.decimal128(38, scale))).to_pylist()
    assert struct.unpack("<d", encoded) == (float(value),)


@pytest.mark.parametrize(("kind", "digits"), [("double", 53), ("float", 24)])
def test_a_whole_number_is_written_as_a_double_or_float_only_if_that_has_it(kind, digits):
    schema = parse(f'"{kind}"')
    (encoded,) = write(schema, pa.array([2**digits])).to_pylist()
    assert struct.unpack("<d" if kind == "double" else "<f", encoded) == (2**digits,)
    with pytest.raises(InvalidRow, match=f"out of the range of {kind}"):
        write(schema, pa.array([2**digits + 1]))


@pytest.mark.parametrize("integer", [pa.int8(), pa.int32(), pa.int64()])
@pytest.mark.parametrize(("kind", "code"), [("double", "d"), ("float", "f")])
@given(data=st.data())
def test_a_whole_number_of_any_size_is_written_as_a_double_or_float_that_has_it(integer, kind, code, data):
    most = 2 ** (integer.bit_width - 1)
    near = st.integers(0, integer.bit_width - 2).map(lambda bits: 2**bits)
    shifted = st.builds(lambda number, power, more: number * power + more, st.integers(-9, 9), near, st.integers(-1, 1))
    numbers = [n for n in data.draw(st.lists(shifted | st.sampled_from([most - 1, -most]))) if -most <= n < most]
    schema = parse(f'"{kind}"')
    exact = [number for number in numbers if struct.unpack(code, struct.pack(code, number)) == (number,)]
    encoded = write(schema, pa.array(exact, integer)).to_pylist()
    assert [struct.unpack(f"<{code}", body)[0] for body in encoded] == exact
    for number in {*numbers} - {*exact}:
        with pytest.raises(InvalidRow, match=f"out of the range of {kind}"):
            write(schema, pa.array([*exact, number], integer))


def test_a_branch_that_takes_no_bytes_is_written_beside_others():
    nothing = {"type": "record", "name": "N", "fields": [{"name": "x", "type": "null"}]}
    member = pa.struct([("x", pa.null())])
    kind = pa.list_(pa.struct([("member0", member), ("member1", pa.int32())]))
    row = [{"member0": {"x": None}, "member1": None}, None, {"member0": None, "member1": 3}]
    schema = parse(json.dumps({"type": "array", "items": ["null", nothing, "int"]}))
    (body,) = write(schema, pa.array([row], kind)).to_pylist()
    assert body == b"\6\2\0\4\6\0"
    assert reader(schema, schema)(rows_of(pa.array([body]))).to_pylist() == [row]


def test_fields_are_matched_by_name():
    fields = [{"name": "a", "type": "int"}, {"name": "b", "type": ["null", "string"], "default": None}]
    schema = parse(json.dumps({"type": "record", "name": "R", "fields": fields}))
    assert write(schema, pa.array([{"a": 1}, None])).to_pylist() == [b"\x02\x00", None]
    with pytest.raises(InvalidSchema, match="fields that its Avro schema lacks: c"):
        write(schema, pa.array([{"a": 1, "c": 2}]))
    with pytest.raises(InvalidSchema, match="lacks the field a"):
        write(schema, pa.array([{"b": "x"}]))
