"""What a query's checkpoint says of a micro-batch: its query id and the source offsets it covers.

Spark writes `offsets/<batch>` before the batch runs, so it is there when the batch is written, and a replay finds the
same. The start of a batch is the end of the one before; where a source starts at first, no file says.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from spark_kafka_eos.core.ledger import digest
from spark_kafka_eos.errors import CheckpointUnusable
from spark_kafka_eos.model import UNRESOLVED, MicroBatch, Offsets, SourceRange, TopicPartition, offsets_from_json
from spark_kafka_eos.writing.offset_log import RESTORE, PlannedBatch, ReadFile, parsed, planned_batch

__all__ = ["ReadFile", "micro_batch"]


def micro_batch(read: ReadFile, batch_id: int, first_start: Sequence[str] | None = None) -> MicroBatch:
    """The identity and range of `batch_id`. `first_start` is the JSON of each source's first offset in the order of the
    plan, where the caller knows it.

    Raises KafkaEosError for a checkpoint that is damaged or of an unknown format.
    """
    planned = planned_batch(read, batch_id)
    before = planned_batch(read, batch_id - 1) if batch_id > 0 else None
    starts = _first_starts(first_start, planned) if before is None else _starts(before, planned)
    sources = tuple(_range((starts or {}).get(name), end) for name, end in planned.ends.items())
    return MicroBatch(
        query_id=_query_id(read),
        batch_id=batch_id,
        digest=_digest(before, planned, only_kafka=None not in sources),
        start=None if starts is None else _merged(_offsets(start) or {} for start in starts.values()),
        end=_merged(source.end for source in sources if source is not None),
        sources=sources,
    )


def _digest(before: PlannedBatch | None, planned: PlannedBatch, *, only_kafka: bool) -> str:
    """Of exactly what the files of the batch hold: for batch 0 only its end, since a restarted query determines its
    start anew.

    Offsets of a Kafka source say which records they span. Those of another may only count: where an older copy of the
    checkpoint is restored and batch 7 planned anew, a file source's `{"logOffset":7}` is the same for other files. So
    beside such a source the instant of the plan counts, too: it stays in a replay and differs in a new plan.
    """
    batch_range = {"start": None if before is None else _canonical(before), "end": _canonical(planned)}
    if not only_kafka:
        batch_range["planned"] = planned.planned_at
    return digest(batch_range)


def _canonical(planned: PlannedBatch) -> object:
    """A list in v1, which has no names. Changing this or `_digest` would make a batch that the release before committed
    look like another one."""
    return planned.ends if planned.named else [*planned.ends.values()]


def _starts(before: PlannedBatch, planned: PlannedBatch) -> Mapping[str, object]:
    """Where the sources stood before, under the names that they have now, as far as that is known."""
    if before.named == planned.named:
        return {name: before.ends[name] for name in planned.ends if name in before.ends}
    if len(before.ends) == len(planned.ends) == 1:
        return dict(zip(planned.ends, before.ends.values(), strict=True))
    return before.ends


def _first_starts(starts: Sequence[str] | None, planned: PlannedBatch) -> Mapping[str, object] | None:
    """Where the sources start at first. Where our source left it open, the batch reads nothing and starts where it
    ends.

    None where nobody can tell: v2 does not keep the order of the plan, so of several starts it is not known whose they
    are.
    """
    if starts is None or len(starts) != len(planned.ends):
        return None
    told = [parsed(start) for start in starts]
    if planned.named and len(told) > 1 and any(start != UNRESOLVED for start in told):
        return None
    pairs = zip(told, planned.ends.items(), strict=True)
    return {name: end if start == UNRESOLVED else start for start, (name, end) in pairs}


def _query_id(read: ReadFile) -> str:
    text = read("metadata")
    try:
        return str(json.loads(text or "")["id"])
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointUnusable(
            f"the checkpoint's file 'metadata' names no query id (it holds {text!r})", action=RESTORE
        ) from error


def _range(start: object, end: object) -> SourceRange | None:
    offsets = _offsets(end)
    return None if offsets is None else SourceRange(start=_offsets(start), end=offsets)


def _merged(sources: Iterable[Offsets]) -> Offsets:
    """Offsets of all Kafka sources; of a partition that two of them read, the lower one."""
    found: dict[TopicPartition, int] = {}
    for source in sources:
        for partition, offset in source.items():
            found[partition] = min(offset, found.get(partition, offset))
    return found


def _offsets(source: object) -> Offsets | None:
    """Those in `{topic: {partition: offset}}`, the shape that our source and the built-in one write; None for any
    other."""
    if not isinstance(source, Mapping) or not all(map(_are_of_a_topic, source.values())):
        return None
    return offsets_from_json(source)


def _are_of_a_topic(partitions: object) -> bool:
    return isinstance(partitions, Mapping) and all(
        key.isdigit() and isinstance(offset, int) for key, offset in partitions.items()
    )
