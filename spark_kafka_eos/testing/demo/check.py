"""Computes the figures that the demo shows at its end: expected from the data set, found with librdkafka."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

Value = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Records that were read, compared with the expected ones; every count except `correct` must be 0."""

    correct: int
    missing: int
    duplicates: int
    wrong: int
    aborted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TableComparison:
    """The rows of the table that took part, and how many more often one side has something than the other."""

    rows: int
    only_in_table: int
    only_in_topic: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A row of the demo's table."""

    name: str
    expected: int
    actual: int
    note: str = ""

    @property
    def holds(self) -> bool:
        return self.expected == self.actual


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumedCounts:
    """What the consumers read: `input_*` from the flights, `output_*` from the late flights.

    `flights_read` counts the committed input records before the offsets that the job's transactions committed.
    """

    flights_read: int
    input_aborted_visible: int
    input_aborted_uncommitted: int
    output: Comparison
    output_uncommitted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Crashes:
    """The micro-batches during which drivers and executors were killed, and the number of batches that were committed.

    `redone` are the batches that a writer aborted and wrote again by itself, without a new driver.
    """

    drivers: tuple[int, ...]
    executors: tuple[int, ...]
    committed: int
    redone: frozenset[int]

    @property
    def drivers_survived(self) -> int:
        return sum(batch < self.committed for batch in self.drivers)

    @property
    def executors_survived(self) -> int:
        return sum(batch < self.committed for batch in self.executors)


def compare(expected: Mapping[int, Value], records: Iterable[tuple[str, Value]]) -> Comparison:
    """Compare `records`, (key, value) as a read_committed consumer saw them, with those `expected`, by flight id.

    A record is `wrong` if its flight was not late, or if its key (the airport) or a field differs. Copies from aborted
    input transactions count only as `aborted`.
    """
    seen: Counter[int] = Counter()
    wrong = aborted = 0
    for key, value in records:
        flight = value.get("id")
        if value.get("aborted"):
            aborted += 1
        elif not isinstance(flight, int) or expected.get(flight) != value or value["airport"] != key:
            wrong += 1
        else:
            seen[flight] += 1
    return Comparison(
        correct=len(seen),
        missing=len(expected.keys() - seen.keys()),
        duplicates=seen.total() - len(seen),
        wrong=wrong,
        aborted=aborted,
    )


def compare_table(rows: Iterable[str], records: Iterable[str]) -> TableComparison:
    """Compare a table's rows with the values of the topic's records: both as many times."""
    in_table, in_topic = Counter(rows), Counter(records)
    return TableComparison(
        rows=in_table.total(),
        only_in_table=(in_table - in_topic).total(),
        only_in_topic=(in_topic - in_table).total(),
    )


def figures(
    *,
    flights: int,
    late: int,
    aborted_sent: int,
    crashes: Crashes,
    survey: ConsumedCounts,
    table: TableComparison | None = None,
) -> list[Figure]:
    """The rows of the table: the demo succeeds if every figure holds. `table`: of the job's own table, if it has one.

    The batch of each killed executor must have been written again. Other batches may also have been written again,
    because transactions time out on a slow machine. This is only a note.
    """
    output = survey.output
    undone = survey.output_uncommitted - output.correct - output.duplicates - output.wrong - output.aborted
    return [
        Figure(name="flights read", expected=flights, actual=survey.flights_read),
        Figure(name="late flights", expected=late, actual=output.correct),
        Figure(name="missing", expected=0, actual=output.missing),
        Figure(name="duplicates", expected=0, actual=output.duplicates),
        Figure(name="wrong or unexpected", expected=0, actual=output.wrong),
        Figure(
            name="aborted records seen",
            expected=0,
            actual=survey.input_aborted_visible + output.aborted,
        ),
        Figure(
            name="… by read_uncommitted",
            expected=aborted_sent,
            actual=survey.input_aborted_uncommitted,
            note=f"and {undone:,} in the output",
        ),
        Figure(name="driver kills survived", expected=len(crashes.drivers), actual=crashes.drivers_survived),
        *(_executors(crashes) if crashes.executors else ()),
        *(_table(late, table) if table is not None else ()),
    ]


def _table(late: int, table: TableComparison) -> tuple[Figure, ...]:
    return (
        Figure(name="rows in the table", expected=late, actual=table.rows),
        Figure(name="only in the table", expected=0, actual=table.only_in_table),
        Figure(name="only in the topic", expected=0, actual=table.only_in_topic),
    )


def _executors(crashes: Crashes) -> tuple[Figure, Figure]:
    killed = set(crashes.executors)
    others = ", ".join(str(batch) for batch in sorted(crashes.redone - killed))
    return (
        Figure(name="executor kills survived", expected=len(crashes.executors), actual=crashes.executors_survived),
        Figure(
            name="batches written again",
            expected=len(killed),
            actual=len(crashes.redone & killed),
            note=f"for other reasons: {others}" if others else "",
        ),
    )
