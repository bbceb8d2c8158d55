"""What "exactly once" means of an output topic, as six invariants over its whole log; each is proven or refuted here.

    1 once         every source offset is in the committed output exactly once, and nothing else is
    2 order        records of one source partition keep their order in each output partition
    3 identity     a batch was committed under one (producer id, epoch), which committed no other batch, and holds the
                   records that were planned for it
    4 visibility   what readers were shown is what the log says: everything committed, nothing aborted, in order
    5 ledger       batch ids follow one another, and each batch starts where the one before ended
    6 healed       no transaction is open, and readers get to the end

1 to 3 need to know where a record comes from (`core.provenance`); 4 to 6 hold for any topic. Everything is computed
over arrays: ten million records take seconds.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from spark_kafka_eos.core.evidence import Ledger, Offsets, PartitionLog, Seen, SourcePartition
from spark_kafka_eos.core.findings import Finding, Invariant, Violation, merged
from spark_kafka_eos.core.history import HistoryEntry, committed, follows
from spark_kafka_eos.core.origins import identity, once, order
from spark_kafka_eos.core.outcomes import Outcome
from spark_kafka_eos.core.provenance import MAGIC
from spark_kafka_eos.model import TopicPartition


def check(
    logs: Sequence[PartitionLog],
    *,
    source: Mapping[int, SourcePartition] | None = None,
    readers: Mapping[str, Mapping[TopicPartition, Seen]],
    history: Sequence[HistoryEntry] = (),
    ledger: Ledger | None = None,
) -> list[Finding]:
    """All six, in their order. `source` is the one topic whose records the output holds, by partition number."""
    done = committed(history)
    unchecked = _without_provenance(logs, source)
    if unchecked:
        provable = [Finding(invariant=each, unchecked=unchecked) for each in list(Invariant)[:3]]
    else:
        provable = [once(logs, source), order(logs), identity(logs, source, history, done)]
    return [*provable, _visibility(logs, readers), _ledger(logs, done, ledger, bool(unchecked)), _healed(logs, ledger)]


def _without_provenance(logs: Sequence[PartitionLog], source: Mapping[int, SourcePartition] | None) -> str:
    """Why 1 to 3 cannot be checked; a source that is named is a claim that they can."""
    if source is not None or any((log.committed_provenance["magic"] == MAGIC).any() for log in logs):
        return ""
    return "the values do not say where they come from" if any(len(log.offset) for log in logs) else "there is nothing"


# -- 4


def _visibility(logs: Sequence[PartitionLog], readers: Mapping[str, Mapping[TopicPartition, Seen]]) -> Finding:
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
    return Finding(
        invariant=Invariant.VISIBILITY, checked=checked, unit="readings", violations=merged(found), unchecked=unchecked
    )


def _compare(log: PartitionLog, reader: str, start: int, end: int, seen: Offsets) -> Iterator[Violation]:
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
    logs: Sequence[PartitionLog], done: Sequence[HistoryEntry], ledger: Ledger | None, unprovable: bool
) -> Finding:
    if ledger is None and not done:
        return Finding(invariant=Invariant.LEDGER, unit="batches", unchecked="neither history nor transactional.id")
    found = []
    for before, entry in itertools.pairwise(done):
        if not follows(before, entry):
            what = f"follows batch {before.batch_id} in the ledger"
            found.append(Violation(kind="batch ids", where=f"batch {entry.batch_id}", what=what))
        elif before.end is not None and entry.start is not None:
            found += _gaps(before.end, entry)
    newest = max(
        (int(log.committed_provenance["batch"].max()) for log in logs if len(log.committed_offset)), default=-1
    )
    if (
        ledger is not None
        and not done
        and not unprovable
        and newest > (-1 if ledger.batch_id is None else ledger.batch_id)
    ):
        stands = "has no entry" if ledger.batch_id is None else f"stands at batch {ledger.batch_id}"
        what = f"is in the committed output, yet the ledger {stands}"
        found.append(Violation(kind="ahead of the ledger", where=f"batch {newest}", what=what))
    if ledger is not None and done and ledger.batch_id != done[-1].batch_id:
        stands = "has no entry" if ledger.batch_id is None else f"stands at batch {ledger.batch_id}"
        what = f"was committed last, yet the ledger {stands}"
        found.append(Violation(kind="not in the ledger", where=f"batch {done[-1].batch_id}", what=what))
    return Finding(invariant=Invariant.LEDGER, checked=max(len(done), 1), unit="batches", violations=merged(found))


def _gaps(end: Mapping[TopicPartition, int], entry: HistoryEntry) -> Iterator[Violation]:
    assert entry.start is not None
    for tp in sorted(end.keys() & entry.start.keys()):
        if end[tp] != entry.start[tp]:
            what = f"starts at {tp}@{entry.start[tp]}, the batch before ended at {end[tp]}"
            yield Violation(kind="gap", where=f"batch {entry.batch_id}", what=what)


# -- 6


def _healed(logs: Sequence[PartitionLog], ledger: Ledger | None) -> Finding:
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
    return Finding(invariant=Invariant.HEALED, checked=len(logs), unit="partitions", violations=merged(found))
