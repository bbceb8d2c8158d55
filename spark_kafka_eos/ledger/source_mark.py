"""The mark of source offsets that a transaction commits: it reserves the group for its transactional.id. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from spark_kafka_eos.kafka.partitions import MAX_METADATA_BYTES, OffsetAndMetadata, TopicPartition

_SOURCE_MARK = "kafka-eos transactional.id="


def source_mark(transactional_id: str) -> str:
    """The metadata of source offsets that a transaction commits; it reserves the group for this transactional.id."""
    return (_SOURCE_MARK + transactional_id)[: MAX_METADATA_BYTES // 4]  # a character has at most four bytes


def marked_by(committed: OffsetAndMetadata) -> str | None:
    """The transactional.id whose transactions commit this source offset; None if it has no `source_mark`."""
    marked = committed.metadata.startswith(_SOURCE_MARK)
    return committed.metadata.removeprefix(_SOURCE_MARK) if marked else None


def is_mark_of(mark: str, transactional_id: str) -> bool:
    """Whether `mark`, as `marked_by` returns it, is that of this transactional.id: a long one is cut off."""
    return mark in (transactional_id, source_mark(transactional_id).removeprefix(_SOURCE_MARK))


def other_ids(committed: Mapping[TopicPartition, OffsetAndMetadata | None], transactional_id: str) -> list[str]:
    """The other transactional.ids whose transactions commit source offsets to this group."""
    ours = marked_by(OffsetAndMetadata(offset=0, metadata=source_mark(transactional_id)))
    marks = {marked_by(at) for at in committed.values() if at is not None}
    return sorted(mark for mark in marks if mark is not None and mark != ours)
