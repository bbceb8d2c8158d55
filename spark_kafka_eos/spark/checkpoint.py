"""Reads a micro-batch from the query's checkpoint: its query id and its range of source offsets.

Spark writes `offsets/<batch>` before the batch runs, so the file exists when the batch is written, and a replay reads
the same offsets. A batch starts where the previous one ended. Our source records in the end of batch 0 where it starts;
others do not.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from spark_kafka_eos.appending.files import Files, files_at
from spark_kafka_eos.errors import CheckpointUnusable
from spark_kafka_eos.ledger.entry import digest
from spark_kafka_eos.micro_batch import MicroBatch, SourceRange
from spark_kafka_eos.source_offset import UNRESOLVED, SourceOffset
from spark_kafka_eos.spark.offset_log import RESTORE, PlannedBatch, ReadFile, parsed, planned_batch

__all__ = [
    "ReadFile",
    "keeps_state",
    "micro_batch",
    "next_batch",
    "next_batch_at",
    "starts_where_the_query_began",
]


# When Spark plans the first batch of a query with a stateful operator, it writes one of these files: in the usual
# format, or in that of transformWithState (OperatorStateMetadata).
_STATE = ("state/0/_metadata/metadata", "state/0/_metadata/v2/0")


def micro_batch(read: ReadFile, batch_id: int, first_start: Sequence[str] | None = None) -> MicroBatch:
    """The identity and range of `batch_id`. `first_start` is the JSON of each source's first offset in the order of the
    plan, if the caller knows it.

    Raises CheckpointUnusable if the checkpoint is damaged or has an unknown format.
    """
    planned = planned_batch(read, batch_id)
    before = planned_batch(read, batch_id - 1) if batch_id > 0 else None
    ends = {name: SourceOffset.of(end) for name, end in planned.ends.items()}
    starts = _first_starts(first_start, planned, ends) if before is None else _starts(before, planned)
    sources = tuple(None if end is None else _range(starts.get(name), end) for name, end in ends.items())
    return MicroBatch(
        query_id=_query_id(read),
        batch_id=batch_id,
        digest=_digest(before, planned, only_kafka=None not in sources),
        sources=sources,
        stateful=keeps_state(read) if batch_id == 0 else None,
    )


def keeps_state(read: ReadFile) -> bool:
    """Whether the query keeps state in its checkpoint."""
    return any(read(name) is not None for name in _STATE)


def starts_where_the_query_began(read: ReadFile, batch: MicroBatch) -> bool:
    """Whether the batches before this one read nothing; false if that is unknown, because Spark has removed the first
    one's file, or a source does not record where it starts, or is not Kafka, or a topic was created again.
    """
    if read("offsets/0") is None:
        return False
    first = micro_batch(read, 0).sources
    return len(batch.sources) == len(first) and all(map(_starts_alike, batch.sources, first))


def _starts_alike(source: SourceRange | None, first: SourceRange | None) -> bool:
    """Whether both start at the same offsets of the same topics, as far as their ids are known."""
    if source is None or first is None or source.start is None or source.start != first.start:
        return False
    ids, first_ids = (read.start_origin.topic_ids if read.start_origin else {} for read in (source, first))
    return all(ids[name] == first_ids[name] for name in ids.keys() & first_ids.keys())


def next_batch_at(location: str | None) -> tuple[MicroBatch | None, bool]:
    """`next_batch` of the query with this checkpointLocation; None if it is None. Raises CheckpointUnusable."""
    if location is None:
        return None, False
    try:
        return next_batch(files_at(location, "checkpointLocation"))
    except OSError as error:
        raise CheckpointUnusable(f"the checkpoint {location!r} cannot be read: {error}") from error


def next_batch(files: Files) -> tuple[MicroBatch | None, bool]:
    """The batch that the query will run next, and whether Spark has planned it; None if nothing is planned yet.

    An unplanned one starts where the last one ended; its own end and digest are not known yet, so it is empty. Raises
    CheckpointUnusable.
    """
    planned = [int(name) for name in files.names("offsets") if name.isdigit()]
    if not planned:
        return None, False
    last = max(planned)
    batch = micro_batch(files.read_text, last)
    if files.read_text(f"commits/{last}") is None:
        return batch, True
    sources = tuple(
        source and replace(source, start=source.end, start_origin=source.origin, sinks=()) for source in batch.sources
    )
    return replace(batch, batch_id=last + 1, digest="", sources=sources), False


def _digest(before: PlannedBatch | None, planned: PlannedBatch, *, only_kafka: bool) -> str:
    """The digest of exactly what the batch's files contain: for batch 0 only its end, because a restarted query
    determines its start again.

    Offsets of a Kafka source identify records. Those of other sources may only count: if an older copy of the
    checkpoint is restored and batch 7 is planned again, a file source's `{"logOffset":7}` can mean other files. So with
    such a source, the digest includes the time of planning, which is the same in a replay and different in a new plan.
    """
    batch_range = {"start": None if before is None else _canonical(before), "end": _canonical(planned)}
    if not only_kafka:
        batch_range["planned"] = planned.planned_at
    return digest(batch_range)


def _canonical(planned: PlannedBatch) -> object:
    """In v1, which has no names, a list. Never change this or `_digest`: a batch that the previous release committed
    would get another digest.
    """
    return planned.ends if planned.named else [*planned.ends.values()]


def _starts(before: PlannedBatch, planned: PlannedBatch) -> Mapping[str, SourceOffset | None]:
    """The sources' previous offsets by their current names, as far as known."""
    ends = before.ends
    if before.named != planned.named and len(ends) == len(planned.ends) == 1:
        ends = dict(zip(planned.ends, ends.values(), strict=True))
    return {name: SourceOffset.of(end) for name, end in ends.items()}


def _first_starts(
    first_start: Sequence[str] | None, planned: PlannedBatch, ends: Mapping[str, SourceOffset | None]
) -> Mapping[str, SourceOffset | None]:
    """The sources' offsets at the start of batch 0, as recorded with its end or else as the plan has them.

    Empty if they are unknown: v2 does not keep the order of the plan, so several starts cannot be assigned to sources.
    """
    # The start is in the end, from which its topics' ids were determined.
    recorded = {
        name: SourceOffset(offsets=end.start, origin=end.origin)
        for name, end in ends.items()
        if end is not None and end.start is not None
    }
    if recorded.keys() == ends.keys():
        return recorded
    if first_start is None or len(first_start) != len(ends):
        return {}
    starts = [parsed(start) for start in first_start]
    if planned.named and len(starts) > 1 and any(start != UNRESOLVED for start in starts):
        return {}
    # An earlier release of our source recorded no start: if it was unresolved, the batch starts where it ends.
    pairs = zip(starts, ends.items(), strict=True)
    return {name: end if start == UNRESOLVED else SourceOffset.of(start) for start, (name, end) in pairs} | recorded


def _query_id(read: ReadFile) -> str:
    text = read("metadata")
    try:
        return str(json.loads(text or "")["id"])
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointUnusable(
            f"the checkpoint's file 'metadata' does not contain a query id (its content is {text!r})", action=RESTORE
        ) from error


def _range(start: SourceOffset | None, end: SourceOffset) -> SourceRange:
    return SourceRange(
        start=None if start is None else start.offsets,
        end=end.offsets,
        start_origin=None if start is None else start.origin,
        origin=end.origin,
        sinks=end.sinks,
    )
