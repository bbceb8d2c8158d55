"""What a bucket's transaction in real time says in the ledger: where its partitions are read on. Pure.

    the record   in the topic `ledgerTopic`, partition 0, key = the bucket's transactional id
                 {"v": 4, "serial": that of the entry that has started the bucket,
                 "offsets": {topic: {partition: offset}}, "epochs": {topic: {partition: leader epoch}},
                 "topics": {topic: topic id}, "mac": signature}

The group has a copy, a second late. What its coordinator answers could not be relied on either: where a broker becomes,
stops being and becomes again the leader of the group's partition, as after a kill, Kafka 4 takes the end of the first
load for that of the second, and serves what it has loaded so far: offsets of minutes ago, without an error, while it
accepts new ones. A log has no such state.
"""

from __future__ import annotations

import functools
import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from spark_kafka_eos.kafka.partitions import Offsets, TopicPartition, offsets_from_json, offsets_to_json
from spark_kafka_eos.ledger.entry_format import IN_REAL_TIME, NewerEntry, NotAnEntry
from spark_kafka_eos.ledger.signing import UNSIGNED, Signer


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketRecord:
    """Where the partitions of a bucket are read on, and the ids of their topics, None if unknown. `epochs` has the
    leader epoch of the last record batch before each offset (KIP-320), as far as it is known: a log that was truncated
    has other records there. `serial` is that of the ledger's entry that has started the bucket: what a later entry says
    of a partition is newer.
    """

    serial: int
    offsets: Offsets
    topic_ids: Mapping[str, uuid.UUID | None]
    epochs: Mapping[TopicPartition, int] = field(default_factory=dict)

    def moved(self, offsets: Offsets, epochs: Mapping[TopicPartition, int]) -> BucketRecord:
        """The same, with where these partitions are read on now."""
        kept = {tp: epoch for tp, epoch in self.epochs.items() if tp not in offsets}
        return replace(self, offsets={**self.offsets, **offsets}, epochs=kept | dict(epochs))


def encode(record: BucketRecord, signer: Signer = UNSIGNED) -> bytes:
    """The record's value."""
    fields: dict[str, Any] = {"v": IN_REAL_TIME, "serial": record.serial, "offsets": offsets_to_json(record.offsets)}
    if record.epochs:
        fields["epochs"] = offsets_to_json(record.epochs)
    fields["topics"] = {name: str(topic_id) for name, topic_id in sorted(record.topic_ids.items()) if topic_id}
    return json.dumps(signer.signed(fields), separators=(",", ":")).encode()


def decode(value: bytes, signer: Signer = UNSIGNED) -> BucketRecord:
    """Inverse of `encode`. Raises NotAnEntry for anything else."""
    try:
        fields = json.loads(value)
        version = fields["v"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise NotAnEntry("another program has written it") from None
    if version != IN_REAL_TIME:
        raise NewerEntry(f"it has format version {version!r}, but this release writes version {IN_REAL_TIME}")
    if not signer.accepts(fields):
        raise NotAnEntry("it is not signed with ledgerKey")
    try:
        return BucketRecord(
            serial=int(fields["serial"]),
            offsets=offsets_from_json(fields["offsets"]),
            topic_ids={name: uuid.UUID(topic_id) for name, topic_id in fields["topics"].items()},
            epochs=offsets_from_json(fields.get("epochs", {})),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        raise NotAnEntry("a field is missing or invalid") from None


def is_one(value: bytes) -> bool:
    """Whether the record of a transactional.id is that of a bucket, whoever signed it."""
    try:
        decode(value)
    except NotAnEntry:
        return False
    return True


def latest(records: Iterable[BucketRecord]) -> BucketRecord:
    """Where each partition is read on, by records of which a later one is newer. The ids of the topics are left out."""
    first = BucketRecord(serial=0, offsets={}, topic_ids={})
    return functools.reduce(lambda before, record: before.moved(record.offsets, record.epochs), records, first)
