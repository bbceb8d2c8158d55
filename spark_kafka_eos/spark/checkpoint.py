"""Reads a micro-batch from the query's checkpoint: its query id and its range of source offsets.

Spark writes `offsets/<batch>` before the batch runs, so the file exists when the batch is written, and a replay reads
the same offsets. A batch starts where the previous one ended. Our source records in the end of batch 0 where it starts;
others do not.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

from spark_kafka_eos.appending.files import Files, files_at
from spark_kafka_eos.errors import CheckpointUnusable
from spark_kafka_eos.kafka.partitions import Offsets, offsets_from_json, offsets_to_json
from spark_kafka_eos.ledger.entry import digest
from spark_kafka_eos.micro_batch import MicroBatch, SourceRange
from spark_kafka_eos.source_offset import UNRESOLVED, Origin, recorded_origin, recorded_sinks, recorded_start
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
    starts = _first_starts(first_start, planned) if before is None else _starts(before, planned)
    sources = tuple(_range(starts.get(name), end) for name, end in planned.ends.items())
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
    one's file, or a source does not record where it starts, or is not Kafka.
    """
    if read("offsets/0") is None:
        return False
    starts, first = (
        [source and source.start for source in planned.sources] for planned in (batch, micro_batch(read, 0))
    )
    return None not in starts and starts == first


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


def _starts(before: PlannedBatch, planned: PlannedBatch) -> Mapping[str, object]:
    """The sources' previous offsets by their current names, as far as known."""
    if before.named == planned.named:
        return {name: before.ends[name] for name in planned.ends if name in before.ends}
    if len(before.ends) == len(planned.ends) == 1:
        return dict(zip(planned.ends, before.ends.values(), strict=True))
    return before.ends


def _first_starts(first_start: Sequence[str] | None, planned: PlannedBatch) -> Mapping[str, object]:
    """The sources' offsets at the start of batch 0, as recorded with its end or else as the plan has them.

    Empty if they are unknown: v2 does not keep the order of the plan, so several starts cannot be assigned to sources.
    """
    recorded = {name: _recorded(end) for name, end in planned.ends.items()}
    if None not in recorded.values():
        return recorded
    if first_start is None or len(first_start) != len(planned.ends):
        return {}
    starts = [parsed(start) for start in first_start]
    if planned.named and len(starts) > 1 and any(start != UNRESOLVED for start in starts):
        return {}
    # An earlier release of our source recorded no start: if it was unresolved, the batch starts where it ends.
    pairs = zip(starts, planned.ends.items(), strict=True)
    return {name: end if start == UNRESOLVED else start for start, (name, end) in pairs} | {
        name: start for name, start in recorded.items() if start is not None
    }


def _recorded(end: object) -> object | None:
    start = recorded_start(end) if isinstance(end, Mapping) else None
    return None if start is None else offsets_to_json(start)


def _query_id(read: ReadFile) -> str:
    text = read("metadata")
    try:
        return str(json.loads(text or "")["id"])
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointUnusable(
            f"the checkpoint's file 'metadata' does not contain a query id (its content is {text!r})", action=RESTORE
        ) from error


def _range(start: object, end: object) -> SourceRange | None:
    offsets = _offsets(end)
    if offsets is None:
        return None
    origin, recorded = _origin(end), cast("Mapping[str, object]", end)
    # The start of batch 0 is in its end, from which it was determined.
    start_origin = origin if recorded_start(recorded) is not None else _origin(start)
    sinks = recorded_sinks(recorded)
    return SourceRange(start=_offsets(start), end=offsets, start_origin=start_origin, origin=origin, sinks=sinks)


def _origin(offsets: object) -> Origin | None:
    return recorded_origin(offsets) if isinstance(offsets, Mapping) else None


def _offsets(source: object) -> Offsets | None:
    """Offsets of the form `{topic: {partition: offset}}`, as our source and the built-in one write them; None for any
    other.
    """
    if not isinstance(source, Mapping) or not all(map(_are_of_a_topic, source.values())):
        return None
    return offsets_from_json(source)


def _are_of_a_topic(partitions: object) -> bool:
    return isinstance(partitions, Mapping) and all(
        key.isdigit() and isinstance(offset, int) for key, offset in partitions.items()
    )
