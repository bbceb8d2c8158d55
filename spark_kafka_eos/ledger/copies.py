"""Which of the ledger's copies is valid: the record, and what is committed to the ledger's group. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from spark_kafka_eos.kafka.partitions import OffsetAndMetadata, TopicPartition
from spark_kafka_eos.ledger.entry import LedgerEntry, MovedLedger, UnreadableEntry, unreadable
from spark_kafka_eos.ledger.entry_format import (
    NewerEntry,
    NotALedgers,
    NotAnEntry,
    pointer_content,
    record_content,
    stated,
)
from spark_kafka_eos.ledger.records import LedgerRecord, LedgerRecords
from spark_kafka_eos.ledger.signing import UNSIGNED, Signer


def newest(
    record: bytes | None,
    committed: Mapping[TopicPartition, OffsetAndMetadata],
    at: TopicPartition,
    signer: Signer = UNSIGNED,
) -> LedgerEntry | MovedLedger | UnreadableEntry | None:
    """The valid entry, from the record in `at` and from everything `committed` to the ledger's group.

    Record and pointer are written in one transaction, so if one of them is older, it was lost, and the later is valid.
    The one with the highest serial counts, wherever it is: a ledger that was moved to another topic and back has an old
    entry in each. `MovedLedger`: the valid entry is in that topic, whose record must be read.
    """
    candidates: list[tuple[TopicPartition, LedgerEntry | MovedLedger]] = []
    doubts: list[NotAnEntry] = []
    try:
        candidates += [] if record is None else [(at, record_content(record, signer))]
    except NotAnEntry as error:
        doubts.append(error)
    record_is_broken = bool(doubts)
    for place in sorted(committed, key=lambda place: (place != at, place)):
        try:
            candidates.append((place, pointer_content(committed[place], signer)))
        except NotAnEntry as error:
            doubts.append(error)
    # An operator's reset of the group's offsets breaks its pointers only. What is here, or leads on, says more than
    # they did; but an entry elsewhere may be older than what a broken pointer led to.
    healed = not record_is_broken and any(place == at or isinstance(entry, MovedLedger) for place, entry in candidates)
    newer = [doubt for doubt in doubts if isinstance(doubt, NewerEntry)]
    if newer or (doubts and not healed):
        doubt = (newer or doubts)[0]
        contents = [repr(record)] if record is not None else []
        contents += [
            f"{place}: offset {entry.offset}, metadata {entry.metadata!r}" for place, entry in committed.items()
        ]
        what = f"the ledger contains something that is not an entry ({doubt}): {'; '.join(contents)}"
        return unreadable(what, *_stated(record, committed))
    if not candidates:
        return None
    # Of two with the same serial the first counts: the record, which has more, before its pointer.
    place, last = max(candidates, key=lambda candidate: _order(candidate[1]))
    if isinstance(last, MovedLedger):
        return last
    entries = [entry for _, entry in candidates if isinstance(entry, LedgerEntry)]
    if any(entry.serial == last.serial and _contradict(entry, last) for entry in entries):
        batches = "; ".join(f"batch {entry.batch_id} of query {entry.query_id}" for entry in entries)
        what = f"the ledger has several entries, and it is unknown which one is the last: {batches}"
        return unreadable(what, *_stated(record, committed))
    return last if place == at or last.serial == 0 else MovedLedger(serial=last.serial, topic=place.topic)


def last_committed(
    records: LedgerRecords | None,
    committed: Mapping[TopicPartition, OffsetAndMetadata],
    at: TopicPartition,
    signer: Signer = UNSIGNED,
) -> LedgerRecord | None:
    """The last committed record of those `at`. One without a marker is committed if its pointer is, in the same
    transaction; it says more than the pointer.
    """
    if records is None:
        return None
    pointer = newest(None, committed, at, signer)
    if isinstance(pointer, LedgerEntry):
        for record in records.pending:
            if has_entry(record.value, pointer, signer):
                return record
    return records.last


def has_entry(copy: bytes | OffsetAndMetadata | None, entry: LedgerEntry, signer: Signer = UNSIGNED) -> bool:
    """Whether this record, or this pointer, is that of the entry."""
    if copy is None:
        return False
    try:
        content = record_content(copy, signer) if isinstance(copy, bytes) else pointer_content(copy, signer)
    except NotAnEntry:
        return False
    return isinstance(content, LedgerEntry) and content.serial == entry.serial


def is_lost(pointer: OffsetAndMetadata, signer: Signer = UNSIGNED) -> bool:
    """Whether a pointer has no entry any more, as after `kafka-consumer-groups --reset-offsets`."""
    try:
        pointer_content(pointer, signer)
    except NewerEntry:
        return False
    except NotAnEntry:
        return True
    return False


def misleading(
    committed: Mapping[TopicPartition, OffsetAndMetadata], at: TopicPartition, signer: Signer = UNSIGNED
) -> dict[TopicPartition, bool]:
    """The other places of the ledger's group that do not say that the ledger is `at`; true where its topic has records,
    too, as it was a ledger topic. Not those of `of_others`.
    """
    places: dict[TopicPartition, bool] = {}
    not_ours = of_others(committed, at, signer)
    for place, pointer in committed.items():
        if place == at or place in not_ours:
            continue
        try:
            entry = pointer_content(pointer, signer)
        except NotAnEntry:
            places[place] = False
            continue
        if entry.serial == 0 or (isinstance(entry, MovedLedger) and entry.topic != at.topic):
            places[place] = False
        elif isinstance(entry, LedgerEntry):
            places[place] = True
    return places


def of_others(
    committed: Mapping[TopicPartition, OffsetAndMetadata], at: TopicPartition, signer: Signer = UNSIGNED
) -> dict[TopicPartition, OffsetAndMetadata]:
    """What somebody else has committed to the ledger's group, such as a query whose own group has that name.

    A pointer that an operator has reset has no metadata, as the offset of a consumer. A reset is one of the group: so
    elsewhere, it counts as such a pointer only if that in `at` was reset, too.
    """
    was_reset = at in committed and not committed[at].metadata
    others: dict[TopicPartition, OffsetAndMetadata] = {}
    for place, pointer in committed.items():
        try:
            pointer_content(pointer, signer)
        except NotALedgers:
            if place != at and (pointer.metadata or not was_reset):
                others[place] = pointer
        except NotAnEntry:
            continue
    return others


def _stated(record: bytes | None, committed: Mapping[TopicPartition, OffsetAndMetadata]) -> tuple[int, int]:
    """The highest serial, and the highest number of buckets, that any of these says."""
    texts = [pointer.metadata for pointer in committed.values()]
    texts += [] if record is None else [record.decode(errors="replace")]
    serials, buckets = zip(*map(stated, texts), strict=True)
    return max(serials), max(buckets)


def _contradict(entry: LedgerEntry, other: LedgerEntry) -> bool:
    """Whether two entries with the same serial contradict each other. A query may have left several without a
    serial.
    """
    if entry.serial == 0:
        return entry.query_id != other.query_id
    return (entry.query_id, entry.batch_id, entry.digest) != (other.query_id, other.batch_id, other.digest)


def _order(entry: LedgerEntry | MovedLedger) -> tuple[int, int]:
    return entry.serial, entry.batch_id if isinstance(entry, LedgerEntry) else -1
