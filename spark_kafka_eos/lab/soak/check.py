"""What must have come out of a soak, computed from the source and the plans alone, and what is wrong with what did.

All queries are judged alike. A row is expected of one micro-batch: of a query that copies each record that the batch
was to read, of the stateful one the figures of each key that occurs in it. All rows differ from each other: a key's
count of records grows with each of its records.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from spark_kafka_eos.verify.history import HistoryEntry

Plan = Sequence[Mapping[int, int]]  # for each micro-batch, from 0 on: where it ends in each source partition


class SourceRecord(NamedTuple):
    """A record of the source as a read_committed consumer sees it."""

    partition: int
    offset: int
    key: str
    number: int


class Copied(NamedTuple):
    """A record of a copy: where it comes from, and its payload as it was read."""

    partition: int
    offset: int
    key: str
    payload: str


class Figures(NamedTuple):
    """A record of the stateful output; `records`: how many of the key so far, `total` the sum of their numbers,
    `aborted` how many of them were sent to be aborted."""

    key: str
    records: int
    total: int
    aborted: int


Row = TypeVar("Row", Copied, Figures)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came out, in records; only `torn` is in batches. All but `expected`, `found` and `batches` must be 0.

    `torn`: batches of which a part is there. `aborted_visible`: records made of what no reader may see. `wrong`: any
    other that nothing in the source explains, or in another batch, or behind its successor.
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
    """What was committed of what the checkpoints of a query hold, each of which went on where the one before was lost.

    The batch that was in flight then was committed if the next checkpoint begins where it ends: its batch 0 reads
    nothing. Else nothing of it may be in the output. The first checkpoint begins at the source's beginning.
    """
    found: list[list[HistoryEntry]] = []
    for number, entries in enumerate(checkpoints):
        after = next((later[0].end for later in checkpoints[number + 1 :] if later), None)
        done = [entry for entry in entries if entry.verdict == "committed" or entry.end == after]
        if number == 0 and done:
            done[0] = replace(done[0], start=dict.fromkeys(done[0].end or (), 0))
        found.append([replace(entry, verdict="committed") for entry in done])
    return found


def plan_of(entries: Iterable[HistoryEntry]) -> Plan:
    """Where each batch ends in the source."""
    return [{tp.partition: offset for tp, offset in (entry.end or {}).items()} for entry in entries]


def places_of(committed: Sequence[Sequence[HistoryEntry]]) -> dict[tuple[int, int], int]:
    """For each batch, by the number of its checkpoint and its id: which of all batches it is, from 0 on."""
    batches = [(number, entry.batch_id) for number, entries in enumerate(committed) for entry in entries]
    return {batch: place for place, batch in enumerate(batches)}


def expected_copies(source: Iterable[SourceRecord], plan: Plan) -> dict[Copied, int]:
    """The rows of a query that copies, each with its batch."""
    batch_of = _batch_of(plan)
    return {Copied(r.partition, r.offset, r.key, str(r.number)): batch_of(r) for r in source}


def expected_figures(source: Iterable[SourceRecord], plan: Plan) -> dict[Figures, int]:
    """The rows of the stateful query, each with its batch."""
    batch_of = _batch_of(plan)
    by_batch: dict[int, dict[str, list[int]]] = {}
    for record in source:
        by_batch.setdefault(batch_of(record), {}).setdefault(record.key, []).append(record.number)
    counts: Counter[str] = Counter()
    totals: Counter[str] = Counter()
    found: dict[Figures, int] = {}
    for batch, keys in sorted(by_batch.items()):
        for key, numbers in keys.items():
            counts[key] += len(numbers)
            totals[key] += sum(numbers)
            found[Figures(key, counts[key], totals[key], 0)] = batch
    return found


def judge_copies(source: Sequence[SourceRecord], plan: Plan, found: Iterable[tuple[int, Copied]]) -> Outcome:
    """`found`: batch and row, in the order of the output's partitions."""
    visible = {(record.partition, record.offset) for record in source}
    return _judge(
        expected_copies(source, plan),
        plan,
        found,
        aborted=lambda row: (row.partition, row.offset) not in visible,
        place=lambda row: ((row.partition, row.key), row.offset),
    )


def judge_figures(source: Sequence[SourceRecord], plan: Plan, found: Iterable[tuple[int, Figures]]) -> Outcome:
    """`found`: batch and row, in the order of the output's partitions."""
    return _judge(
        expected_figures(source, plan),
        plan,
        found,
        aborted=lambda row: row.aborted > 0,
        place=lambda row: (row.key, row.records),
    )


def _batch_of(plan: Plan) -> Callable[[SourceRecord], int]:
    """The batch that reads a record; behind the last one for a record that nobody planned to read."""
    partitions = {partition for ends in plan for partition in ends}
    ends = {partition: [batch.get(partition, 0) for batch in plan] for partition in partitions}
    return lambda record: bisect_right(ends.get(record.partition, []), record.offset)


def _judge(
    expected: Mapping[Row, int],
    plan: Plan,
    found: Iterable[tuple[int, Row]],
    *,
    aborted: Callable[[Row], bool],
    place: Callable[[Row], tuple[object, int]],
) -> Outcome:
    """`place`: rows with the first of the two in common follow one another in the order of the second."""
    seen: Counter[Row] = Counter()
    latest: dict[object, int] = {}
    aborted_visible = wrong = total = 0
    for batch, row in found:
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
    return Outcome(
        batches=len(plan),
        expected=len(expected),
        found=total,
        lost=len(lost),
        duplicated=seen.total() - len(seen),
        torn=len(set(lost) & {expected[row] for row in seen}),
        aborted_visible=aborted_visible,
        wrong=wrong,
    )
