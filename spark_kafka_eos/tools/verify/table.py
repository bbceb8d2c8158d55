"""Invariant 7, table: every row of a table is in the topic once, and the other way round.

A row is a sequence of cells. A record's cells are named: `key`, `value`, or a field of its value, a JSON object. Row
and record are the same if their cells are, as text: numbers by their value, so 7, 7.0 and the bytes b"7" are the same.
Some of the columns may identify a row; then one that has the same identity and other cells is different, not missing.

Only digests are kept, 32 bytes for each row and record.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from hashlib import blake2b
from typing import Any

import numpy as np

from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.kafka.wire.columns import Int64s
from spark_kafka_eos.tools.verify.contents import numbered
from spark_kafka_eos.tools.verify.evidence import Contents
from spark_kafka_eos.tools.verify.findings import CheckedInvariant, Invariant, Violation

Cells = tuple[bytes | None, ...]
ReturnsRows = Callable[[], Iterable[Any]]

_SIZE, _EXAMPLES, _LONGEST = 16, 3, 80
_LACKING = ("only in the table", "repeated in the table")  # in the topic
_MOST_DIGITS = 131_072  # of PostgreSQL: a record's exponent could ask for gigabytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedColumns:
    """What a row's cells are, in order, and which of them identify it, by default all."""

    names: tuple[str, ...] = ("value",)
    identity: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raises ValueError for an identity that is none of the columns."""
        unknown = [name for name in self.identity if name not in self.names]
        if unknown:
            raise ValueError(f"{unknown[0]!r} is none of the columns {', '.join(self.names)}")

    def of_record(self, key: bytes | None, value: bytes | None) -> Cells:
        """Raises ValueError if the value has to be a JSON object and is none, or a field is not a plain value."""
        raw = {"key": key, "value": value}
        fields = None if set(self.names) <= raw.keys() else _fields(value)
        return tuple(cell(raw[name] if fields is None or name in raw else fields.get(name)) for name in self.names)

    def of_row(self, row: Any) -> Cells:
        """Raises ValueError if it has not as many cells, or one is not a plain value."""
        cells = tuple(row) if isinstance(row, Iterable) and not isinstance(row, str | bytes) else (row,)
        if len(cells) != len(self.names):
            raise ValueError(f"it has {len(cells)} columns, not the {len(self.names)} of {', '.join(self.names)}")
        return tuple(map(cell, cells))

    def identity_of(self, cells: Cells) -> Cells:
        names = self.identity or self.names
        return tuple(content for name, content in zip(self.names, cells, strict=True) if name in names)


def cell(value: Any) -> bytes | None:
    """A cell as it is compared. Raises ValueError for what is not a plain value: a list, a mapping."""
    match value:
        case None | bytes():
            return value
        case bytearray() | memoryview():
            return bytes(value)
        case str():
            return value.encode()
        case bool() | int():
            return b"%d" % value
        case float() | Decimal():
            return _number(value)
        case list() | tuple() | dict() | set():
            raise ValueError(f"a cell is a {type(value).__name__}; only plain values are compared")
    return str(value).encode()


def _number(value: float | Decimal) -> bytes:
    """Every digit counts: no arithmetic, which would round to the context's 28."""
    exact = Decimal(repr(value)) if isinstance(value, float) else value
    if not exact.is_finite():
        return str(float(exact)).encode()
    if abs(exact.adjusted()) > _MOST_DIGITS:
        raise ValueError(f"a cell is the number {exact}, which has more digits than any database has")
    text = format(exact, "f")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return b"0" if text == "-0" else text.encode()


def _fields(value: bytes | None) -> dict[str, Any]:
    try:
        fields = json.loads(value or b"", parse_float=Decimal)
    except ValueError:
        fields = None
    if not isinstance(fields, dict):
        raise ValueError("its value is not a JSON object")
    return fields


class RowDigests:
    """Collects the digests of rows, or of records, in their order."""

    def __init__(self, columns: ComparedColumns) -> None:
        self._columns, self._identities, self._contents = columns, bytearray(), bytearray()

    def add(self, cells: Cells) -> None:
        self._identities += digest(self._columns.identity_of(cells))
        self._contents += digest(cells)

    def __len__(self) -> int:
        return len(self._contents) // _SIZE

    @property
    def identities(self) -> Contents:
        return np.frombuffer(bytes(self._identities), np.uint64).reshape(-1, 2)

    @property
    def contents(self) -> Contents:
        return np.frombuffer(bytes(self._contents), np.uint64).reshape(-1, 2)


def digest(cells: Cells) -> bytes:
    """A BLAKE2b digest; each cell's length comes first, so that other cells never give the same bytes."""
    framed = b"".join(b"-" if content is None else b"%d:%b" % (len(content), content) for content in cells)
    return blake2b(framed, digest_size=_SIZE).digest()


def read_rows(rows: ReturnsRows, columns: ComparedColumns) -> RowDigests:
    """The digests of a table's rows. Raises ToolFailed if they cannot be read or compared."""
    digests = RowDigests(columns)
    for cells in _each(rows, columns):
        digests.add(cells)
    return digests


def compare_table(
    records: RowDigests,
    rows: RowDigests,
    where: Callable[[int], str],
    *,
    rows_again: ReturnsRows,
    columns: ComparedColumns,
    topic_is_whole: bool = True,
) -> CheckedInvariant:
    """The finding. `where` names a record by its number; `rows_again` returns the same rows once more, in any order: it
    is called only to show the first few rows of a violation. Unless `topic_is_whole`, the topic may have had what only
    the table has.
    """
    there = len(records)
    identity = numbered([records.identities, rows.identities])
    content = numbered([records.contents, rows.contents])
    of_record, of_row = identity[:there], identity[there:]
    in_topic, in_table = _counts(identity, there)
    content_in_topic, content_in_table = _counts(content, there)

    def at_records(numbers: Int64s) -> list[str]:
        return [where(int(number)) for number in numbers[:_EXAMPLES]]

    def at_rows(numbers: Int64s) -> list[str]:
        return _rows_to_text(rows_again, columns, rows.identities[numbers[:_EXAMPLES]]) if len(numbers) else []

    missing = np.flatnonzero(in_topic[of_row] == 0)
    unknown = np.flatnonzero(in_table[of_record] == 0)
    more_there = np.flatnonzero((in_topic > in_table) & (in_table > 0))
    more_here = np.flatnonzero((in_table > in_topic) & (in_topic > 0))
    as_often = (in_topic == in_table)[of_record]
    other = np.flatnonzero(as_often & (content_in_topic > content_in_table)[content[:there]])
    kinds = [
        ("only in the table", len(missing), at_rows(missing), "is not in the topic"),
        ("only in the topic", len(unknown), at_records(unknown), "is not in the table"),
        (
            "repeated in the topic",
            int((in_topic - in_table)[more_there].sum()),
            at_records(_last_of(of_record, more_there)),
            "is in the topic more often than in the table",
        ),
        (
            "repeated in the table",
            int((in_table - in_topic)[more_here].sum()),
            at_rows(_last_of(of_row, more_here)),
            "is in the table more often than in the topic",
        ),
        ("different", len(other), at_records(other), "differs from the row that it is identified with"),
    ]
    found = [
        Violation(kind=kind, where=examples[0], what=what, count=count, also=tuple(examples[1:]))
        for kind, count, examples, what in kinds
        if count
    ]
    explained = [] if topic_is_whole else [each for each in found if each.kind in _LACKING]
    return CheckedInvariant(
        invariant=Invariant.TABLE,
        checked=len(rows),
        unit="rows",
        violations=tuple(violation for violation in found if violation not in explained),
        unchecked=f"{explained[0]}; but some of the output is deleted or compacted" if explained else "",
        asked=True,
    )


def _counts(number: Int64s, records: int) -> tuple[Int64s, Int64s]:
    """How often each number occurs among the records, and among the rows that follow them."""
    many = int(number.max()) + 1 if len(number) else 0
    return np.bincount(number[:records], minlength=many), np.bincount(number[records:], minlength=many)


def _last_of(numbers: Int64s, selected: Int64s) -> Int64s:
    """Where each of the wanted numbers is for the last time: an earlier place is the row's own."""
    places = np.flatnonzero(np.isin(numbers, selected))
    return np.array(sorted({int(numbers[place]): int(place) for place in places}.values()), np.int64)


def _rows_to_text(rows: ReturnsRows, columns: ComparedColumns, identities: Contents) -> list[str]:
    """The rows with these identities, by what identifies them."""
    due = {content.tobytes() for content in identities}
    texts = []
    for cells in _each(rows, columns):
        named = columns.identity_of(cells)
        if (at := digest(named)) in due:
            due.remove(at)
            text = ", ".join("NULL" if content is None else content.decode(errors="replace") for content in named)
            texts.append(f"row ({text if len(text) <= _LONGEST else text[:_LONGEST] + '…'})")
        if not due:
            break
    return texts or ["a row that is gone since"]


def _each(rows: ReturnsRows, columns: ComparedColumns) -> Iterator[Cells]:
    number = 0
    try:
        for row in rows():
            number += 1
            yield columns.of_row(row)
    except Exception as error:
        raise ToolFailed(
            f"the table's rows cannot be read or compared, at row {number:,}: {error}",
            action="The function must return tuples of plain values, one for each of --columns.",
        ) from error
