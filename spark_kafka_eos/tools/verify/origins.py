"""Invariants 1 to 3 for values with provenance: once, in order, in one batch with one identity.

Each value of the log has provenance; `verify.contents` is for values without.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from spark_kafka_eos.kafka.wire.columns import Int64s
from spark_kafka_eos.tools.verify.evidence import PartitionLog, SourcePartition
from spark_kafka_eos.tools.verify.findings import CheckedInvariant, Invariant, Violation, merged
from spark_kafka_eos.tools.verify.history import HistoryEntry
from spark_kafka_eos.tools.verify.outcomes import Outcome

Identity = tuple[int, int]  # producer id, epoch
Source = Mapping[int, SourcePartition]


def once(logs: Sequence[PartitionLog], source: Source | None) -> CheckedInvariant:
    checked = sum(len(log.committed_offset) for log in logs)
    violations: list[Violation] = []
    if source is None:
        for number in np.unique([n for log in logs for n in np.unique(log.committed_provenance["partition"])]).tolist():
            violations += _repeated(logs, f"source partition {number}", number, _more_than_once(_offsets(logs, number)))
        return CheckedInvariant(invariant=Invariant.ONCE, checked=checked, violations=merged(violations))
    violations += [violation for log in logs for violation in _foreign(log, source)]
    whole = all(log.whole for log in logs)
    unchecked: list[Violation] = []
    of_gone = vanished = without_copy = 0
    for number, origin in sorted(source.items()):
        offset = _offsets(logs, number)
        last = origin.start + len(origin.visible)
        before, after = offset[offset < origin.start], offset[(offset >= last) & (offset < last + origin.lost_end)]
        at = offset[(offset >= origin.start) & (offset < last)] - origin.start
        count = np.bincount(at, minlength=len(origin.visible))
        in_reach = origin.start + np.flatnonzero(count > 1)
        twice = np.concatenate([_more_than_once(before), in_reach, _more_than_once(after)])
        violations += _repeated(logs, str(origin.partition), number, twice)
        if (missing := np.flatnonzero(origin.due & (count == 0))).size:
            lost = origin.start + int(missing[0])
            what = f"is not in the committed output{_elsewhere(logs, number, lost)}"
            violation = Violation(kind="missing", where=f"{origin.partition}@{lost}", what=what, count=len(missing))
            (violations if whole else unchecked).append(violation)
        of_gone += len(before) + len(after) + int(count[origin.gone - origin.start].sum())
        vanished += origin.vanished
        without_copy += origin.vanished - origin.of_vanished(offset)
    remarks = [f"{merged(unchecked)[0]}; but some of the output is deleted or compacted"] if unchecked else []
    if without_copy:
        remarks.append(
            f"of the offsets that are compared, the source no longer has {vanished:,}, and the output has no copy of "
            f"{without_copy:,} of these: whether they had records is not known"
        )
    return CheckedInvariant(
        invariant=Invariant.ONCE,
        checked=checked,
        violations=merged(violations),
        unchecked="; ".join(remarks),
        note=f"{of_gone:,} are copies of records that the source no longer has" if of_gone else "",
    )


def _offsets(logs: Sequence[PartitionLog], number: int) -> Int64s:
    """The source offsets of the committed records that come from one source partition."""
    provenance = [log.committed_provenance for log in logs]
    return np.concatenate([rows["offset"][rows["partition"] == number] for rows in provenance]).astype(np.int64)


def _more_than_once(offsets: Int64s) -> Int64s:
    unique, count = np.unique(offsets, return_counts=True)
    return unique[count > 1]


def _foreign(log: PartitionLog, source: Source) -> Iterator[Violation]:
    """Committed records that do not come from a source record, not even from one that the source lost."""
    provenance = log.committed_provenance
    wrong = np.ones(len(provenance), np.bool_)
    for number, origin in source.items():
        mine = np.flatnonzero(provenance["partition"] == number)
        at = provenance["offset"][mine].astype(np.int64) - origin.start
        possible = origin.visible.copy()
        possible[origin.gone - origin.start] = True
        inside = (at >= 0) & (at < len(possible))
        wrong[mine[inside][possible[at[inside]]]] = False
        wrong[mine[(at < 0) & (at >= -origin.start)]] = False
        wrong[mine[(at >= len(possible)) & (at < len(possible) + origin.lost_end)]] = False
    if (places := np.flatnonzero(wrong)).size:
        what = f"is a copy of {_origin(provenance[places[0]])}, which readers of the source cannot see"
        yield Violation(kind="not in the source", where=log.at(places[0]), what=what, count=len(places))


def _repeated(logs: Sequence[PartitionLog], topic: str, number: int, offsets: Int64s) -> Iterator[Violation]:
    """One violation for source offsets that are in the output more than once, at the second copy of the first of
    them.
    """
    if not offsets.size:
        return
    copies = _copies(logs, number, int(offsets[0]), Outcome.COMMITTED)
    what = f"is another copy of {topic}@{offsets[0]}, which is at {copies[0]}"
    yield Violation(kind="more than once", where=copies[1], what=what, count=len(offsets))


def _elsewhere(logs: Sequence[PartitionLog], number: int, offset: int) -> str:
    """Where uncommitted copies are."""
    kinds = ((Outcome.ABORTED, "aborted"), (Outcome.OPEN, "in an open transaction"))
    where = [f"{at} ({name})" for kind, name in kinds for at in _copies(logs, number, offset, kind)]
    return f", only at {', '.join(where[:3])}" if where else ""


def _copies(logs: Sequence[PartitionLog], number: int, offset: int, outcome: Outcome) -> list[str]:
    """Where the records with this outcome are that come from one source offset, by batch and place."""
    copies = []
    for log in logs:
        same = (log.provenance["offset"] == offset) & (log.provenance["partition"] == number)
        same &= log.outcomes.of[log.batch_of] == outcome
        copies += [(int(log.provenance["batch"][i]), f"{log.partition}@{log.offset[i]}") for i in np.flatnonzero(same)]
    return [where for _, where in sorted(copies, key=lambda copy: copy[0])]


def _origin(record: np.void) -> str:
    return f"offset {record['offset']} of source partition {record['partition']} (batch {record['batch']})"


def order(logs: Sequence[PartitionLog]) -> CheckedInvariant:
    """Partitions with dead letters are left out: a record that cannot be written is found later than one that cannot be
    decoded.
    """
    violations = []
    ordered = [log for log in logs if not log.dead_letters]
    for log in ordered:
        provenance = log.committed_provenance
        pairs = backwards(provenance["partition"].astype(np.int64), provenance["offset"].astype(np.int64))
        if pairs:
            earlier, later = pairs[0]
            what = f"is {_origin(provenance[later])}, after a later record, offset "
            what += f"{provenance['offset'][earlier]} at {log.at(earlier)}"
            violations.append(Violation(kind="out of order", where=log.at(later), what=what, count=len(pairs)))
    checked = sum(len(log.committed_offset) for log in ordered)
    note = "" if len(ordered) == len(logs) else "dead letters are in no order"
    return CheckedInvariant(invariant=Invariant.ORDER, checked=checked, violations=merged(violations), note=note)


def backwards(number: Int64s, offset: Int64s) -> list[tuple[int, int]]:
    """Pairs of consecutive records of a source partition, in log order, whose second has a lower offset; sorted by the
    second. Arguments are the records' source partitions and offsets; results are their indexes.
    """
    if number.size and int(number.min()) >= 0 and int(number.max()) < 1 << 16:
        number = number.astype(np.uint16)  # which numpy sorts by radix
    by_source = np.argsort(number, kind="stable")
    offset, number = offset[by_source], number[by_source]
    back = np.flatnonzero((number[1:] == number[:-1]) & (offset[1:] < offset[:-1]))
    pairs = zip(by_source[back].tolist(), by_source[back + 1].tolist(), strict=True)
    return sorted(pairs, key=lambda pair: pair[1])


def identity(
    logs: Sequence[PartitionLog],
    source: Source | None,
    history: Sequence[HistoryEntry],
    done: Sequence[HistoryEntry],
) -> CheckedInvariant:
    first: dict[tuple[int, Identity], str] = {}  # where a batch's first record with an identity is
    counts: dict[int, int] = {}
    for log in logs:
        for batch, identity, records, where in _runs(log):
            first.setdefault((batch, identity), where)
            counts[batch] = counts.get(batch, 0) + records
    torn = list(_several_identities(first, done))
    anew = bool(torn) and not done and begins_anew(logs)
    violations = [] if anew else torn
    violations += [*_several_batches(first), *_given_up(first, history), *_other_identity(first, done)]
    unchecked = ["batch ids restart, as for another query; a history is needed to distinguish them"] if anew else []
    if source is not None:
        violations += [violation for log in logs for violation in _out_of_plan(log, source, done)]
        wrong, unknown = _compare_counts(counts, source, done, output_is_whole=all(log.whole for log in logs))
        violations += wrong
        if unknown:
            unchecked.append(
                f"of {unknown:,} of {len(done):,} batches it is not known whether all planned records are there: some "
                "of the source or of the output is deleted or compacted"
            )
    return CheckedInvariant(
        invariant=Invariant.IDENTITY,
        checked=len(counts),
        unit="batches",
        violations=merged(violations),
        unchecked="; ".join(unchecked),
    )


def begins_anew(logs: Sequence[PartitionLog]) -> bool:
    """Whether batch 0 continues after later batches in some source partition: then it is another query's."""
    ends: dict[int, int] = {}
    starts: dict[int, int] = {}
    for log in logs:
        provenance = log.committed_provenance
        for batch_0, bounds, pick in ((True, ends, np.max), (False, starts, np.min)):
            some = provenance[(provenance["batch"] == 0) == batch_0]
            for number in np.unique(some["partition"]).tolist():
                at = int(pick(some["offset"][some["partition"] == number]))
                bounds[number] = int(pick([at, bounds.get(number, at)]))
    return any(ends[number] > starts[number] for number in ends.keys() & starts.keys())


def _runs(log: PartitionLog) -> Iterator[tuple[int, Identity, int, str]]:
    """Runs of records with the same batch and identity: batch, identity, number of records, place of the first."""
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


def _several_identities(first: Mapping[tuple[int, Identity], str], done: Sequence[HistoryEntry]) -> Iterator[Violation]:
    """Batches with the same id are one batch, unless several queries committed them one after the other."""
    queries: dict[int, set[str]] = {}
    for entry in done:
        queries.setdefault(entry.batch_id, set()).add(entry.query_id)
    batches: dict[int, list[Identity]] = {}
    for batch, identity in first:
        batches.setdefault(batch, []).append(identity)
    for batch, under in batches.items():
        if len(under) > max(1, len(queries.get(batch, ()))):
            what = f"belongs to batch {batch} under {_name(under[1])}, which was also committed under {_name(under[0])}"
            yield Violation(kind="several identities", where=first[batch, under[1]], what=what)


def _several_batches(first: Mapping[tuple[int, Identity], str]) -> Iterator[Violation]:
    identities: dict[Identity, list[int]] = {}
    for batch, identity in first:
        identities.setdefault(identity, []).append(batch)
    for identity, (first_batch, *others) in identities.items():
        if others and identity[0] >= 0:
            what = (
                f"was committed in batch {others[0]} under {_name(identity)}, which was already used for batch "
                f"{first_batch}"
            )
            yield Violation(kind="several batches", where=first[others[0], identity], what=what)


def _given_up(first: Mapping[tuple[int, Identity], str], history: Sequence[HistoryEntry]) -> Iterator[Violation]:
    """Attempts that a driver aborted, but that are committed."""
    aborted = {(entry.producer_id, entry.epoch) for entry in history if entry.event == "aborted"} - {(-1, -1)}
    for (batch, identity), where in first.items():
        if identity in aborted:
            what = f"was committed under {_name(identity)}, an aborted attempt at batch {batch}"
            yield Violation(kind="given up", where=where, what=what)


def _other_identity(first: Mapping[tuple[int, Identity], str], done: Sequence[HistoryEntry]) -> Iterator[Violation]:
    """Records that are committed under another identity than their batch."""
    noted: dict[int, list[Identity]] = {}
    for entry in done:
        if entry.producer_id >= 0:
            noted.setdefault(entry.batch_id, []).append((entry.producer_id, entry.epoch))
    for (batch, identity), where in first.items():
        if batch in noted and identity not in noted[batch]:
            what = f"belongs to batch {batch} under {_name(identity)}, but that was committed under "
            yield Violation(kind="other identity", where=where, what=what + _name(noted[batch][0]))


def _out_of_plan(log: PartitionLog, source: Source, done: Sequence[HistoryEntry]) -> Iterator[Violation]:
    """Records in another batch than the one for which they were planned."""
    for number, origin in source.items():
        planned = np.full(len(origin.visible), -1, np.int64)
        for entry in done:
            start, end = _range(entry, origin)
            planned[start:end] = entry.batch_id
        provenance = log.committed_provenance
        mine = np.flatnonzero(provenance["partition"] == number)
        at = provenance["offset"][mine].astype(np.int64) - origin.start
        inside = (at >= 0) & (at < len(planned))
        mine, at = mine[inside], at[inside]
        wrong = np.flatnonzero((planned[at] >= 0) & (planned[at] != provenance["batch"][mine]))
        if wrong.size:
            record = mine[wrong[0]]
            what = f"is {_origin(provenance[record])}, which was planned for batch {planned[at[wrong[0]]]}"
            yield Violation(kind="not as planned", where=log.at(record), what=what, count=len(wrong))


def _compare_counts(
    counts: Mapping[int, int], source: Source, done: Sequence[HistoryEntry], *, output_is_whole: bool
) -> tuple[list[Violation], int]:
    """Batches with another number of records than was planned; and of how many it is not known, because what is gone of
    the source or the output may have been records.
    """
    planned: dict[int, int] = {}
    gone: dict[int, int] = {}
    for entry in done:
        if entry.start is not None and entry.end is not None:
            records = sum(int(origin.visible[slice(*_range(entry, origin))].sum()) for origin in source.values())
            planned[entry.batch_id] = planned.get(entry.batch_id, 0) + records
            gone[entry.batch_id] = gone.get(entry.batch_id, 0) + sum(_gone(entry, origin) for origin in source.values())
    violations, unknown = [], 0
    for batch, records in planned.items():
        found, most = counts.get(batch, 0), records + gone[batch]
        if found > most or (found < records and output_is_whole):
            what = f"has {found} records in the committed output, but {records} were planned"
            violations.append(Violation(kind="wrong count", where=f"batch {batch}", what=what))
        elif found < most:
            unknown += 1
    return violations, unknown


def _gone(entry: HistoryEntry, origin: SourcePartition) -> int:
    """How many of the offsets that were planned for a batch the source no longer has."""
    if entry.start is None or entry.end is None or origin.partition not in entry.end:
        return 0
    start, end = entry.start.get(origin.partition, 0), entry.end[origin.partition]
    last = origin.start + len(origin.visible)
    compacted = int(((origin.gone >= start) & (origin.gone < end)).sum())
    return max(0, min(end, origin.start) - start) + max(0, end - max(start, last)) + compacted


def _range(entry: HistoryEntry, origin: SourcePartition) -> tuple[int, int]:
    """The positions in `origin.visible` that were planned for a batch; empty if they are unknown."""
    if entry.start is None or entry.end is None or origin.partition not in entry.end:
        return 0, 0
    # A partition that did not exist before starts with this batch.
    start, end = entry.start.get(origin.partition, 0), entry.end[origin.partition]
    return max(0, start - origin.start), max(0, end - origin.start)


def _name(identity: Identity) -> str:
    return f"producer {identity[0]}, epoch {identity[1]}"
