"""Invariants 1 to 3, which need to know where each record comes from: once, in order, in one batch of one identity."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from spark_kafka_eos.core.evidence import Offsets, PartitionLog, SourcePartition
from spark_kafka_eos.core.findings import Finding, Invariant, Violation, merged
from spark_kafka_eos.core.history import HistoryEntry
from spark_kafka_eos.core.outcomes import Outcome
from spark_kafka_eos.core.provenance import MAGIC, Provenance

Identity = tuple[int, int]  # producer id, epoch
Source = Mapping[int, SourcePartition]


def once(logs: Sequence[PartitionLog], source: Source | None) -> Finding:
    found = [violation for log in logs for violation in _foreign(log, source)]
    checked = sum(len(log.committed_offset) for log in logs)
    if source is None:
        numbers = sorted({int(number) for log in logs for number in np.unique(log.committed_provenance["partition"])})
        for number in numbers:
            offset = np.concatenate([_from(log, number)["offset"] for log in logs]).astype(np.int64)
            unique, count = np.unique(offset, return_counts=True)
            found += _repeated(logs, f"source partition {number}", number, unique[count > 1])
        return Finding(invariant=Invariant.ONCE, checked=checked, violations=merged(found))
    for number, origin in sorted(source.items()):
        count = np.zeros(len(origin.visible), np.int64)
        for log in logs:
            at = _from(log, number)["offset"].astype(np.int64) - origin.start
            count += np.bincount(at[(at >= 0) & (at < len(count))], minlength=len(count))
        found += _repeated(logs, str(origin.partition), number, origin.start + np.flatnonzero(count > 1))
        due = np.arange(len(count)) < origin.end - origin.start
        if (missing := np.flatnonzero(origin.visible & (count == 0) & due)).size:
            lost = origin.start + int(missing[0])
            what = f"is not in the committed output{_elsewhere(logs, number, lost)}"
            found.append(Violation(kind="missing", where=f"{origin.partition}@{lost}", what=what, count=len(missing)))
    return Finding(invariant=Invariant.ONCE, checked=checked, violations=merged(found))


def _from(log: PartitionLog, number: int) -> Provenance:
    """The committed records that come from one source partition."""
    provenance = log.committed_provenance
    mine = (provenance["partition"] == number) & (provenance["magic"] == MAGIC)
    return provenance if mine.all() else provenance[mine]


def _foreign(log: PartitionLog, source: Source | None) -> Iterator[Violation]:
    """Committed records that no source record is the origin of."""
    provenance = log.committed_provenance
    bare = provenance["magic"] != MAGIC
    if (found := np.flatnonzero(bare)).size:
        what = "does not say where it comes from"
        yield Violation(kind="without provenance", where=log.at(found[0]), what=what, count=len(found))
    if source is None:
        return
    wrong = ~bare
    for number, origin in source.items():
        mine = np.flatnonzero(provenance["partition"] == number)
        at = provenance["offset"][mine].astype(np.int64) - origin.start
        inside = (at >= 0) & (at < len(origin.visible))
        at[~inside] = 0
        wrong[mine[inside & (origin.visible[at] if len(origin.visible) else False)]] = False
    if (found := np.flatnonzero(wrong)).size:
        what = f"is a copy of {_origin(provenance[found[0]])}, which readers of the source cannot see"
        yield Violation(kind="not in the source", where=log.at(found[0]), what=what, count=len(found))


def _repeated(logs: Sequence[PartitionLog], topic: str, number: int, offsets: Offsets) -> Iterator[Violation]:
    """One violation for source offsets that are in the output more than once, where the first's second copy is."""
    if not offsets.size:
        return
    copies = _copies(logs, number, int(offsets[0]), Outcome.COMMITTED)
    what = f"is one more copy of {topic}@{offsets[0]}, which is at {copies[0]}"
    yield Violation(kind="more than once", where=copies[1], what=what, count=len(offsets))


def _elsewhere(logs: Sequence[PartitionLog], number: int, offset: int) -> str:
    """Where copies are that are not committed."""
    kinds = ((Outcome.ABORTED, "aborted"), (Outcome.OPEN, "in an open transaction"))
    where = [f"{at} ({name})" for kind, name in kinds for at in _copies(logs, number, offset, kind)]
    return f", only at {', '.join(where[:3])}" if where else ""


def _copies(logs: Sequence[PartitionLog], number: int, offset: int, outcome: Outcome) -> list[str]:
    """Where the records of this outcome are that come from one source offset: by batch, then by place."""
    found = []
    for log in logs:
        same = (log.provenance["offset"] == offset) & (log.provenance["partition"] == number)
        same &= (log.provenance["magic"] == MAGIC) & (log.outcomes.of[log.batch_of] == outcome)
        found += [(int(log.provenance["batch"][i]), f"{log.partition}@{log.offset[i]}") for i in np.flatnonzero(same)]
    return [where for _, where in sorted(found, key=lambda each: each[0])]


def _origin(record: np.void) -> str:
    return f"offset {record['offset']} of source partition {record['partition']} (batch {record['batch']})"


def order(logs: Sequence[PartitionLog]) -> Finding:
    found = []
    for log in logs:
        provenance = log.committed_provenance
        number = provenance["partition"].astype(np.int64)
        if number.size and int(number.min()) >= 0 and int(number.max()) < 1 << 16:
            number = number.astype(np.uint16)  # which numpy sorts by radix
        by_source = np.argsort(number, kind="stable")
        offset = provenance["offset"].astype(np.int64)[by_source]
        number = number[by_source]
        back = np.flatnonzero((number[1:] == number[:-1]) & (offset[1:] < offset[:-1]))
        if back.size:
            earlier, later = by_source[back], by_source[back + 1]
            first = int(np.argmin(later))
            what = f"is {_origin(provenance[later[first]])}, behind a later one, offset "
            what += f"{provenance['offset'][earlier[first]]} at {log.at(earlier[first])}"
            found.append(Violation(kind="out of order", where=log.at(later[first]), what=what, count=len(back)))
    checked = sum(len(log.committed_offset) for log in logs)
    return Finding(invariant=Invariant.ORDER, checked=checked, violations=merged(found))


def identity(
    logs: Sequence[PartitionLog],
    source: Source | None,
    history: Sequence[HistoryEntry],
    done: Sequence[HistoryEntry],
) -> Finding:
    first: dict[tuple[int, Identity], str] = {}  # where a batch's first record under an identity is
    counts: dict[int, int] = {}
    for log in logs:
        for batch, identity, records, where in _runs(log):
            first.setdefault((batch, identity), where)
            counts[batch] = counts.get(batch, 0) + records
    found = [*_several(first, done), *_given_up(first, history), *_other_identity(first, done)]
    if source is not None:
        found += [violation for log in logs for violation in _out_of_plan(log, source, done)]
        found += _wrong_counts(counts, source, done)
    return Finding(invariant=Invariant.IDENTITY, checked=len(counts), unit="batches", violations=merged(found))


def _runs(log: PartitionLog) -> Iterator[tuple[int, Identity, int, str]]:
    """Neighbours of one batch and one identity: batch, identity, records, where the first is."""
    batch = log.committed_provenance["batch"].astype(np.int64)
    if not batch.size:
        return
    record_batch = log.batch_of[log.committed]
    producer, epoch = log.batches.producer_id[record_batch], log.batches.epoch[record_batch]
    change = (batch[1:] != batch[:-1]) | (producer[1:] != producer[:-1]) | (epoch[1:] != epoch[:-1])
    starts = np.concatenate([[0], np.flatnonzero(change) + 1])
    records = np.diff(np.append(starts, len(batch)))
    for at, number in zip(starts.tolist(), records.tolist(), strict=True):
        yield int(batch[at]), (int(producer[at]), int(epoch[at])), number, log.at(at)


def _several(first: Mapping[tuple[int, Identity], str], done: Sequence[HistoryEntry]) -> Iterator[Violation]:
    """Batches under several identities, and identities of several batches.

    Batches of one number are one batch, unless they were committed by several queries, one after the other.
    """
    queries: dict[int, set[str]] = {}
    for entry in done:
        queries.setdefault(entry.batch_id, set()).add(entry.query_id)
    batches: dict[int, list[Identity]] = {}
    identities: dict[Identity, list[int]] = {}
    for batch, identity in first:
        batches.setdefault(batch, []).append(identity)
        identities.setdefault(identity, []).append(batch)
    for batch, under in batches.items():
        if len(under) > max(1, len(queries.get(batch, ()))):
            what = f"belongs to batch {batch} under {_name(under[1])}, which was committed under {_name(under[0])}, too"
            yield Violation(kind="several identities", where=first[batch, under[1]], what=what)
    for identity, held in identities.items():
        if len(held) > 1 and identity[0] >= 0:
            what = f"was committed in batch {held[1]} under {_name(identity)}, which had served batch {held[0]}"
            yield Violation(kind="several batches", where=first[held[1], identity], what=what)


def _given_up(first: Mapping[tuple[int, Identity], str], history: Sequence[HistoryEntry]) -> Iterator[Violation]:
    """What a driver aborted and is committed all the same."""
    aborted = {(entry.producer_id, entry.epoch) for entry in history if entry.verdict == "aborted"} - {(-1, -1)}
    for (batch, identity), where in first.items():
        if identity in aborted:
            what = f"was committed under {_name(identity)}, a try of batch {batch} that was given up"
            yield Violation(kind="given up", where=where, what=what)


def _other_identity(first: Mapping[tuple[int, Identity], str], done: Sequence[HistoryEntry]) -> Iterator[Violation]:
    """What is committed under an identity that its batch was not committed under."""
    noted: dict[int, list[Identity]] = {}
    for entry in done:
        if entry.producer_id >= 0:
            noted.setdefault(entry.batch_id, []).append((entry.producer_id, entry.epoch))
    for (batch, identity), where in first.items():
        if batch in noted and identity not in noted[batch]:
            what = f"belongs to batch {batch} under {_name(identity)}, but that was committed under "
            yield Violation(kind="other identity", where=where, what=what + _name(noted[batch][0]))


def _out_of_plan(log: PartitionLog, source: Source, done: Sequence[HistoryEntry]) -> Iterator[Violation]:
    """Records in another batch than the one that was to read them."""
    for number, origin in source.items():
        planned = np.full(len(origin.visible), -1, np.int64)
        for entry in done:
            start, end = _range(entry, origin)
            planned[start:end] = entry.batch_id
        provenance = log.committed_provenance
        mine = np.flatnonzero((provenance["partition"] == number) & (provenance["magic"] == MAGIC))
        at = provenance["offset"][mine].astype(np.int64) - origin.start
        inside = (at >= 0) & (at < len(planned))
        mine, at = mine[inside], at[inside]
        wrong = np.flatnonzero((planned[at] >= 0) & (planned[at] != provenance["batch"][mine]))
        if wrong.size:
            record = mine[wrong[0]]
            what = f"is {_origin(provenance[record])}, which was planned for batch {planned[at[wrong[0]]]}"
            yield Violation(kind="not as planned", where=log.at(record), what=what, count=len(wrong))


def _wrong_counts(counts: Mapping[int, int], source: Source, done: Sequence[HistoryEntry]) -> Iterator[Violation]:
    planned: dict[int, int] = {}
    for entry in done:
        if entry.start is not None and entry.end is not None:
            records = sum(int(origin.visible[slice(*_range(entry, origin))].sum()) for origin in source.values())
            planned[entry.batch_id] = planned.get(entry.batch_id, 0) + records
    for batch, records in planned.items():
        if counts.get(batch, 0) != records:
            what = f"has {counts.get(batch, 0)} records in the committed output, planned were {records}"
            yield Violation(kind="wrong count", where=f"batch {batch}", what=what)


def _range(entry: HistoryEntry, origin: SourcePartition) -> tuple[int, int]:
    """The positions in `origin.visible` that a batch was to read; nothing if nobody noted them."""
    if entry.start is None or entry.end is None or origin.partition not in entry.end:
        return 0, 0
    # A partition that was not there before the batch begins with it.
    start, end = entry.start.get(origin.partition, 0), entry.end[origin.partition]
    return max(0, start - origin.start), max(0, end - origin.start)


def _name(identity: Identity) -> str:
    return f"producer {identity[0]}, epoch {identity[1]}"
