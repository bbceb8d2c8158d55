"""Compares the output of a soak with the expected output, which is computed from the source and the plans alone.

All queries are judged in the same way. Each expected row belongs to one micro-batch. A query that copies must write
each record that the batch reads; the stateful query must write the totals of each key in the batch. No two expected
rows are equal, because a key's number of records grows with each record.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from spark_kafka_eos.tools.verify.history import HistoryEntry

Plan = Sequence[Mapping[int, int]]  # for each micro-batch from 0 on: its end offset in each source partition


class SourceRecord(NamedTuple):
    """A record of the source as a read_committed consumer sees it."""

    partition: int
    offset: int
    key: str
    number: int


class Copied(NamedTuple):
    """A record of a copy: its origin, and its payload."""

    partition: int
    offset: int
    key: str
    payload: str


class Figures(NamedTuple):
    """A record of the stateful output: the number of the key's `records` so far, the `total` of their numbers, and how
    many of them belong to `aborted` transactions.
    """

    key: str
    records: int
    total: int
    aborted: int


Row = TypeVar("Row", Copied, Figures)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryOutcome:
    """The result, in records; only `torn` counts batches. All except `expected`, `found` and `batches` must be 0.

    `torn`: batches that are incomplete. `aborted_visible`: records that stem from aborted transactions. `wrong`: other
    records that do not follow from the source, that belong to another batch, or that come after their successor.
    """

    batches: int
    expected: int
    found: int
    lost: int
    duplicated: int
    torn: int
    aborted_visible: int
    wrong: int

    @property
    def holds(self) -> bool:
        return not (self.lost or self.duplicated or self.torn or self.aborted_visible or self.wrong)


def succession(checkpoints: Sequence[Sequence[HistoryEntry]]) -> list[list[HistoryEntry]]:
    """The committed batches of each checkpoint of a query. A checkpoint continues where the previous one was lost.

    The batch that was in flight at the loss was committed if batch 0 of the next checkpoint starts at its end.
    Otherwise nothing of it may be in the output.
    """
    committed: list[list[HistoryEntry]] = []
    for number, entries in enumerate(checkpoints):
        after = next((later[0].start for later in checkpoints[number + 1 :] if later), None)
        done = [entry for entry in entries if entry.event == "committed" or entry.end == after]
        committed.append([replace(entry, event="committed") for entry in done])
    return committed


def plan_of(entries: Iterable[HistoryEntry]) -> Plan:
    """The end of each batch in the source."""
    return [{tp.partition: offset for tp, offset in (entry.end or {}).items()} for entry in entries]


def places_of(committed: Sequence[Sequence[HistoryEntry]]) -> dict[tuple[int, int], int]:
    """The place of each batch among all batches, from 0 on, by the number of its checkpoint and its id."""
    batches = [(number, entry.batch_id) for number, entries in enumerate(committed) for entry in entries]
    return {batch: place for place, batch in enumerate(batches)}


def expected_copies(source: Iterable[SourceRecord], plan: Plan) -> dict[Copied, int]:
    """The expected rows of a query that copies, each with its batch."""
    batch_of = _batch_of(plan)
    return {Copied(r.partition, r.offset, r.key, str(r.number)): batch_of(r) for r in source}


def expected_figures(source: Iterable[SourceRecord], plan: Plan) -> dict[Figures, int]:
    """The expected rows of the stateful query, each with its batch."""
    batch_of = _batch_of(plan)
    by_batch: dict[int, dict[str, list[int]]] = {}
    for record in source:
        by_batch.setdefault(batch_of(record), {}).setdefault(record.key, []).append(record.number)
    counts: Counter[str] = Counter()
    totals: Counter[str] = Counter()
    expected: dict[Figures, int] = {}
    for batch, keys in sorted(by_batch.items()):
        for key, numbers in keys.items():
            counts[key] += len(numbers)
            totals[key] += sum(numbers)
            expected[Figures(key, counts[key], totals[key], 0)] = batch
    return expected


def judge_copies(source: Sequence[SourceRecord], plan: Plan, output: Iterable[tuple[int, Copied]]) -> QueryOutcome:
    """Judge `output`: batch and row, in the order of each output partition."""
    visible = {(record.partition, record.offset) for record in source}
    return _judge(
        expected_copies(source, plan),
        plan,
        output,
        aborted=lambda row: (row.partition, row.offset) not in visible,
        place=lambda row: ((row.partition, row.key), row.offset),
    )


def judge_figures(source: Sequence[SourceRecord], plan: Plan, output: Iterable[tuple[int, Figures]]) -> QueryOutcome:
    """Judge `output`: batch and row, in the order of each output partition."""
    return _judge(
        expected_figures(source, plan),
        plan,
        output,
        aborted=lambda row: row.aborted > 0,
        place=lambda row: (row.key, row.records),
    )


def _batch_of(plan: Plan) -> Callable[[SourceRecord], int]:
    """A function that returns the batch that reads a record; len(plan) for a record that no batch reads."""
    partitions = {partition for ends in plan for partition in ends}
    ends = {partition: [batch.get(partition, 0) for batch in plan] for partition in partitions}
    return lambda record: bisect_right(ends.get(record.partition, []), record.offset)


def _judge(
    expected: Mapping[Row, int],
    plan: Plan,
    output: Iterable[tuple[int, Row]],
    *,
    aborted: Callable[[Row], bool],
    place: Callable[[Row], tuple[object, int]],
) -> QueryOutcome:
    """`place` returns a series and a position: rows of the same series must be in the order of their positions."""
    seen: Counter[Row] = Counter()
    latest: dict[object, int] = {}
    aborted_visible = wrong = total = 0
    for batch, row in output:
        total += 1
        if row not in expected:
            aborted_visible += aborted(row)
            wrong += not aborted(row)
            continue
        seen[row] += 1
        series, at = place(row)
        if seen[row] == 1:
            wrong += batch != expected[row] or at < latest.get(series, at)
            latest[series] = at
    lost = [batch for row, batch in expected.items() if row not in seen]
    return QueryOutcome(
        batches=len(plan),
        expected=len(expected),
        found=total,
        lost=len(lost),
        duplicated=seen.total() - len(seen),
        torn=len(set(lost) & {expected[row] for row in seen}),
        aborted_visible=aborted_visible,
        wrong=wrong,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NumbersOutcome:
    """How an output compares to consecutive numbers per partition, in records; all except `expected` and `found` must
    be 0. `disordered`: records that come after a later one for the first time. `wrong`: of no number that was produced.
    """

    expected: int
    found: int
    lost: int
    duplicated: int
    disordered: int
    wrong: int

    @property
    def holds(self) -> bool:
        return not (self.lost or self.duplicated or self.disordered or self.wrong)


def judge_numbers(produced: Sequence[int], output: Iterable[tuple[int, int]]) -> NumbersOutcome:
    """Judge `output`, partition and number, in the order of each partition, without any plan: partition p must have the
    numbers from 0 to `produced[p]` - 1, each once and in order.
    """
    seen = [bytearray(count) for count in produced]
    highest = [-1] * len(produced)
    found = duplicated = disordered = wrong = 0
    for partition, number in output:
        found += 1
        if not (0 <= partition < len(produced) and 0 <= number < produced[partition]):
            wrong += 1
        elif seen[partition][number]:
            duplicated += 1
        else:
            seen[partition][number] = 1
            disordered += number < highest[partition]
            highest[partition] = max(highest[partition], number)
    return NumbersOutcome(
        expected=sum(produced),
        found=found,
        lost=sum(numbers.count(0) for numbers in seen),
        duplicated=duplicated,
        disordered=disordered,
        wrong=wrong,
    )
