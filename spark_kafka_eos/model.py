"""Values that driver, executors and brokers exchange: frozen, picklable, without behavior.

Offsets are those of Kafka: the position of the next record to read. A range is half-open, `[start, end)`.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal, NamedTuple


class TopicPartition(NamedTuple):
    """A partition of a topic; orders by topic, then number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


Offsets = Mapping[TopicPartition, int]
IsolationLevel = Literal["read_committed", "read_uncommitted"]


# Instead of a stream's first offsets: they are in the end of batch 0 (`with_start`). No topic has this name.
UNRESOLVED: Mapping[str, Mapping[str, int]] = {"": {}}
# No topic's name has the character =. Without partitions, it means nothing to others who read these offsets, such
# as the built-in source.
_START, _ORIGIN, _BOUNDS, _SINKS = "start=", "origin=", "bounds=", "sinks="


def lowest(each: Iterable[Offsets]) -> dict[TopicPartition, int]:
    """The offsets of all of these; of a partition that is in several, the lowest one."""
    found: dict[TopicPartition, int] = {}
    for offsets in each:
        for tp, offset in offsets.items():
            found[tp] = min(offset, found.get(tp, offset))
    return found


def offsets_to_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    """`{topic: {partition: offset}}`, sorted: the shape of the built-in Kafka source's checkpoint."""
    out: dict[str, dict[str, int]] = {}
    for tp in sorted(offsets):
        out.setdefault(tp.topic, {})[str(tp.partition)] = offsets[tp]
    return out


def offsets_from_json(value: str | Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """Inverse of `offsets_to_json`; also accepts JSON text. Raises ValueError for any other form."""
    parsed = json.loads(value) if isinstance(value, str) else value
    if not isinstance(parsed, Mapping) or not all(isinstance(v, Mapping) for v in parsed.values()):
        raise ValueError(f"expected {{topic: {{partition: offset}}}}, got {value!r}")
    return {TopicPartition(t, int(p)): int(o) for t, ps in parsed.items() for p, o in ps.items()}


def with_start(end: Offsets, start: Offsets) -> dict[str, dict[str, int]]:
    """`offsets_to_json(end)`, and in the name of a further "topic" without partitions where this first batch starts."""
    return {_START + json.dumps(offsets_to_json(start)): {}} | offsets_to_json(end)


def recorded_start(end: Mapping[str, object]) -> dict[TopicPartition, int] | None:
    """The start that `with_start` added, None if there is none."""
    names = [name for name in end if name.startswith(_START)]
    return offsets_from_json(names[0].removeprefix(_START)) if names else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Which records a source's offsets mean: those of topics with these ids (KIP-516), on the cluster with this id
    (KIP-78).

    `leader_epochs` has the epoch of each partition's leader when the offsets were planned (KIP-320): a log that was
    truncated since has other records at them. `finds_pattern` is False if subscribePattern may have been compared with
    whole names of topics when they were planned, as earlier releases did.
    """

    cluster: str
    topic_ids: Mapping[str, uuid.UUID] = field(default_factory=dict)
    leader_epochs: Mapping[TopicPartition, int] = field(default_factory=dict)
    finds_pattern: bool = False


def origin_to_json(origin: Origin) -> dict[str, object]:
    """`{"cluster": id, "topics": {topic: id}, "epochs": {topic: epoch or {epoch: partitions}}}`, sorted; and
    `"pattern": "find"`.
    """
    pattern: dict[str, object] = {"pattern": "find"} if origin.finds_pattern else {}
    return {
        "cluster": origin.cluster,
        "topics": {name: str(topic_id) for name, topic_id in sorted(origin.topic_ids.items())},
        "epochs": _epochs_to_json(origin.leader_epochs),
    } | pattern


def origin_from_json(value: object) -> Origin:
    """Inverse of `origin_to_json`. Raises ValueError for any other form."""
    match value:
        case {"cluster": str(cluster), "topics": dict(topics), "epochs": dict(epochs), **more}:
            return Origin(
                cluster=cluster,
                topic_ids={str(name): uuid.UUID(str(topic_id)) for name, topic_id in topics.items()},
                leader_epochs=_epochs_from_json(epochs),
                finds_pattern=more.get("pattern") == "find",
            )
    raise ValueError(f"expected a cluster, topics and epochs, got {value!r}")


def _epochs_to_json(epochs: Mapping[TopicPartition, int]) -> dict[str, dict[str, str]]:
    """`{topic: {epoch: "0-5,7"}}`: most partitions of a topic have the same epoch."""
    by_topic: dict[str, dict[str, list[int]]] = {}
    for tp in sorted(epochs):
        by_topic.setdefault(tp.topic, {}).setdefault(str(epochs[tp]), []).append(tp.partition)
    return {
        topic: {epoch: numbers_to_text(partitions) for epoch, partitions in each.items()}
        for topic, each in by_topic.items()
    }


def _epochs_from_json(value: Mapping[str, Mapping[str, str]]) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, number): int(epoch)
        for topic, each in value.items()
        for epoch, partitions in each.items()
        for first, last in ranges_from_text(partitions)
        for number in range(first, last + 1)
    }


NumberRange = tuple[int, int]  # with both ends


def ranges_to_text(ranges: Iterable[NumberRange]) -> str:
    """`0-5,7`."""
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def ranges_from_text(text: str) -> list[NumberRange]:
    """Inverse of `ranges_to_text`. Raises ValueError for any other form."""
    return [(int(first), int(last or first)) for first, _, last in (part.partition("-") for part in text.split(","))]


def joined(ranges: Iterable[NumberRange]) -> list[NumberRange]:
    """The same numbers in as few ranges as possible, sorted."""
    runs: list[NumberRange] = []
    for first, last in sorted(ranges):
        if runs and first <= runs[-1][1] + 1:
            runs[-1] = runs[-1][0], max(last, runs[-1][1])
        else:
            runs.append((first, last))
    return runs


def numbers_to_text(numbers: Iterable[int]) -> str:
    """Numbers as ranges, `0-5,7`."""
    return ranges_to_text(joined((number, number) for number in numbers))


def with_origin(end: Mapping[str, Mapping[str, int]], origin: Origin) -> dict[str, dict[str, int]]:
    """`end`, and in the name of a further "topic" without partitions which records it means."""
    text = json.dumps(origin_to_json(origin), separators=(",", ":"))
    return {_ORIGIN + text: {}} | {name: dict(partitions) for name, partitions in end.items()}


def recorded_origin(end: Mapping[str, object]) -> Origin | None:
    """The origin that `with_origin` added, None if there is none."""
    names = [name for name in end if name.startswith(_ORIGIN)]
    return origin_from_json(json.loads(names[0].removeprefix(_ORIGIN))) if names else None


def with_bounds(end: Mapping[str, Mapping[str, int]], bounds: Mapping[int, Offsets]) -> dict[str, dict[str, int]]:
    """`end`, and in the name of a further "topic" without partitions where the stream ends: `bounds` has, for each time
    in ms, the offsets of the first records with it or a later one. Without bounds, `end` alone.
    """
    by_time = {str(time): offsets_to_json(bounds[time]) for time in sorted(bounds)}
    added: dict[str, dict[str, int]] = {_BOUNDS + json.dumps(by_time, separators=(",", ":")): {}} if bounds else {}
    return added | {name: dict(partitions) for name, partitions in end.items()}


def recorded_bounds(end: Mapping[str, object]) -> dict[int, dict[TopicPartition, int]]:
    """The bounds that `with_bounds` added, empty if there are none."""
    names = [name for name in end if name.startswith(_BOUNDS)]
    by_time = json.loads(names[0].removeprefix(_BOUNDS)) if names else {}
    return {int(time): offsets_from_json(offsets) for time, offsets in by_time.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkIdentity:
    """Under which transactional.id a sink commits, in which ledger topic on the cluster with which id; what is unknown
    is empty.
    """

    transactional_id: str
    ledger_topic: str = ""
    cluster: str = ""


def with_sinks(end: Mapping[str, Mapping[str, int]], sinks: Iterable[SinkIdentity]) -> dict[str, dict[str, int]]:
    """`end` of a query's first batch, and in the name of a further "topic" without partitions the sinks by whose
    commits its source goes. Without sinks, `end` alone.
    """
    fields = [{"id": each.transactional_id, "topic": each.ledger_topic, "cluster": each.cluster} for each in sinks]
    added: dict[str, dict[str, int]] = {_SINKS + json.dumps(fields, separators=(",", ":")): {}} if fields else {}
    return added | {name: dict(partitions) for name, partitions in end.items()}


def recorded_sinks(end: Mapping[str, object]) -> tuple[SinkIdentity, ...]:
    """The sinks that `with_sinks` added, empty if there are none. Raises ValueError for any other form."""
    names = [name for name in end if name.startswith(_SINKS)]
    sinks: list[SinkIdentity] = []
    for fields in json.loads(names[0].removeprefix(_SINKS)) if names else ():
        match fields:
            case {"id": str(transactional_id), "topic": str(topic), "cluster": str(cluster)}:
                sinks.append(SinkIdentity(transactional_id=transactional_id, ledger_topic=topic, cluster=cluster))
            case _:
                raise ValueError(f"expected id, topic and cluster, got {fields!r}")
    return tuple(sinks)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """Offsets `[start, end)` of one partition. There may be fewer records than `end - start` (markers, compaction).

    `topic_id` is the id of the topic (KIP-516), None if unknown: a topic that was created again has the same name and
    offsets, but other records. `leader_epoch` is the epoch of the leader when the range was planned (KIP-320), -1 if
    unknown: a broker that only knows an earlier one is outdated.
    """

    partition: TopicPartition
    start: int
    end: int
    topic_id: uuid.UUID | None = None
    leader_epoch: int = -1

    @property
    def size(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetAndMetadata:
    """A consumer group's committed offset; `metadata` is at most 4,096 bytes on a default broker."""

    offset: int
    metadata: str = ""


class ProducerEpoch(NamedTuple):
    """A producer id and its epoch (KIP-98): each epoch has one transaction. `NOBODY` also where it is unknown."""

    producer_id: int
    epoch: int

    def __str__(self) -> str:
        return f"producer {self.producer_id}, epoch {self.epoch}"


NOBODY = ProducerEpoch(producer_id=-1, epoch=-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdentity:
    """What makes an append part of a transaction (KIP-98): shared by every process that appends to it.

    `transaction_version` is the protocol with which the transaction started (2: KIP-890). During a rolling upgrade,
    brokers may return different versions, and a transaction must not mix them.

    If idempotence is only `requested`, a topic whose message format has no room for a producer id is appended to
    without it.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    transaction_version: int = 0
    requested: bool = False

    @property
    def producer(self) -> ProducerEpoch:
        return ProducerEpoch(self.producer_id, self.epoch)

    @property
    def is_idempotent(self) -> bool:
        """Whether brokers recognize a record batch that is sent again."""
        return self.producer_id >= 0


# Who appends without a producer id: a request that is sent again may append its records again.
PLAIN = ProducerIdentity(transactional_id="", producer_id=-1, epoch=-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ack:
    """The leader's acknowledgement of a record batch: `base_offset` is that of the first record, -1 if the broker no
    longer knows it.
    """

    partition: TopicPartition
    base_sequence: int
    records: int
    bytes: int
    base_offset: int


class TimestampType(IntEnum):
    """What set the record's timestamp, as in the built-in source's column `timestampType`."""

    NO_TIMESTAMP = -1  # a message of the format before Kafka 0.10
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class Compression(IntEnum):
    """The codes of a record batch's attributes, bits 0 to 2."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


# Bits of a record batch's attributes.
CODEC, LOG_APPEND_TIME, TRANSACTIONAL, CONTROL = 0x07, 0x08, 0x10, 0x20
# Not on the wire, where these bits are unused, but of records that come from messages (`wire.legacy`): they had no
# timestamp; each has its own timestamp although the broker set it.
NO_TIMESTAMP, OWN_TIMESTAMPS = 0x4000, 0x2000


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordBatchHeader:
    """The 61 bytes before a record batch's records (KIP-98, "Message Format"); timestamps in milliseconds.

    `position` is where the batch begins in the buffer that it was read from.
    """

    position: int
    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def compression_code(self) -> int:
        return self.attributes & CODEC

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType(bool(self.attributes & LOG_APPEND_TIME))

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def size(self) -> int:
        """Bytes of the whole batch, the header included."""
        return self.batch_length + 12


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortedTransaction:
    """An aborted transaction in a Fetch response: the batches of `producer_id` from `first_offset` to its abort marker
    are invisible.
    """

    producer_id: int
    first_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRange:
    """The offsets `[start, end)` that a micro-batch reads from one Kafka source; `start` is None if unknown.

    `start_origin` and `origin`, of the end, say which records they mean; None if the source does not say it, as the
    built-in one. They differ if a topic was created again, or a leader elected, in between. `sinks` are those by
    whose commits our source goes in a query's first batch.
    """

    start: Offsets | None
    end: Offsets
    start_origin: Origin | None = None
    origin: Origin | None = None
    sinks: tuple[SinkIdentity, ...] = ()


READS_NOTHING = SourceRange(start={}, end={})


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """What a transaction writes: one micro-batch of one query, or one batch write.

    `query_id` is the streaming query's id (stable across restarts) or `txnAppId`. `digest` is a hash of the batch's
    range in the checkpoint, so that a replay with other offsets is noticed.

    `sources` has the range of each source, in the checkpoint's order (with offset log v2: by name), None for a source
    that is not Kafka. A batch write has one, without partitions.

    `stateful`: the query keeps state in its checkpoint; None unless it was looked up, for a first batch, and where
    batches before this one did not call the writer. `run_id` is that of the run of the query or job that writes it;
    None if unknown. This run has run every batch from `ran_since` on, and made no call of the writer in those from
    `uncalled_since` on; None if unknown. `failed` are the batches before this one that this run has begun to write and
    not committed. `is_first_with_data`: the batches before it read nothing. `destination` names
    the output topics of a batch write.
    """

    query_id: str
    batch_id: int
    digest: str
    sources: tuple[SourceRange | None, ...] = (READS_NOTHING,)
    stateful: bool | None = None
    run_id: str | None = None
    ran_since: int | None = None
    uncalled_since: int | None = None
    failed: tuple[int, ...] = ()
    is_first_with_data: bool = False
    destination: str = ""

    @property
    def start(self) -> Offsets | None:
        """Where the Kafka sources begin whose start is known, `lowest` of them; None if that of none is."""
        known = [source.start for source in self.sources if source is not None and source.start is not None]
        return lowest(known) if known else None

    @property
    def end(self) -> Offsets:
        """Where the Kafka sources end, `lowest` of them."""
        return lowest(source.end for source in self.sources if source is not None)
