"""What Protobuf's own implementation in Java reads and writes is what is read and written here: random files, random
changes of them.

Where the answers differ, docs/schemas.md says so, with the reason.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka.schema_registry.common.protobuf import _create_index_array
from confluent_kafka.schema_registry.serde import SchemaId
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from lab.jars import java_protobuf
from spark_kafka_eos.dead_letters.causes import Cause
from spark_kafka_eos.errors import InvalidRow
from spark_kafka_eos.registry import protobuf
from spark_kafka_eos.registry.avro_reading import Incompatible
from spark_kafka_eos.registry.decoding import _pass
from spark_kafka_eos.registry.formats import Format, QuerySchema, format_of
from spark_kafka_eos.registry.framing import Group
from spark_kafka_eos.registry.nesting import UnsupportedSchema
from tests.unit.registry.java_process import Java
from tests.unit.registry.protobuf_evolutions import Evolution, descriptor_of, evolution, smaller
from tests.unit.registry.protobuf_samples import is_map, text_of
from tests.unit.registry.test_protobuf_samples import comparable, same

SOURCE = Path(__file__).with_name("ProtobufReader.java")
PAGE = Path(__file__).parents[3] / "docs" / "schemas.md"
_BATCH = 100  # evolutions
_F = FieldDescriptor

# How an answer differs from Java's, as the page has it; SAME is not at all.
SAME = "the same"
TYPES = "a type that cannot hold all of the writer's values, or is another one in the bytes"
SINGLE = "a repeated field that is a single one now"
QUANTITIES = "a `Duration` that is a `Timestamp` now, or the other way round"
REQUIRED = "a required field that the record lacks"
NANOSECONDS = "parts of a microsecond"
RANGE = "a time that Spark's type cannot hold"
NOT_UTF8 = "bytes that are not UTF-8, read as a string of proto2"
NOT_JSON = "a `Value` that JSON does not have, such as NaN"
RECURSIVE = "a message that contains itself, in the query's schema"
CLOSED = "an entry of a map whose value is a number that its enum of proto2 lacks"
DIFFERENCES = (TYPES, SINGLE, QUANTITIES, REQUIRED, NANOSECONDS, RANGE, NOT_UTF8, NOT_JSON, RECURSIVE, CLOSED)


@pytest.fixture(scope="module")
def protobufs_own():
    with Java(SOURCE, java_protobuf()) as running:
        yield running


Outcome = Any  # a Cause, a row, or an Exception that must not be raised


class Here(NamedTuple):
    """What this package makes of bodies: of each an outcome, and those of the rows as they are written again."""

    outcomes: list[Outcome]
    written: dict[int, bytes | Exception]


def here(case: Evolution, bodies: Sequence[bytes]) -> Here:
    target = QuerySchema(text_of(case.reader), case.message)
    prefix = SchemaId("PROTOBUF", 7, None, _create_index_array(descriptor_of(case.writer, case.message))).id_to_bytes()
    values = pa.array([prefix + body for body in bodies], pa.binary())
    try:
        kind = format_of(target)
        column, faults = _pass(values, Group(7, np.arange(len(values)), 5), kind.reader(text_of(case.writer)))
        column.validate(full=True)
    except (Incompatible, UnsupportedSchema):
        return Here([Cause.INCOMPATIBLE] * len(bodies), {})
    except Exception:  # noqa: BLE001 - of a library: `decode` halves the rows until the one to blame is alone
        if len(bodies) == 1:
            return Here([Cause.UNDECODABLE], {})
        each = [here(case, [body]) for body in bodies]
        outcomes = [one.outcomes[0] for one in each]
        return Here(outcomes, {at: one.written[0] for at, one in enumerate(each) if one.written})
    plain = column.cast(_comparable(column.type)).to_pylist()
    outcomes = [faults[at].cause if at in faults else row for at, row in enumerate(plain)]
    return Here(outcomes, _written(kind, column, [at for at in range(len(bodies)) if at not in faults]))


def _written(kind: Format, column: pa.Array, rows: list[int]) -> dict[int, bytes | Exception]:
    """The body of each row, or what was raised."""
    try:
        return dict(zip(rows, kind.write(column.take(pa.array(rows, pa.int64())), b"").to_pylist(), strict=True))
    except Exception as error:  # noqa: BLE001 - it is what the test is about
        if len(rows) <= 1:
            return dict.fromkeys(rows, error)
    return {row: made for each in rows for row, made in _written(kind, column, [each]).items()}


def _comparable(kind: pa.DataType) -> pa.DataType:
    """With numbers for times, some of which Python has not."""
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        return pa.int64()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_comparable(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _comparable(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_comparable(kind.value_type)))
    return kind


# Java's values as rows.


class Told:
    """Java's value as a row, and what Spark's types cannot have of it."""

    def __init__(self, message: Descriptor, value: dict[str, Any]) -> None:
        self.differences: set[str] = set()
        self.row = self._row(message, value)

    def _row(self, message: Descriptor, value: dict[str, Any]) -> dict[str, Any]:
        return {field.name: self._field(field, value[field.name]) for field in message.fields}

    def _field(self, field: FieldDescriptor, value: Any) -> Any:
        if value is None:
            return None
        if is_map(field):
            key, inner = field.message_type.fields_by_number[1], field.message_type.fields_by_number[2]
            entries = [each for each in value if each is not None]
            if len(entries) < len(value):
                self.differences.add(CLOSED)
            return sorted(((self._single(key, one), self._single(inner, other)) for one, other in entries), key=_key)
        return [self._single(field, item) for item in value] if field.is_repeated else self._single(field, value)

    def _single(self, field: FieldDescriptor, value: Any) -> Any:
        match field.type:
            case _F.TYPE_UINT64 | _F.TYPE_FIXED64:
                return Decimal(value)
            case _F.TYPE_FLOAT:
                return struct.unpack(">f", bytes.fromhex(value))[0]
            case _F.TYPE_DOUBLE:
                return struct.unpack(">d", bytes.fromhex(value))[0]
            case _F.TYPE_BYTES:
                return bytes.fromhex(value)
            case _F.TYPE_STRING if "\ufffd" in value:
                self.differences.add(NOT_UTF8)
        return value if field.message_type is None else self._message(field.message_type, value)

    def _message(self, message: Descriptor, value: Any) -> Any:
        match message.full_name.removeprefix("google.protobuf."):
            case "Timestamp" | "Duration" as name:
                micros, rest = divmod(value["nanos"], 1_000)
                if name == "Duration" and value["nanos"] < 0 and rest:
                    micros += 1  # toward zero, as Protobuf's own class for Python
                micros += value["seconds"] * 10**6
                if rest:
                    self.differences.add(NANOSECONDS)
                if not -(2**63) <= micros < 2**63:
                    self.differences.add(RANGE)
                return micros
            case "Struct" | "Value" | "ListValue" as name:
                return self._json(name, value)
            case name if name.endswith("Value") and message.file.name == "google/protobuf/wrappers.proto":
                return self._single(message.fields_by_name["value"], value["value"])
        return self._row(message, value) if message.fields else True

    def _json(self, name: str, value: Any) -> Any:
        match name:
            case "Struct":
                return {key: self._json("Value", item) for key, item in value["fields"]}
            case "ListValue":
                return [self._json("Value", item) for item in value["values"]]
        kind = next((kind for kind, part in value.items() if part is not None), "null_value")
        match kind:
            case "null_value":
                return None
            case "number_value":
                (number,) = struct.unpack(">d", bytes.fromhex(value[kind]))
                if number - number != 0:
                    self.differences.add(NOT_JSON)
                return number
            case "struct_value" | "list_value":
                return self._json("Struct" if kind == "struct_value" else "ListValue", value[kind])
        return value[kind]


def _key(entry: tuple[Any, Any]) -> Any:
    return entry[0]


# What differs.

_RANGES = {
    _F.TYPE_INT32: (-(2**31), 2**31), _F.TYPE_ENUM: (-(2**31), 2**31), _F.TYPE_INT64: (-(2**63), 2**63),
    _F.TYPE_UINT32: (0, 2**32), _F.TYPE_UINT64: (0, 2**64), _F.TYPE_BOOL: (0, 2),
}  # fmt: skip
_ZIGZAG = {_F.TYPE_SINT32: (-(2**31), 2**31), _F.TYPE_SINT64: (-(2**63), 2**63)}


def holds_all(written: int, wanted: int) -> bool:
    """Whether each value of a type is itself in the bytes of another one."""
    if written == wanted or {written, wanted} == {_F.TYPE_STRING, _F.TYPE_BYTES}:
        return True
    for ranges in (_RANGES, _ZIGZAG):
        if written in ranges and wanted in ranges:
            (low, high), (lowest, highest) = ranges[written], ranges[wanted]
            return lowest <= low and high <= highest
    return False


def changes(writer: Descriptor, reader: Descriptor, seen: set[tuple[str, str]]) -> set[str]:
    """The differences between two messages because of which no record of the one is read with the other."""
    found: set[str] = set()
    if (writer.full_name, reader.full_name) in seen:
        return found
    seen.add((writer.full_name, reader.full_name))
    for field in reader.fields:
        other = writer.fields_by_number.get(field.number)
        if other is None:
            continue
        if not holds_all(other.type, field.type):
            found.add(TYPES)
            continue
        if other.is_repeated and not field.is_repeated:
            found.add(SINGLE)
        if field.message_type is not None:
            both = {other.message_type.full_name, field.message_type.full_name}
            if both == {"google.protobuf.Timestamp", "google.protobuf.Duration"}:
                found.add(QUANTITIES)
            found |= changes(other.message_type, field.message_type, seen)
    return found


def contains_itself(message: Descriptor, above: frozenset[str] = frozenset()) -> bool:
    """But for those that are texts of JSON."""
    name = message.full_name
    if name in above:
        return bool(message.file.name != "google/protobuf/struct.proto")
    parts = (field.message_type for field in message.fields if field.message_type is not None)
    return any(contains_itself(part, above | {name}) for part in parts)


class Case:
    """An evolution with what is asked of Java, step by step."""

    def __init__(self, seed: int, given: Evolution) -> None:
        self.seed, self.given = seed, given
        self.writer, self.reader = (descriptor_of(file, given.message) for file in (given.writer, given.reader))
        self.changes = {RECURSIVE} if contains_itself(self.reader) else changes(self.writer, self.reader, set())
        self.bodies: list[bytes] = []
        self.here = Here([], {})

    def question(self, verb: str, file: Any, bodies: Sequence[bytes]) -> str:
        return " ".join((verb, file.SerializeToString().hex(), self.given.message, *(f"x{b.hex()}" for b in bodies)))

    def written_by_java(self, answer: Any) -> None:
        """Also both after each other, which are merged, and one that breaks off."""
        assert isinstance(answer, list) and all(isinstance(body, str) for body in answer), (
            f"seed {self.seed}: {answer}\n{self.given}"
        )
        bodies = list(map(bytes.fromhex, answer))
        self.bodies = [*bodies, b"".join(bodies), bodies[0][: len(bodies[0]) * (self.seed % 7) // 8]]
        self.here = here(self.given, self.bodies)

    @property
    def rewritten(self) -> dict[int, bytes]:
        """The bodies of the rows that were written again."""
        return {
            at: body[len(protobuf._indexes(self.reader)) :]
            for at, body in self.here.written.items()
            if isinstance(body, bytes)
        }

    def difference(self, number: int, theirs: dict[str, Any], again: dict[str, Any] | None) -> str | None:
        """The name of the difference of one body, None for one that the page does not have. `again` is what Java reads
        of what was written of it.
        """
        ours = self.here.outcomes[number]
        if self.changes:
            return min(self.changes) if ours is Cause.INCOMPATIBLE else None
        if "error" in theirs:
            return SAME if ours is Cause.UNDECODABLE else None
        told = Told(self.reader, theirs["is"])
        match ours:
            case Cause.OUT_OF_RANGE:
                return RANGE if RANGE in told.differences else None
            case Cause.UNDECODABLE:
                return next((name for name in (NOT_UTF8, NOT_JSON) if name in told.differences), None)
            case Cause():
                return None
        ours = comparable(self.reader, ours)
        if not same(ours, told.row):
            return None
        if not theirs["complete"]:
            return REQUIRED if isinstance(self.here.written[number], InvalidRow) else None
        if again is None or not same(ours, Told(self.reader, again["is"]).row):
            return RANGE if isinstance(self.here.written[number], InvalidRow) else None
        return next((name for name in (NANOSECONDS, CLOSED) if name in told.differences), SAME)


def compare(protobufs_own: Java, cases: Sequence[Case]) -> Iterator[tuple[Case, int, str | None]]:
    """Each body's difference."""
    for case in cases:
        protobufs_own.ask(case.question("write", case.given.writer, case.given.bodies))
    for case in cases:
        case.written_by_java(protobufs_own.answer())
        protobufs_own.ask(case.question("read", case.given.reader, case.bodies))
        protobufs_own.ask(case.question("read", case.given.reader, list(case.rewritten.values())))
    for case in cases:
        answer = protobufs_own.answer()
        again = dict(zip(case.rewritten, protobufs_own.answer(), strict=True))
        for number, theirs in enumerate(answer):
            yield case, number, case.difference(number, theirs, again.get(number))


def smallest(protobufs_own: Java, case: Case) -> Case:
    """The smallest that can be made of a case with a difference that the page does not have."""
    while True:
        parts = (Case(case.seed, part) for part in smaller(case.given))
        found = next((part for part in parts if None in [name for *_, name in compare(protobufs_own, [part])]), None)
        if found is None:
            return case
        case = found


def differences(protobufs_own: Java, seeds: range) -> Counter[str]:
    """How many bodies there were of each difference. Fails with a small case of one that the page does not have."""
    names: Counter[str] = Counter()
    for start in range(seeds.start, seeds.stop, _BATCH):
        cases = [Case(seed, evolution(seed)) for seed in range(start, min(start + _BATCH, seeds.stop))]
        for case, _, name in list(compare(protobufs_own, cases)):  # all, as the smallest one is asked for next
            if name is None:
                pytest.fail(f"seed {case.seed}: {told(protobufs_own, smallest(protobufs_own, case))}")
            names[name] += 1
    return names


def told(protobufs_own: Java, case: Case) -> str:
    list(compare(protobufs_own, [case]))
    protobufs_own.ask(case.question("read", case.given.reader, case.bodies))
    return f"{case.given}\nhere {case.here}\nJava {protobufs_own.answer()}"


PARTS = 25  # each about 5 minutes: a million pairs in all


@pytest.mark.parametrize(
    "seeds",
    [
        range(10_000),
        *(
            pytest.param(
                range(5_000 + 40_000 * part, 45_000 + 40_000 * part),
                marks=[pytest.mark.slow, pytest.mark.timeout(3_600)],
                id=str(part),
            )
            for part in range(PARTS)
        ),
    ],
    ids=str,
)
def test_a_changed_file_is_read_and_written_as_protobufs_java_does_or_the_page_says_why_not(protobufs_own, seeds, cell):
    names = differences(protobufs_own, seeds)
    for name, count in names.items():
        cell("Protobuf, compared with Java's", f"{len(seeds):,} pairs of files", name, f"{count:,}")
    assert names[SAME] > 2 * len(seeds)
    assert names.keys() - {CLOSED} == {SAME, *DIFFERENCES} - {CLOSED}  # the test below has it


def test_an_entry_whose_value_a_closed_enum_lacks_is_left_out_of_its_map(protobufs_own):
    assert differences(protobufs_own, range(208_424, 208_425)).keys() == {SAME, CLOSED}


def test_each_difference_is_in_the_pages_table_with_its_reason():
    _, _, section = PAGE.read_text().partition("## Compared with Protobuf's Java")
    rows = [line.split(" | ") for line in section.partition("\n## ")[0].splitlines() if line.startswith("| ")]
    assert {row[0].removeprefix("| ") for row in rows[1:]} == set(DIFFERENCES)
    assert all(len(row) == 4 and all(row) for row in rows)


def test_a_number_that_would_be_cut_is_noticed_and_told_with_one_field(protobufs_own, monkeypatch):
    monkeypatch.setitem(protobuf._EXACT, _F.TYPE_INT64, {_F.TYPE_INT32})
    with pytest.raises(pytest.fail.Exception, match=r"seed \d+") as failed:
        differences(protobufs_own, range(600, 2_600))  # before these, a case is stuck at fourteen fields
    assert str(failed.value).count("label: ") <= 4  # of writer and reader, and of a message within
