"""What a query's checkpoint says of a micro-batch: its query id and the source offsets it covers.

Spark writes `offsets/<batch>` before the batch runs, so it is there when the batch is written, and a replay finds the
same. The file (Spark's OffsetSeqLog, format v1) has the version, a line of metadata, then one line per source: its end
offset as JSON, or `-` for a source without one. The start of a batch is the end of the one before.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from spark_kafka_eos.core.ledger import digest
from spark_kafka_eos.errors import KafkaEosError
from spark_kafka_eos.model import UNRESOLVED, MicroBatch, Offsets, TopicPartition, offsets_from_json

# Reads a file of the checkpoint by its path inside it; None if there is none.
ReadFile = Callable[[str], str | None]


def micro_batch(read: ReadFile, batch_id: int, first_start: Sequence[str] | None = None) -> MicroBatch:
    """The identity and range of `batch_id`. `first_start` is the JSON of each source's first offset, where the caller
    knows it.

    The digest covers exactly what the checkpoint holds: for batch 0 only its end, since a restarted query determines
    its start anew. Raises KafkaEosError for a checkpoint that is damaged or of an unknown format.
    """
    ends = _sources(read, batch_id)
    starts = _sources(read, batch_id - 1) if batch_id > 0 else None
    start = starts if starts is not None else _resolved(first_start, ends)
    return MicroBatch(
        query_id=_query_id(read),
        batch_id=batch_id,
        digest=digest({"start": _parsed(starts), "end": _parsed(ends)}),
        start=None if start is None else _kafka_offsets(start),
        end=_kafka_offsets(ends),
    )


def _resolved(starts: Sequence[str] | None, ends: Sequence[str]) -> list[str] | None:
    """First offsets, where our source left them open: such a batch 0 reads nothing and starts where it ends."""
    if starts is None or len(starts) != len(ends):
        return None
    return [end if _json(start) == UNRESOLVED else start for start, end in zip(starts, ends, strict=True)]


def _query_id(read: ReadFile) -> str:
    text = read("metadata")
    try:
        return str(json.loads(text or "")["id"])
    except (ValueError, KeyError, TypeError) as error:
        raise KafkaEosError(
            f"the checkpoint's file 'metadata' names no query id (it holds {text!r})",
            action="Restore the checkpoint, or start with a new checkpointLocation and startingOffsets=committed.",
        ) from error


def _sources(read: ReadFile, batch_id: int) -> list[str]:
    text = read(f"offsets/{batch_id}")
    lines = (text or "").split("\n")
    if text is None or len(lines) < 2:
        raise KafkaEosError(
            f"the checkpoint has no usable file 'offsets/{batch_id}', so the batch's range is not known",
            action="Restore the checkpoint, or start with a new checkpointLocation and startingOffsets=committed.",
        )
    if lines[0] != "v1":
        raise KafkaEosError(
            f"the checkpoint's file 'offsets/{batch_id}' has format {lines[0]!r}; this release reads 'v1'",
            action="Set spark.sql.streaming.offsetLog.formatVersion to 1 before the query's first start.",
        )
    return [line for line in lines[2:] if line]


def _parsed(sources: Sequence[str] | None) -> object:
    return None if sources is None else [_json(source) for source in sources]


def _json(source: str) -> object:
    try:
        return json.loads(source)
    except ValueError:
        return source  # "-", or a source whose offset is no JSON


def _kafka_offsets(sources: Sequence[str]) -> Offsets:
    """Offsets of all sources that speak of topics and partitions; of a partition that two of them read, the lower
    one."""
    found: dict[TopicPartition, int] = {}
    for source in sources:
        parsed = _json(source)
        if not _is_kafka(parsed):
            continue
        for partition, offset in offsets_from_json(source).items():
            found[partition] = min(offset, found.get(partition, offset))
    return found


def _is_kafka(parsed: object) -> bool:
    """Whether this is `{topic: {partition: offset}}`, the shape that our source and the built-in one write."""
    return isinstance(parsed, Mapping) and all(
        isinstance(partitions, Mapping)
        and all(key.isdigit() and isinstance(offset, int) for key, offset in partitions.items())
        for partitions in parsed.values()
    )
