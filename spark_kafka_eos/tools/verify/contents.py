"""Invariants 1 and 2 for values without provenance: compares keys and values of the output with those of the source.

Two records are equal if the digests of their keys and values are equal. The source's records, up to the offset that the
output must have reached, and the committed output are compared as multisets. If they are equal, nothing is lost or
duplicated, whatever wrote the output. If they differ, a job that filters or transforms cannot be distinguished from a
loss, so this is only a violation if the output is declared a plain copy. It is not a violation either if the difference
may be due to records that the topics no longer have (deleted, compacted), or to source records after that offset. What
the source no longer has of that which the query has read is not known to be in the output, whatever else is equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.wire.columns import Int64s
from spark_kafka_eos.tools.verify.evidence import Contents, PartitionLog, SourcePartition
from spark_kafka_eos.tools.verify.findings import CheckedInvariant, Invariant, Violation, merged
from spark_kafka_eos.tools.verify.origins import backwards

_EXAMPLES = 3
_GONE = "but some of the {} is deleted or compacted"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Records:
    """A topic's records, partition by partition. Equal records have the same number `content`; `partition` is an index
    into `partitions`.
    """

    partitions: Sequence[TopicPartition]
    partition: Int64s
    offset: Int64s
    content: Int64s

    def at(self, record: int) -> str:
        return f"{self.partitions[self.partition[record]]}@{self.offset[record]}"


def compare(
    logs: Sequence[PartitionLog], source: Mapping[int, SourcePartition], *, copy: bool
) -> tuple[CheckedInvariant, CheckedInvariant]:
    """Invariants 1 and 2. Needs the contents of all topics. `copy`: the output is declared a plain copy."""
    origins = [origin for _, origin in sorted(source.items())]
    offsets = [origin.start + np.flatnonzero(origin.visible) for origin in origins]
    number = numbered([*(origin.visible_contents for origin in origins), *(log.committed_contents for log in logs)])
    records = sum(map(len, offsets))
    of_source = _records([origin.partition for origin in origins], offsets, number[:records])
    output = _records([log.partition for log in logs], [log.committed_offset for log in logs], number[records:])
    due = np.concatenate([np.zeros(0, np.bool_), *(origin.due[origin.visible] for origin in origins)])
    source_is_whole = all(origin.whole for origin in origins)
    once = _once(
        of_source,
        due,
        output,
        copy=copy,
        source_is_whole=source_is_whole,
        output_is_whole=all(log.whole for log in logs),
    )
    in_order = _order(of_source, output, copy=copy, same=once.verdict == "holds", source_is_whole=source_is_whole)
    if vanished := sum(origin.vanished for origin in origins):
        gone = f"of the offsets that are compared, the source no longer has {vanished:,}: whether the output has what "
        gone += "was there is not known"
        once = replace(once, unchecked="; ".join(filter(None, (once.unchecked, gone))), note="")
    return once, in_order


def _records(partitions: Sequence[TopicPartition], offsets: Sequence[Int64s], content: Int64s) -> _Records:
    partition = np.repeat(np.arange(len(offsets)), [len(of_partition) for of_partition in offsets])
    offset = np.concatenate([np.zeros(0, np.int64), *offsets])
    return _Records(partitions=partitions, partition=partition, offset=offset, content=content)


def numbered(contents: Sequence[Contents]) -> Int64s:
    """A number from 0 on for each content, concatenated."""
    every = np.concatenate([np.zeros((0, 2), np.uint64), *contents])
    if not len(every):
        return np.zeros(0, np.int64)
    ascending = np.lexsort((every[:, 1], every[:, 0]))
    differs = (every[ascending[1:]] != every[ascending[:-1]]).any(axis=1)
    number = np.zeros(len(every), np.int64)
    number[ascending[1:]] = np.cumsum(differs)
    return number


# -- 1


def _once(
    source: _Records,
    due: NDArray[np.bool_],
    output: _Records,
    *,
    copy: bool,
    source_is_whole: bool,
    output_is_whole: bool,
) -> CheckedInvariant:
    required = source.content[due]
    # Of equal records, the last ones count as lost or duplicated.
    lost = np.flatnonzero(due)[_rank(required) >= _count(output.content, of=required)]
    rank = _rank(output.content)
    possible = rank < _count(source.content, of=output.content)
    later = np.flatnonzero(possible & (rank >= _count(required, of=output.content)))
    more = np.flatnonzero(~possible)
    violations: list[Violation] = []
    unchecked = []
    if copy:
        missing, surplus = list(_missing(source, lost, output)), list(_surplus(output, more, source))
        violations = (missing if output_is_whole else []) + (surplus if source_is_whole else [])
        if missing and not output_is_whole:
            unchecked.append(f"{missing[0]}; {_GONE.format('output')}")
        if surplus and not source_is_whole:
            unchecked.append(f"{surplus[0]}; {_GONE.format('source')}")
        if later.size:
            unchecked.append(f"{len(later):,} may be copies of records that the query is not known to have read")
    elif lost.size or later.size or more.size:
        unchecked.append(
            f"the values have no provenance, and the contents differ: {len(lost):,} of the source's records are not in "
            f"the output, {len(more):,} of the output's records are not in the source"
            + (f", {len(later):,} are in it, but the query is not known to have read them" if later.size else "")
            + ". The job may filter or transform records; set --copy if it does not"
        )
    return CheckedInvariant(
        invariant=Invariant.ONCE,
        checked=len(output.content),
        violations=merged(violations),
        unchecked="; ".join(unchecked),
        note="" if violations or unchecked else "keys and values are those of the source, compared by digest",
    )


def _count(content: Int64s, *, of: Int64s) -> Int64s:
    """How often each content in `of` is in `content`."""
    size = 1 + max((int(numbers.max()) for numbers in (content, of) if len(numbers)), default=0)
    return np.bincount(content, minlength=size)[of]


def _rank(content: Int64s) -> Int64s:
    """For each record, the number of equal records before it."""
    by_content = np.argsort(content, kind="stable")
    first = np.concatenate([[True], np.diff(content[by_content]) != 0])[: len(content)]
    place = np.arange(len(content))
    rank = np.empty(len(content), np.int64)
    rank[by_content] = place - np.maximum.accumulate(np.where(first, place, 0))
    return rank


def _missing(source: _Records, lost: Int64s, output: _Records) -> Iterator[Violation]:
    if lost.size:
        there = int((output.content == source.content[lost[0]]).sum())
        what = "is not in the committed output" + (f" often enough, only {there:,} equal" if there else "")
        yield _violation("missing", source, lost, what)


def _surplus(output: _Records, more: Int64s, source: _Records) -> Iterator[Violation]:
    in_source = _count(source.content, of=output.content[more]) > 0
    if (again := more[in_source]).size:
        content = output.content[again[0]]
        origin, first = (int(np.flatnonzero(records.content == content)[0]) for records in (source, output))
        what = f"is another copy of {source.at(origin)}, which is at {output.at(first)}"
        yield _violation("more than once", output, again, what)
    if (foreign := more[~in_source]).size:
        yield _violation("not in the source", output, foreign, "has a key and value that no source record has")


def _violation(kind: str, records: _Records, concerned: Int64s, what: str) -> Violation:
    where, *also = (records.at(record) for record in concerned[:_EXAMPLES].tolist())
    return Violation(kind=kind, where=where, what=what, count=len(concerned), also=tuple(also))


# -- 2


def _order(source: _Records, output: _Records, *, copy: bool, same: bool, source_is_whole: bool) -> CheckedInvariant:
    """The order of unique records, because only their origin is known. A source that is not whole may have had others
    that are equal.
    """
    if not (copy or same):
        return CheckedInvariant(invariant=Invariant.ORDER, unchecked="the contents differ from the source's")
    unique = [_count(records.content, of=output.content) == 1 for records in (source, output)]
    alone = np.flatnonzero(unique[0] & unique[1])
    by_content = np.argsort(source.content)
    origin = by_content[np.searchsorted(source.content, output.content[alone], sorter=by_content)]
    violations = []
    for number in range(len(output.partitions)):
        mine = output.partition[alone] == number
        record, of = alone[mine], origin[mine]
        pairs = backwards(source.partition[of], source.offset[of])
        if pairs:
            earlier, later = pairs[0]
            what = f"is a copy of {source.at(of[later])}, after that of a later record, "
            what += f"{source.at(of[earlier])}, at {output.at(record[earlier])}"
            where = output.at(record[later])
            violations.append(Violation(kind="out of order", where=where, what=what, count=len(pairs)))
    unchecked = []
    if violations and not copy:
        unchecked.append(f"{merged(violations)[0]}; the job may reorder records; set --copy if it does not")
    elif violations and not source_is_whole:
        unchecked.append(f"{merged(violations)[0]}; {_GONE.format('source')}")
    if others := len(output.content) - len(alone):
        unchecked.append(f"the source records of {others:,} records are ambiguous")
    return CheckedInvariant(
        invariant=Invariant.ORDER,
        checked=len(alone),
        violations=merged(violations) if copy and source_is_whole else (),
        unchecked="; ".join(unchecked),
    )
