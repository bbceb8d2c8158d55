"""Defines "exactly once" for a query's output as six invariants over its whole log, and proves or refutes each.

    1 once         the committed output contains every source offset exactly once, and nothing else
    2 order        records of one source partition keep their order in each output partition
    3 identity     a batch was committed under one (producer id, epoch), which committed no other batch, and contains
                   the records that were planned for it
    4 visibility   readers saw what is in the log: all committed records and no aborted ones, in order
    5 ledger       batch ids are consecutive, each batch starts where the previous one ended, and the ledger's record
                   matches its pointer
    6 healed       no transaction is open, and readers reach the end

An output is one topic or several: together they contain every source offset exactly once.

4 to 6 are checked for any topic. 1 to 3 need to know where a record comes from. Either its value says so
(`verify.provenance_bytes`, `verify.origins`), or its headers if it is a dead letter (`verify.scan`), or
its key and value are compared (`verify.contents`: 1, and 2 as far as possible). Otherwise they are not checked.
Anything with another explanation, however unlikely, is not a violation, because nobody trusts a checker that was wrong
once. All computations use arrays: ten million records take seconds.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.wire.columns import Int64s
from spark_kafka_eos.ledger.entry import LedgerEntry
from spark_kafka_eos.tools.verify import contents
from spark_kafka_eos.tools.verify.evidence import Ledger, PartitionLog, Seen, SourcePartition
from spark_kafka_eos.tools.verify.findings import CheckedInvariant, Invariant, Violation, merged
from spark_kafka_eos.tools.verify.history import HistoryEntry, committed, follows
from spark_kafka_eos.tools.verify.origins import begins_anew, identity, once, order
from spark_kafka_eos.tools.verify.outcomes import Outcome
from spark_kafka_eos.tools.verify.provenance_bytes import MAGIC

_PROVABLE = Invariant.ONCE, Invariant.ORDER, Invariant.IDENTITY
_EXAMPLES = 3


def check(
    logs: Sequence[PartitionLog],
    *,
    source: Mapping[int, SourcePartition] | None = None,
    up_to: str = "the committed offsets",
    doubt: str = "",
    copy: bool = False,
    readers: Mapping[str, Mapping[TopicPartition, Seen]],
    history: Sequence[HistoryEntry] | None = None,
    ledger: Ledger | None = None,
) -> list[CheckedInvariant]:
    """All six findings, in order. `source` is the topic whose records the output contains, by partition number, and
    `up_to` says what its ends are; `doubt`: why it cannot be known what must be there. `copy`: the output is declared a
    plain copy of it.

    The contents of source and output are needed if `copy` is set, or if no value of the output has provenance.
    """
    done = committed(history or ())
    values = sum(len(log.offset) for log in logs)
    traced = sum(log.traced for log in logs)
    dead_letters = sum(log.dead_letters for log in logs)
    source_is_traced = source is not None and any(origin.traced for origin in source.values())
    by_provenance = not (copy and source is not None) and 0 < traced == values and not source_is_traced
    if by_provenance:
        in_source = _as_far_as_is_known(once(logs, source), source, up_to)
        provable = [in_source, order(logs), identity(logs, source, history or (), done)]
        provable = [replace(finding, asked=True) for finding in provable]
    elif source is not None and (copy or traced == dead_letters):
        in_source, in_order = contents.compare(logs, source, copy=copy)
        unbatched = CheckedInvariant(
            invariant=Invariant.IDENTITY, unit="batches", unchecked="the values do not contain their batch"
        )
        in_source = _as_far_as_is_known(in_source, source, up_to)
        provable = [replace(in_source, asked=True), in_order, unbatched]
    else:
        why = _not_by_provenance(logs, values, traced)
        provable = [CheckedInvariant(invariant=invariant, unchecked=why, asked=bool(traced)) for invariant in _PROVABLE]
    if doubt:
        provable[0] = replace(provable[0], unchecked=_and(doubt, provable[0].unchecked), asked=True)
    nothing = _nothing_there(history, done, ledger)
    in_ledger = _ledger(logs, done, ledger, by_provenance, nothing)
    in_ledger = replace(in_ledger, asked=history is not None or bool(nothing))
    return [*provable, _visibility(logs, readers), in_ledger, _healed(logs, ledger)]


def _as_far_as_is_known(
    once: CheckedInvariant, source: Mapping[int, SourcePartition] | None, up_to: str
) -> CheckedInvariant:
    """Invariant 1 with what of the source need not be in the output yet, and what is not known to be due."""
    if source is None:
        return once
    known = [origin for origin in source.values() if origin.end is not None]
    unread = [origin for _, origin in sorted(source.items()) if origin.end is None]
    others = [origin for origin in unread if origin.visible.any() or not origin.whole]
    later = sum(int((origin.visible & ~origin.due).sum()) for origin in known)
    after = f", after which the source has {later:,} records" if later else ""
    note = f"compared up to {up_to}{after}"
    if others:
        records = sum(int(origin.visible.sum()) for origin in others)
        where = ", ".join(str(origin.partition) for origin in others[:_EXAMPLES]) + ", …" * (len(others) > _EXAMPLES)
        unknown = f"it is not known how many of the {records:,} records of {where} the query has read"
        if any(not origin.whole for origin in others):
            unknown += ", nor of those that are deleted or compacted"
        return replace(once, unchecked=_and(once.unchecked, unknown), note=note)
    return replace(once, note=_and(once.note, note))


def _and(*remarks: str) -> str:
    return "; ".join(filter(None, remarks))


def _not_by_provenance(logs: Sequence[PartitionLog], values: int, traced: int) -> str:
    """Why the origin of the records is unknown."""
    if not values:
        return "the topic is empty"
    if not traced:
        return "the values have no provenance"
    if traced == values:
        return (
            "values of the source have provenance, too, so the output may have copied it; set --copy to compare the "
            "contents"
        )
    log = next(log for log in logs if log.traced < len(log.offset))
    bare = f"{log.partition}@{log.offset[np.argmax(log.provenance['magic'] != MAGIC)]}"
    return f"{values - traced:,} of {values:,} values have no provenance, for example {bare}"


# -- 4


def _visibility(logs: Sequence[PartitionLog], readers: Mapping[str, Mapping[TopicPartition, Seen]]) -> CheckedInvariant:
    violations, checked = [], 0
    for log in logs:
        stable = log.outcomes.last_stable_offset(log.high_watermark)
        if log.last_stable_offset > stable:
            what = f"is in an open transaction, but the broker's last stable offset is {log.last_stable_offset}"
            violations.append(Violation(kind="not stable", where=f"{log.partition}@{stable}", what=what))
        log_start = int(log.batches.base_offset[0]) if len(log.batches.base_offset) else log.high_watermark
        for name, partitions in readers.items():
            if (seen := partitions.get(log.partition)) is None:
                continue
            checked += len(seen.offset)
            start = max(seen.start, log_start)  # retention may have deleted records after they were read
            offsets = seen.offset[seen.offset >= start] if start > seen.start else seen.offset
            violations += _compare(log, name, start, min(seen.end, log.last_stable_offset), offsets)
    unchecked = "" if readers else "there was no reader"
    return CheckedInvariant(
        invariant=Invariant.VISIBILITY,
        checked=checked,
        unit="readings",
        violations=merged(violations),
        unchecked=unchecked,
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
        is_record = at < len(log.offset) and log.offset[at] == extra[0]
        became = Outcome(log.outcomes.of[log.batch_of[at]]).name.lower() if is_record else "no record"
        what = f"was shown to {reader}, but it is {became}" + ("" if became != "committed" else ", not yet stable")
        yield Violation(kind="shown", where=f"{log.partition}@{extra[0]}", what=what, count=len(extra))
    if (hidden := np.setdiff1d(expected, seen)).size:
        what = f"was not shown to {reader}, but it is committed"
        yield Violation(kind="hidden", where=f"{log.partition}@{hidden[0]}", what=what, count=len(hidden))


# -- 5


def _nothing_there(history: Sequence[HistoryEntry] | None, done: Sequence[HistoryEntry], ledger: Ledger | None) -> str:
    """What was given to be checked and has no batch."""
    empty = [] if history is None or done else ["the history has no committed batch"]
    if ledger is not None and ledger.batch_id is None:
        empty.append(f"the ledger has no entry of {ledger.transactional_id!r}")
    return "; ".join(empty)


def _ledger(
    logs: Sequence[PartitionLog],
    done: Sequence[HistoryEntry],
    ledger: Ledger | None,
    by_provenance: bool,
    nothing: str,
) -> CheckedInvariant:
    violations = [] if ledger is None else list(_record_and_pointer(ledger))
    if not done and (ledger is None or not by_provenance):
        lacking = "transactional.id" if ledger is None else "values with batches"
        return _of_ledger(violations, unchecked=nothing or f"neither history nor {lacking}")
    for before, entry in itertools.pairwise(done):
        if not follows(before, entry):
            what = f"follows batch {before.batch_id} in the ledger"
            violations.append(Violation(kind="batch ids", where=f"batch {entry.batch_id}", what=what))
        elif before.end is not None and entry.start is not None:
            violations += _gaps(before.end, entry)
    if ledger is not None:
        stands = "has no entry" if ledger.batch_id is None else f"is at batch {ledger.batch_id}"
        batches = [int(log.committed_provenance["batch"].max()) for log in logs if len(log.committed_offset)]
        newest = max(batches, default=-1)
        if not done and newest > (-1 if ledger.batch_id is None else ledger.batch_id):
            if begins_anew(logs):
                why = "batch ids restart, as for another query; a history is needed to match them with the ledger"
                return _of_ledger(violations, unchecked=why)
            what = f"is in the committed output, but the ledger {stands}"
            violations.append(Violation(kind="ahead of the ledger", where=f"batch {newest}", what=what))
        if done and ledger.batch_id != done[-1].batch_id:
            what = f"was committed last, but the ledger {stands}"
            violations.append(Violation(kind="not in the ledger", where=f"batch {done[-1].batch_id}", what=what))
    note = "" if done else "without a history only the last batch is compared"
    if ledger is None:
        note = "without a transactional.id the ledger is not read"
    return _of_ledger(violations, checked=max(len(done), 1), unchecked=nothing, note=note)


def _of_ledger(
    violations: Sequence[Violation], *, checked: int = 0, unchecked: str = "", note: str = ""
) -> CheckedInvariant:
    return CheckedInvariant(
        invariant=Invariant.LEDGER,
        checked=checked,
        unit="batches",
        violations=merged(violations),
        unchecked=unchecked,
        note=note,
    )


def _record_and_pointer(ledger: Ledger) -> Iterator[Violation]:
    """One transaction writes both. A pointer can expire, so it may be missing or older; a record cannot."""
    record, pointer = ledger.record, ledger.pointer
    if pointer is None or pointer.serial == 0:  # earlier releases wrote no record
        return
    where = f"commit {pointer.serial}"
    pointed = f"is batch {pointer.batch_id} of query {pointer.query_id} in the ledger's group"
    if record is None or record.serial < pointer.serial:
        last = "no record" if record is None else f"commit {record.serial} as its last (batch {record.batch_id})"
        what = f"{pointed}, but the ledger topic has {last}: it lost records"
        yield Violation(kind="behind its pointer", where=where, what=what)
    elif record.serial == pointer.serial and _says(record) != _says(pointer):
        what = f"{pointed}, digest {pointer.digest}, but batch {record.batch_id} of query {record.query_id}, digest "
        yield Violation(kind="not its pointer's", where=where, what=f"{what}{record.digest}, in its topic")


def _says(entry: LedgerEntry) -> tuple[str, int, str]:
    return entry.query_id, entry.batch_id, entry.digest


def _gaps(end: Mapping[TopicPartition, int], entry: HistoryEntry) -> Iterator[Violation]:
    assert entry.start is not None
    for tp in sorted(end.keys() & entry.start.keys()):
        if end[tp] != entry.start[tp]:
            what = f"starts at {tp}@{entry.start[tp]}, but the previous batch ended at {end[tp]}"
            yield Violation(kind="gap", where=f"batch {entry.batch_id}", what=what)


# -- 6


def _healed(logs: Sequence[PartitionLog], ledger: Ledger | None) -> CheckedInvariant:
    violations = []
    for log in logs:
        for producer, offset in log.outcomes.open.items():
            what = f"starts a transaction of producer {producer} that has not ended"
            violations.append(Violation(kind="open transaction", where=f"{log.partition}@{offset}", what=what))
        if log.last_stable_offset != log.high_watermark:
            what = f"is the last stable offset, but the high watermark is {log.high_watermark}"
            violations.append(
                Violation(kind="held readers", where=f"{log.partition}@{log.last_stable_offset}", what=what)
            )
    if ledger is not None and ledger.transaction_state in ("Ongoing", "PrepareCommit", "PrepareAbort", "Dead"):
        what = f"is in state {ledger.transaction_state}"
        violations.append(Violation(kind="transaction state", where="the transactional.id", what=what))
    unchecked = ""
    if ledger is not None and ledger.undescribed:
        unchecked = f"the coordinator does not say whether {ledger.transactional_id!r} has a transaction open: "
        unchecked += ledger.undescribed
    return CheckedInvariant(
        invariant=Invariant.HEALED,
        checked=len(logs),
        unit="partitions",
        violations=merged(violations),
        unchecked=unchecked,
        asked=True,
    )
