"""What "exactly once" means of an output topic, as six invariants over its whole log; each is proven or refuted here.

    1 once         every source offset is in the committed output exactly once, and nothing else is
    2 order        records of one source partition keep their order in each output partition
    3 identity     a batch was committed under one (producer id, epoch), which committed no other batch, and holds the
                   records that were planned for it
    4 visibility   what readers were shown is what the log says: everything committed, nothing aborted, in order
    5 ledger       batch ids follow one another, each batch starts where the one before ended, and the ledger's record
                   is the one that its pointer speaks of
    6 healed       no transaction is open, and readers get to the end

4 to 6 are checked of any topic. 1 to 3 need to know where a record comes from. Either its value says so
(`verify.provenance_bytes`, `verify.origins`), or its key and value are compared (`verify.contents`: 1, and 2 as far as
possible). Else they are not checked. Whatever has another explanation is no violation, however unlikely: nobody
believes a checker again that was wrong once. Everything is computed over arrays: ten million records take seconds.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from spark_kafka_eos.model import LedgerEntry, TopicPartition
from spark_kafka_eos.verify import contents
from spark_kafka_eos.verify.evidence import Int64s, Ledger, PartitionLog, Seen, SourcePartition
from spark_kafka_eos.verify.findings import CheckedInvariant, Invariant, Violation, merged
from spark_kafka_eos.verify.history import HistoryEntry, committed, follows
from spark_kafka_eos.verify.origins import begins_anew, identity, once, order
from spark_kafka_eos.verify.outcomes import Outcome
from spark_kafka_eos.verify.provenance_bytes import MAGIC

_PROVABLE = Invariant.ONCE, Invariant.ORDER, Invariant.IDENTITY


def check(
    logs: Sequence[PartitionLog],
    *,
    source: Mapping[int, SourcePartition] | None = None,
    copy: bool = False,
    readers: Mapping[str, Mapping[TopicPartition, Seen]],
    history: Sequence[HistoryEntry] = (),
    ledger: Ledger | None = None,
) -> list[CheckedInvariant]:
    """All six, in their order. `source` is the one topic whose records the output holds, by partition number; `copy`:
    it holds them as they are, which somebody must know.

    A source and the output need their contents where `copy` is set, and where no value of the output has provenance.
    """
    done = committed(history)
    values = sum(len(log.offset) for log in logs)
    traced = sum(log.traced for log in logs)
    source_is_traced = source is not None and any(origin.traced for origin in source.values())
    by_provenance = not copy and 0 < traced == values and not source_is_traced
    if by_provenance:
        provable = [once(logs, source), order(logs), identity(logs, source, history, done)]
        provable = [replace(finding, asked=True) for finding in provable]
    elif source is not None and (copy or not traced):
        in_source, in_order = contents.compare(logs, source, copy=copy)
        unbatched = CheckedInvariant(
            invariant=Invariant.IDENTITY, unit="batches", unchecked="the values do not say their batch"
        )
        provable = [replace(in_source, asked=True), in_order, unbatched]
    else:
        why = _not_by_provenance(logs, values, traced)
        provable = [CheckedInvariant(invariant=each, unchecked=why, asked=bool(traced)) for each in _PROVABLE]
    in_ledger = replace(_ledger(logs, done, ledger, by_provenance), asked=bool(history))
    return [*provable, _visibility(logs, readers), in_ledger, _healed(logs, ledger)]


def _not_by_provenance(logs: Sequence[PartitionLog], values: int, traced: int) -> str:
    """Why nobody knows where the records come from."""
    if not values:
        return "there is nothing"
    if not traced:
        return "the values do not say where they come from"
    if traced == values:
        return (
            "values of the source say where they come from as well, so the output's may be theirs as they were; --copy "
            "compares the contents"
        )
    log = next(log for log in logs if log.traced < len(log.offset))
    bare = f"{log.partition}@{log.offset[np.argmax(log.provenance['magic'] != MAGIC)]}"
    return f"{values - traced:,} of {values:,} values do not say where they come from, {bare} for one"


# -- 4


def _visibility(logs: Sequence[PartitionLog], readers: Mapping[str, Mapping[TopicPartition, Seen]]) -> CheckedInvariant:
    found, checked = [], 0
    for log in logs:
        stable = log.outcomes.last_stable_offset(log.high_watermark)
        if log.last_stable_offset > stable:
            what = f"is in an open transaction, yet the broker's last stable offset is {log.last_stable_offset}"
            found.append(Violation(kind="not stable", where=f"{log.partition}@{stable}", what=what))
        log_start = int(log.batches.base_offset[0]) if len(log.batches.base_offset) else log.high_watermark
        for name, partitions in readers.items():
            if (seen := partitions.get(log.partition)) is None:
                continue
            checked += len(seen.offset)
            start = max(seen.start, log_start)  # retention may have gone on after it read
            shown = seen.offset[seen.offset >= start] if start > seen.start else seen.offset
            found += _compare(log, name, start, min(seen.end, log.last_stable_offset), shown)
    unchecked = "" if readers else "nobody read"
    return CheckedInvariant(
        invariant=Invariant.VISIBILITY, checked=checked, unit="readings", violations=merged(found), unchecked=unchecked
    )


def _compare(log: PartitionLog, reader: str, start: int, end: int, seen: Int64s) -> Iterator[Violation]:
    expected = log.committed_offset
    expected = expected[slice(*np.searchsorted(expected, [start, end]))]
    if np.array_equal(expected, seen):
        return
    back = np.flatnonzero(np.diff(seen) <= 0)
    if back.size:
        what = f"was shown to {reader} after offset {seen[back[0]]}"
        yield Violation(kind="shown again", where=f"{log.partition}@{seen[back[0] + 1]}", what=what, count=len(back))
    if (extra := np.setdiff1d(seen, expected)).size:
        at = int(np.searchsorted(log.offset, extra[0]))
        known = at < len(log.offset) and log.offset[at] == extra[0]
        became = Outcome(log.outcomes.of[log.batch_of[at]]).name.lower() if known else "no record"
        what = f"was shown to {reader}, but it is {became}" + ("" if became != "committed" else ", not yet stable")
        yield Violation(kind="shown", where=f"{log.partition}@{extra[0]}", what=what, count=len(extra))
    if (hidden := np.setdiff1d(expected, seen)).size:
        what = f"was not shown to {reader}, but it is committed"
        yield Violation(kind="hidden", where=f"{log.partition}@{hidden[0]}", what=what, count=len(hidden))


# -- 5


def _ledger(
    logs: Sequence[PartitionLog], done: Sequence[HistoryEntry], ledger: Ledger | None, by_provenance: bool
) -> CheckedInvariant:
    found = [] if ledger is None else list(_record_and_pointer(ledger))
    if not done and (ledger is None or not by_provenance):
        nothing = "transactional.id" if ledger is None else "values that tell batches"
        return _of_ledger(found, unchecked=f"neither history nor {nothing}")
    for before, entry in itertools.pairwise(done):
        if not follows(before, entry):
            what = f"follows batch {before.batch_id} in the ledger"
            found.append(Violation(kind="batch ids", where=f"batch {entry.batch_id}", what=what))
        elif before.end is not None and entry.start is not None:
            found += _gaps(before.end, entry)
    if ledger is not None:
        stands = "has no entry" if ledger.batch_id is None else f"stands at batch {ledger.batch_id}"
        batches = [int(log.committed_provenance["batch"].max()) for log in logs if len(log.committed_offset)]
        newest = max(batches, default=-1)
        if not done and newest > (-1 if ledger.batch_id is None else ledger.batch_id):
            if begins_anew(logs):
                why = "batch numbers begin anew, as another query's do: only a history tells which the ledger is about"
                return _of_ledger(found, unchecked=why)
            what = f"is in the committed output, yet the ledger {stands}"
            found.append(Violation(kind="ahead of the ledger", where=f"batch {newest}", what=what))
        if done and ledger.batch_id != done[-1].batch_id:
            what = f"was committed last, yet the ledger {stands}"
            found.append(Violation(kind="not in the ledger", where=f"batch {done[-1].batch_id}", what=what))
    return _of_ledger(found, checked=max(len(done), 1))


def _of_ledger(found: Sequence[Violation], *, checked: int = 0, unchecked: str = "") -> CheckedInvariant:
    return CheckedInvariant(
        invariant=Invariant.LEDGER, checked=checked, unit="batches", violations=merged(found), unchecked=unchecked
    )


def _record_and_pointer(ledger: Ledger) -> Iterator[Violation]:
    """One transaction writes both. A pointer may expire, so it may be missing or behind; a record never does."""
    record, pointer = ledger.record, ledger.pointer
    if pointer is None or pointer.serial == 0:  # earlier releases wrote no record
        return
    where = f"commit {pointer.serial}"
    told = f"is batch {pointer.batch_id} of query {pointer.query_id} by the ledger's group"
    if record is None or record.serial < pointer.serial:
        last = "none at all" if record is None else f"commit {record.serial} as its last (batch {record.batch_id})"
        what = f"{told}, yet the ledger's topic has {last}: it lost records"
        yield Violation(kind="behind its pointer", where=where, what=what)
    elif record.serial == pointer.serial and _says(record) != _says(pointer):
        what = f"{told}, digest {pointer.digest}, yet batch {record.batch_id} of query {record.query_id}, digest "
        yield Violation(kind="not its pointer's", where=where, what=f"{what}{record.digest}, by its topic")


def _says(entry: LedgerEntry) -> tuple[str, int, str]:
    return entry.query_id, entry.batch_id, entry.digest


def _gaps(end: Mapping[TopicPartition, int], entry: HistoryEntry) -> Iterator[Violation]:
    assert entry.start is not None
    for tp in sorted(end.keys() & entry.start.keys()):
        if end[tp] != entry.start[tp]:
            what = f"starts at {tp}@{entry.start[tp]}, the batch before ended at {end[tp]}"
            yield Violation(kind="gap", where=f"batch {entry.batch_id}", what=what)


# -- 6


def _healed(logs: Sequence[PartitionLog], ledger: Ledger | None) -> CheckedInvariant:
    found = []
    for log in logs:
        for producer, offset in log.outcomes.open.items():
            what = f"begins a transaction of producer {producer} that nobody ended"
            found.append(Violation(kind="open transaction", where=f"{log.partition}@{offset}", what=what))
        if log.last_stable_offset != log.high_watermark:
            what = f"is the last stable offset, the high watermark is {log.high_watermark}"
            found.append(Violation(kind="held readers", where=f"{log.partition}@{log.last_stable_offset}", what=what))
    if ledger is not None and ledger.transaction_state in ("Ongoing", "PrepareCommit", "PrepareAbort", "Dead"):
        what = f"is in state {ledger.transaction_state}"
        found.append(Violation(kind="transaction state", where="the transactional.id", what=what))
    return CheckedInvariant(invariant=Invariant.HEALED, checked=len(logs), unit="partitions", violations=merged(found))
