"""What Avro's own implementation in Java reads is what is read here: random schemas, random changes of them.

Where the answers differ, docs/schemas.md says so, with the reason.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lab.jars import java_avro
from spark_kafka_eos.dead_letters.causes import Cause
from spark_kafka_eos.registry import avro_reading
from spark_kafka_eos.registry.avro_reading import Incompatible, reader
from spark_kafka_eos.registry.avro_schema import parse
from spark_kafka_eos.registry.nesting import UnsupportedSchema
from spark_kafka_eos.registry.rows import rows_of
from tests.unit.registry.avro_evolutions import Evolution, Tree, evolution, kind_in_json, kind_of, smaller, text
from tests.unit.registry.java_process import Java

SOURCE = Path(__file__).with_name("AvroReader.java")
PAGE = Path(__file__).parents[3] / "docs" / "schemas.md"
_BATCH = 200  # evolutions

_EXACT = Context(prec=1_000)

# How an answer differs from Java's, as the page has it; SAME is not at all.
SAME = "the same"
LOGICAL = "another scale, unit or kind of logical type"
RANGE = "a number that Spark's type cannot hold"
NAMES = "a record of another name"
ALIASES = "an alias, where the namespace changed, too"
NAMESAKES = "a type of a union in another namespace"
NOT_UTF8 = "bytes that are not UTF-8, read as a string"
NO_ITEM_BYTES = "an array of values that take no bytes"
UNUSED = "a type that does not fit, in an array or map without values"
NO_BYTES = "a decimal of no bytes"
BRANCH = "a default of a union, where a record, an enum, an array or a map is before its type"
FIELD_ALIASES = "an alias that is the name of another field of the query"
DIFFERENCES = (
    LOGICAL,
    RANGE,
    NAMES,
    ALIASES,
    NAMESAKES,
    NOT_UTF8,
    NO_ITEM_BYTES,
    UNUSED,
    NO_BYTES,
    BRANCH,
    FIELD_ALIASES,
)


@pytest.fixture(scope="module")
def avros_own():
    with Java(SOURCE, java_avro()) as running:
        yield running


def question(case: Evolution) -> str:
    asked = {"writer": case.writer, "reader": case.reader, "bodies": [body.hex() for body in case.bodies()]}
    return json.dumps(asked)


Outcome = Any  # a Cause, a pa.Scalar, or an Exception that must not be raised


def here(case: Evolution) -> list[Outcome]:
    """A value of each record, or the cause of its fault, or what must not be raised."""
    bodies = pa.array(case.bodies(), pa.binary())
    try:
        read = reader(parse(text(case.writer)), parse(text(case.reader)))
        rows = rows_of(bodies)
        column = read(rows)
        rows.finish()
        column.validate(full=True)
    except (Incompatible, UnsupportedSchema):
        return [Cause.INCOMPATIBLE] * len(bodies)
    except Exception as error:  # noqa: BLE001 - it is what the test is about
        return [error] * len(bodies)
    return [rows.faults.of(number) or column[number] for number in range(len(bodies))]


# What is the same.

_UNITS = {
    "date": 86_400 * 10**9,
    "time-millis": 10**6,
    "time-micros": 10**3,
    "timestamp-nanos": 1,
    "local-timestamp-nanos": 1,
}


def leaves(tree: Tree, value: Any) -> Iterator[tuple[Tree, Any]]:
    """Each leaf of Java's value, with the query's type."""
    match kind_of(tree):
        case "union":
            yield from leaves(tree[value["branch"]], value["is"])
        case "array":
            for item in value:
                yield from leaves(tree["items"], item)
        case "map":
            for item in value.values():
                yield from leaves(tree["values"], item)
        case "record":
            for field, item in zip(tree["fields"], value, strict=True):
                yield from leaves(field["type"], item)
        case _:
            yield tree, value


def fits(tree: Tree, value: Any) -> bool:
    """Whether Spark's type holds the number of a leaf."""
    match value:
        case {"decimal": number} if "precision" in tree:
            unscaled = int(Decimal(number).scaleb(tree.get("scale", 0), _EXACT))
            return bool(abs(unscaled) < 10 ** min(tree["precision"], 38))
        case {"time": number} if "logicalType" in tree:
            unit = _UNITS.get(tree["logicalType"], 1_000)
            return -(2**63) <= int(number) // unit < 2**63
    return True


def equal(tree: Tree, ours: pa.Scalar, theirs: Any) -> bool:
    """Whether a scalar of Arrow is Java's value."""
    match kind_of(tree):
        case "union":
            return equal_branch(tree, ours, theirs)
        case "null":
            return theirs is None and not ours.is_valid
        case _ if not ours.is_valid:
            return False
        case "array":
            return len(theirs) == len(ours) and all(map(equal, [tree["items"]] * len(theirs), ours.values, theirs))
        case "map":
            ours = {entry["key"].as_py(): entry["value"] for entry in ours.values}
            return ours.keys() == theirs.keys() and all(equal(tree["values"], ours[key], theirs[key]) for key in theirs)
        case "record":
            names = [field["name"] for field in tree["fields"]]
            if ours.type.names != names or len(theirs) != len(names):
                return False
            return all(map(equal, [field["type"] for field in tree["fields"]], map(ours.__getitem__, names), theirs))
    return equal_leaf(tree, ours, theirs)


def equal_branch(tree: Tree, ours: pa.Scalar, theirs: Any) -> bool:
    branch = tree[theirs["branch"]]
    if kind_of(branch) == "null":
        return not ours.is_valid
    present = [number for number, each in enumerate(tree) if kind_of(each) != "null"]
    if not pa.types.is_struct(ours.type) or not ours.type.names[0].startswith("member"):
        return equal(branch, ours, theirs["is"])
    member = f"member{present.index(theirs['branch'])}"
    others = [name for name in ours.type.names if name != member]
    return (
        ours.is_valid and equal(branch, ours[member], theirs["is"]) and not any(ours[name].is_valid for name in others)
    )


def equal_leaf(tree: Tree, ours: pa.Scalar, theirs: Any) -> bool:
    match theirs:
        case {"time": number}:
            unit = 1_000 if pa.types.is_timestamp(ours.type) else _UNITS[tree["logicalType"]]
            ours = ours.as_py() if pa.types.is_integer(ours.type) else ours.value
            return bool(ours * unit == int(number))
        case {"decimal": number}:
            return bool(pa.types.is_decimal(ours.type) and ours.as_py() == Decimal(number))
        case {"double": bits}:
            number = ours.as_py()
            packed = struct.pack(">d", math.nan if math.isnan(number) else number)
            return bool(pa.types.is_floating(ours.type) and packed.hex() == bits.zfill(16))
        case {"bytes": content}:
            return bool(ours.as_py() == bytes.fromhex(content))
    return type(ours.as_py()) is type(theirs) and ours.as_py() == theirs


# What differs.


def contradicts(written: str, wanted: str) -> bool:
    """Whether the page has no value for this pair of types, given as Java names them."""
    (base, *logical), (other, *query) = written.split(), wanted.split()
    if {base, other} == {"string", "bytes"}:
        return "decimal" in {*logical, *query} or "big-decimal" in {*logical, *query}
    if not logical or not query:
        return False
    if logical[0] == query[0] == "decimal":
        return int(query[2]) < int(logical[2])
    return (logical[0], query[0]) not in _CONVERTED


_STAMPS = [
    (f"{local}timestamp-{unit}", local, unit) for local in ("", "local-") for unit in ("millis", "micros", "nanos")
]
_CONVERTED = {
    *((name, name) for name in ("uuid", "duration", "date", "time-millis", "time-micros", "big-decimal")),
    ("time-millis", "time-micros"),
    *((written, wanted) for written, local, unit in _STAMPS for wanted, zone, other in _STAMPS
      if local == zone and (unit != "nanos" or other == "nanos")),
    *(("date", name) for name, local, _ in _STAMPS if local),
}  # fmt: skip


def difference(case: Evolution, number: int, ours: Outcome, answer: dict[str, Any]) -> str | None:
    """The name of the difference of one record, None for one that the page does not have."""
    theirs = answer["values"][number] if answer["values"] else answer
    if isinstance(ours, Exception):
        return None
    if "broken" in theirs:
        if "Zero length BigInteger" in theirs["broken"]:
            return NO_BYTES
        is_renamed_twice = re.search("missing required field|Avro reads .* and the walk", theirs["broken"])
        return FIELD_ALIASES if is_renamed_twice and _has_alias_of_a_name(case) else None
    if "error" in theirs:
        return SAME if isinstance(ours, Cause) else _refused_by_java(case, theirs["error"])
    if isinstance(ours, Cause):
        return _refused_here(case, ours, theirs["is"], answer)
    if equal(case.reader, ours, theirs["is"]):
        return SAME
    if _has_misread_default(case.reader):
        return BRANCH
    if _has_alias_of_a_name(case):
        return FIELD_ALIASES
    # Java takes unions whose types have the same short names, one for one, for the same.
    if all(any(map(_has_namesakes, types(tree))) for tree in (case.writer, case.reader)):
        return NAMESAKES
    return ALIASES if _moved_with_aliases(case) else None


_IN_JSON = {
    type(None): "null", bool: "boolean", int: "number", float: "number", str: "text", list: "array", dict: "object",
}  # fmt: skip


def _has_misread_default(tree: Tree) -> bool:
    return any(
        "default" in field and _is_misread(field["type"], field["default"])
        for part in types(tree)
        for field in fields(part)
    )


def _has_default_out_of_range(tree: Tree) -> bool:
    """Whether a decimal's default has more digits than its type: Java only looks where the default is used."""
    decimals = (
        (field["type"]["precision"], field["default"])
        for part in types(tree)
        for field in fields(part)
        if "default" in field and isinstance(field["type"], dict) and field["type"].get("logicalType") == "decimal"
    )
    return any(_digits(default) > precision for precision, default in decimals)


def _digits(text: str) -> int:
    return len(str(abs(int.from_bytes(text.encode("latin-1"), "big", signed=True))))


def _is_misread(tree: Tree, value: Any) -> bool:
    """Whether Java takes a default for one of a record, an enum, an array or a map, which is another's."""
    match kind_of(tree):
        case "union":
            kind = _IN_JSON[type(value)]
            anything = {"record", "enum", "array", "map"}
            taken = next(branch for branch in tree if kind_of(branch) in anything or kind_in_json(branch) == kind)
            if kind_in_json(taken) != kind or (kind_of(taken) == "enum" and value not in taken["symbols"]):
                return True
            return _is_misread(taken, value)
        case "array":
            return any(_is_misread(tree["items"], item) for item in value)
        case "map":
            return any(_is_misread(tree["values"], item) for item in value.values())
        case "record":
            return any(
                _is_misread(field["type"], value[field["name"]]) for field in tree["fields"] if field["name"] in value
            )
    return False


def _refused_by_java(case: Evolution, error: str) -> str | None:
    if re.search(r"Found \S+, expecting union", error):
        return NAMESAKES
    if re.search("enum value .* is not in the enum symbol set|No default value for", error):
        return BRANCH if _has_misread_default(case.reader) else None
    if "Duplicate field" in error:
        return FIELD_ALIASES if _has_alias_of_a_name(case) else None
    if re.search("missing required field|content mismatch", error) and _has_alias_of_a_name(case):
        return FIELD_ALIASES
    if "Duplicate in union" in error:  # in the writer's, whose type has got the query's name for it
        return ALIASES if any(tree.get("aliases") for tree in types(case.reader) if _is_named(tree)) else None
    return ALIASES if "Found" in error and _moved_with_aliases(case) else None


def _refused_here(case: Evolution, cause: Cause, value: Any, answer: dict[str, Any]) -> str | None:
    all_leaves = list(leaves(case.reader, value))
    in_range = all(fits(*leaf) for leaf in all_leaves)
    moved = ALIASES if _moved_with_aliases(case) else None  # Java has not read this value, but a default
    if cause is Cause.OUT_OF_RANGE:
        return moved if in_range else RANGE
    if cause is Cause.UNDECODABLE:
        return NOT_UTF8 if any(isinstance(leaf, str) and "\ufffd" in leaf for _, leaf in all_leaves) else moved
    no_bytes = any(kind_of(tree) == "array" and _is_empty(tree["items"]) for tree in types(case.writer))
    reasons = {
        LOGICAL: any(contradicts(*pair) for pair in answer["changed"]),
        NAMES: answer["renamed"],
        UNUSED: answer["refused"] or _has_default_out_of_range(case.reader),
        NO_ITEM_BYTES: no_bytes,
        ALIASES: moved is not None,
        NAMESAKES: any(_has_namesakes(tree) for tree in (*types(case.writer), *types(case.reader))),
        RANGE: not in_range,  # of a default
        BRANCH: _has_misread_default(case.reader),  # which is out of range here
        FIELD_ALIASES: _has_alias_of_a_name(case),
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def _has_alias_of_a_name(case: Evolution) -> bool:
    """Whether a field of the query has another one's name as an alias. Java follows aliases twice, and renames a field
    also if the query has one of its name.
    """
    return any(
        alias != field["name"] and alias in {other["name"] for other in fields(tree)}
        for tree in types(case.reader)
        for field in fields(tree)
        for alias in field.get("aliases", ())
    )


def _moved_with_aliases(case: Evolution) -> bool:
    """Whether the query has a type with aliases, or a record with some of fields, that the writer has under none of
    these full names, or also under another one with the same last part. An alias cannot name a type without a namespace
    where the new one is in one; and Java takes a type for the one that has its new name as an alias.
    """
    names = {(kind_of(tree), _full_name(tree)) for tree in types(case.writer) if _is_named(tree)}
    renamed = {alias for tree in types(case.reader) if _is_named(tree) for alias in tree.get("aliases", ())}
    return any(
        not names & {(kind_of(tree), name) for name in (_full_name(tree), *tree.get("aliases", ()))}
        or {(kind, name.rpartition(".")[2]) for kind, name in names - {(kind_of(tree), _full_name(tree))}}
        & {(kind_of(tree), tree["name"])}
        or "" in map(_space, tree.get("aliases", ()))
        or renamed & set(map(_full_name, filter(_is_named, types(case.reader))))
        for tree in types(case.reader)
        if _is_named(tree) and any("aliases" in part for part in (tree, *tree.get("fields", ())))
    )


def _has_namesakes(tree: Tree) -> bool:
    names = (
        [part["name"] for part in tree if isinstance(part, dict) and "name" in part] if kind_of(tree) == "union" else []
    )
    return len({*names}) < len(names)


def _full_name(tree: Tree) -> str:
    return f"{tree['namespace']}.{tree['name']}".lstrip(".")


def _space(name: str) -> str:
    return name.rpartition(".")[0]


def types(tree: Tree) -> Iterator[Tree]:
    """The type and all in it."""
    yield tree
    match kind_of(tree):
        case "union":
            inner = tree
        case "record":
            inner = [field["type"] for field in fields(tree)]
        case _:
            inner = [tree[key] for key in ("items", "values") if key in tree and not isinstance(tree, str)]
    for part in inner:
        yield from types(part)


def fields(tree: Tree) -> list[dict[str, Any]]:
    return tree["fields"] if kind_of(tree) == "record" else []


def _is_named(tree: Tree) -> bool:
    return kind_of(tree) in {"record", "enum", "fixed"}


def _is_empty(tree: Tree) -> bool:
    """Whether each value takes no bytes."""
    return kind_of(tree) == "null" or (
        kind_of(tree) == "record" and all(_is_empty(each["type"]) for each in tree["fields"])
    )


def compare(avros_own: Java, cases: Sequence[Evolution]) -> Iterator[tuple[Evolution, str | None]]:
    """Each record's difference."""
    for case in cases:
        avros_own.ask(question(case))
    for case in cases:
        outcomes = here(case)
        answer = avros_own.answer()
        for number, ours in enumerate(outcomes):
            yield case, difference(case, number, ours, answer)


def differs(avros_own: Java, case: Evolution) -> bool:
    return any(name is None for _, name in compare(avros_own, [case]))


def smallest(avros_own: Java, case: Evolution) -> Evolution:
    """The smallest that can be made of a case with a difference that the page does not have."""
    while True:
        case_again = next((part for part in smaller(case) if differs(avros_own, part)), None)
        if case_again is None:
            return case
        case = case_again


def differences(avros_own: Java, seeds: range) -> Counter[str]:
    """How many records there were of each difference. Fails with a small case of one that the page does not have."""
    names: Counter[str] = Counter()
    for start in range(seeds.start, seeds.stop, _BATCH):
        cases = {seed: evolution(seed) for seed in range(start, min(start + _BATCH, seeds.stop))}
        for case, name in list(compare(avros_own, list(cases.values()))):  # all, as the smallest one is asked for next
            if name is None:
                seed = next(seed for seed, other in cases.items() if other is case)
                pytest.fail(f"seed {seed}: {told(avros_own, smallest(avros_own, case))}")
            names[name] += 1
    return names


def told(avros_own: Java, case: Evolution) -> str:
    avros_own.ask(question(case))
    bodies = [body.hex() for body in case.bodies()]
    return f"""
writer  {text(case.writer)}
reader  {text(case.reader)}
bodies  {bodies}
here    {[said(outcome) for outcome in here(case)]}
Java    {avros_own.answer()}"""


def said(outcome: Outcome) -> str:
    try:
        return str(outcome)
    except OverflowError:  # a time that Python's types lack
        return f"a {outcome.type}"


class SecondSymbols(Evolution):
    """A record each of whose fields is the byte 2: of an enum the second symbol."""

    def bodies(self) -> list[bytes]:
        return [b"\2" * len(self.writer["fields"])]


PARTS = 10  # each about 10 minutes, and an hour on a machine that does much else


@pytest.mark.parametrize(
    "seeds",
    [
        range(10_000),
        *(
            pytest.param(
                range(10_000 + 100_000 * part, 110_000 + 100_000 * part),
                marks=[pytest.mark.slow, pytest.mark.timeout(3_600)],
                id=str(part),
            )
            for part in range(PARTS)
        ),
    ],
    ids=str,
)
def test_a_changed_schema_is_read_as_avros_java_reads_it_or_the_page_says_why_not(avros_own, seeds, cell):
    names = differences(avros_own, seeds)
    for name, count in names.items():
        cell("Avro, compared with Java's", f"{len(seeds):,} pairs of schemas", name, f"{count:,}")
    assert names[SAME] > 2 * len(seeds)
    assert names.keys() == {SAME, *DIFFERENCES}


def in_record(*kinds: Tree, name: str = "R") -> Tree:
    columns = [{"name": f"f{number}", "type": kind} for number, kind in enumerate(kinds)]
    return {"type": "record", "name": name, "namespace": "one", "fields": columns}


BARE = {"type": "enum", "name": "A", "namespace": "", "symbols": ["X", "Y"]}
OWN = {"type": "enum", "name": "A", "namespace": "one", "symbols": ["Z", "W"]}


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param(in_record(BARE, BARE), id="a type without a namespace again"),
        pytest.param(in_record(BARE, "A"), id="its bare name within a namespace"),
        pytest.param(in_record(BARE, "A", OWN, "A"), id="its bare name before and after one of the namespace"),
        pytest.param(in_record(OWN, BARE, "A"), id="the namespace's own first"),
        pytest.param(in_record("A", OWN), id="a name before its definition"),
        pytest.param(in_record("B"), id="a name without a definition"),
        pytest.param(in_record(OWN, {"type": "A"}, {"type": "one.A"}), id="a name as a type's type"),
        pytest.param(in_record(OWN, OWN | {"doc": "x"}), id="again with a doc"),
        pytest.param(in_record(OWN, OWN | {"aliases": ["B"]}), id="again with an alias"),
        pytest.param(in_record(OWN, OWN | {"default": "W"}), id="again with a default"),
        pytest.param(in_record(OWN, OWN | {"unit": "x"}), id="again with an attribute"),
        pytest.param(in_record(OWN, OWN | {"symbols": ["W", "Z"]}), id="again with other symbols"),
        pytest.param(in_record(in_record(OWN, name="S"), in_record("A", name="S")), id="again with a name in it"),
        pytest.param(in_record(in_record("int", name="S"), in_record("long", name="S")), id="again with another type"),
        pytest.param(
            in_record(in_record(BARE, name="S") | {"namespace": ""}, "one.A"), id="of a record without a namespace"
        ),
        pytest.param(in_record({"type": {"type": "string"}}), id="a type within a type"),
        pytest.param(in_record(OWN | {"symbols": ["X", "X"]}), id="a symbol twice"),
        pytest.param(in_record(OWN) | {"fields": in_record("int")["fields"] * 2}, id="a field twice"),
    ],
)
def test_a_schemas_names_stand_for_the_types_that_avros_java_takes_them_for(avros_own, schema):
    assert [name for _, name in compare(avros_own, [SecondSymbols(schema, schema, ())])] == [SAME]


def test_each_difference_is_in_the_pages_table_with_its_reason():
    _, _, section = PAGE.read_text().partition("## Compared with Avro's Java")
    rows = [line.split(" | ") for line in section.partition("\n## ")[0].splitlines() if line.startswith("| ")]
    assert {row[0].removeprefix("| ") for row in rows[1:]} == set(DIFFERENCES)
    assert all(len(row) == 4 and all(row) for row in rows)


def test_a_wrong_number_is_noticed_and_told_with_one_field(avros_own, monkeypatch):
    monkeypatch.setattr(avro_reading, "factor", lambda *_: 1)  # as if each unit were that of the column
    with pytest.raises(pytest.fail.Exception, match=r"seed \d+") as failed:
        differences(avros_own, range(1_000))
    assert str(failed.value).count('"name": "f') == 2  # a field of writer and reader
