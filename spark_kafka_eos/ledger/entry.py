"""The ledger: the last committed micro-batch of a transactional.id, in two places, written in one transaction. Pure.

    the record   in the compacted topic `ledgerTopic`, partition 0, key = transactional.id; it never expires
                 {"v": 3, "serial": n, "query": query id, "batch": batch id, "digest": digest of the batch's range,
                  "run": id of the run that wrote it, "after": [the runs that committed before it, newest first],
                  "table": version of the table that took part,
                  "buckets": how many transactional ids commit by themselves, in real time ("v" is then 4),
                  "tv": transaction version of the commit (1, or 2 for KIP-890's),
                  "outputs": {topic: topic id},
                  "sources": [{"cluster": id, "offsets": {topic: {partition: offset}}, "from": the same of its start,
                               "topics": {topic: topic id}, "epochs": {topic: {leader epoch: partitions}}}, null, …],
                  "writes": {destination: versions}, of batch writes,
                  "written": {"records": n, "bytes": n, "ms": n, "dead": n, "lost": {topic: records}},
                  "mac": signature with ledgerKey}
    the pointer  the committed offset of the group `<transactional.id>.ledger` for that partition, which can expire
                 offset: the record is there or after it, so a start need not read the whole partition
                 metadata: the same fields without "after", "tv", "outputs", "sources", "writes" and "written"

`serial` increases by one with each commit, so the later of the two is known if one was lost.

A place that the ledger has left (another `ledgerTopic`; partition 0 of an output topic, where version 1 kept its
pointer) holds {"v": 3, "serial": n, "moved": topic} instead of an entry. A reader goes on in that topic, and a
release that does not know this version refuses.

Earlier versions are read: 2 has no "run", "after", "tv", "outputs", "from", "table", "topics", "epochs" and "writes"; 1
was only in the group, for partition 0 of an output topic, offset = batch id + 1, without serial and sources.

"written" is for people, and nothing is decided by it, so an entry is valid without it, and whatever it contains. It has
"dead" only if the batch has dead letters, "lost" only if a topic was deleted while it was committed.

"from" only has partitions that were read, and those that are new in this batch, at -1.

Unreadable content is refused, never treated as "no entry"; only a pointer that lost its entry, as when an operator
resets a group's offsets, gives way to a record that has one. A broker accepts at most 4,096 bytes of metadata
(`offset.metadata.max.bytes`).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from spark_kafka_eos.errors import ConfigurationError
from spark_kafka_eos.kafka.partitions import (
    OffsetAndMetadata,
    Offsets,
    TopicPartition,
    offsets_from_json,
    offsets_to_json,
)
from spark_kafka_eos.ledger.signing import UNSIGNED, Signer
from spark_kafka_eos.source_offset import Origin, origin_from_json, origin_to_json

VERSION = 3
IN_REAL_TIME = 4  # the version of entries that releases without it must not take for those of a micro-batch
MAX_METADATA_BYTES = 4_096

MOST_EARLIER_RUNS = 8  # that an entry names: as many takeovers may happen while a driver is paused

_SOURCE_MARK = "kafka-eos transactional.id="
_NEW = -1  # where a partition began that the batch's start does not have, because it is new


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceProgress:
    """The committed `offsets` of one source of a query, on the cluster with this id.

    `origin` says which records they mean, None if unknown. `start` is where the batch began, None if unknown: together
    they let a query that keeps state be computed again exactly as far as it was committed.
    """

    cluster: str
    offsets: Offsets
    origin: Origin | None = None
    start: Offsets | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCounts:
    """What a batch wrote: `records` of the output and the `bytes` of their record batches; none if all were filtered.

    `milliseconds` is the wall time of the steps begin, encode and append; the others end after the entry is sent.
    `dead_letters` are among the records. `lost` are those that were lost with topics that were deleted during the
    commit, by topic. `topic_ids` are those of the topics that have records, as Appended has them;
    the entry keeps them as its outputs.
    """

    records: int
    bytes: int
    milliseconds: int
    dead_letters: int = 0
    lost: Mapping[str, int] = field(default_factory=dict)
    topic_ids: Mapping[str, uuid.UUID] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """The last micro-batch committed under a transactional.id.

    `serial` numbers the commits under that id across queries, so the entry with the higher number is the later one; it
    is 0 in old entries, which had no number. `run_id` is the run of the query, or of the job, that wrote it, and
    `earlier_runs` are the last ones that committed before it, newest first. `outputs` are the topics that the batch
    wrote, with their ids, None if they are unknown. `sources` has each source's progress in Spark's order, None for a
    source that is not Kafka; it is None if the entry does not contain it. `writes` has the versions of batch writes
    that are known to be written to each destination, as `ledger.versions` gives them. `incomplete`: some of what the
    batch should have written is not in the output. `table` is the version of the table that took part
    (`participants`), None if none did. `transaction_version` is the protocol of its transaction: it says which epoch
    the commit left. `written` is for people and decides nothing.

    What an older release did not record is None, or empty. `buckets` is the number of buckets of a run in real time
    (`real_time`), which commit without an entry: `sources` then are where some of them began, and only the group's
    offsets say where they are.
    """

    query_id: str
    batch_id: int
    digest: str
    serial: int = 0
    run_id: str | None = None
    earlier_runs: tuple[str, ...] = ()
    outputs: Mapping[str, uuid.UUID | None] = field(default_factory=dict)
    sources: tuple[SourceProgress | None, ...] | None = None
    writes: Mapping[str, str] | None = None
    incomplete: bool = False
    table: int | None = None
    transaction_version: int | None = None
    written: BatchCounts | None = None
    buckets: int | None = None

    @property
    def ends(self) -> tuple[SourceProgress | None, ...] | None:
        """Where each source was read to, None if the entry does not say it."""
        return self.sources if self.buckets is None else None


def runs_before(entry: LedgerEntry | None, run_id: str | None) -> tuple[str, ...]:
    """The `earlier_runs` of the next entry, if this run commits it after `entry`."""
    if entry is None:
        return ()
    runs = (entry.run_id, *entry.earlier_runs)
    return tuple(run for run in runs if run is not None and run != run_id)[:MOST_EARLIER_RUNS]


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedLedger:
    """What a place holds that the ledger has left: as of commit `serial`, the entry is in `topic`."""

    serial: int
    topic: str


class NotAnEntry(ValueError):
    """The content is not a ledger entry that this release can read; the text says why."""


class NewerEntry(NotAnEntry):
    """A newer release has written it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableEntry:
    """Ledger content that is not an entry: `description` is for people, `digest` identifies it exactly. `serial` is the
    highest that was found anywhere; a commit after it, by the operator's word, gets a higher one.
    """

    description: str
    digest: str
    serial: int = 0


def digest(batch_range: object) -> str:
    """A short hash of a batch's range, which is any JSON value. Equal values have equal digests, whatever the key
    order.

    Parse JSON text first, or its formatting counts, too. With 64 bits, it protects from accidents, not from attackers.
    """
    canonical = json.dumps(batch_range, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def encode_record(entry: LedgerEntry | MovedLedger, signer: Signer = UNSIGNED) -> bytes:
    """The record's value."""
    return _json(signer.signed(_fields(entry) | _more_fields(entry))).encode()


def encode_pointer(entry: LedgerEntry | MovedLedger, position: int, signer: Signer = UNSIGNED) -> OffsetAndMetadata:
    """The offset and metadata to commit with the record, which is at `position` or after it.

    Raises ConfigurationError if the query's id is too long.
    """
    metadata = _json(signer.signed(_fields(entry)))
    if len(metadata) > MAX_METADATA_BYTES:
        raise ConfigurationError(
            "txnAppId",
            f"the ledger entry has {len(metadata):,} bytes, but a broker accepts at most {MAX_METADATA_BYTES:,}",
            action="Choose a shorter id.",
        )
    return OffsetAndMetadata(offset=position, metadata=metadata)


def decode_record(value: bytes, signer: Signer = UNSIGNED) -> LedgerEntry:
    """Inverse of `encode_record`. Raises NotAnEntry for anything that neither this nor an earlier release wrote, that
    was not signed with the signer's key, and where the ledger has moved.
    """
    return _entry(_decode_record(value, signer))


def decode_committed(committed: OffsetAndMetadata, signer: Signer = UNSIGNED) -> LedgerEntry:
    """A pointer, or an entry of version 1, whose offset must match its batch id. Raises NotAnEntry."""
    return _entry(_decode_committed(committed, signer))


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
        candidates += [] if record is None else [(at, _decode_record(record, signer))]
    except NotAnEntry as error:
        doubts.append(error)
    record_is_broken = bool(doubts)
    for place in sorted(committed, key=lambda place: (place != at, place)):
        try:
            candidates.append((place, _decode_committed(committed[place], signer)))
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
        return unreadable(
            f"the ledger contains something that is not an entry ({doubt}): {'; '.join(contents)}", _highest(candidates)
        )
    if not candidates:
        return None
    # Of two with the same serial the first counts: the record, which has more, before its pointer.
    place, last = max(candidates, key=lambda candidate: _order(candidate[1]))
    if isinstance(last, MovedLedger):
        return last
    entries = [entry for _, entry in candidates if isinstance(entry, LedgerEntry)]
    if any(entry.serial == last.serial and _contradict(entry, last) for entry in entries):
        batches = "; ".join(f"batch {entry.batch_id} of query {entry.query_id}" for entry in entries)
        return unreadable(
            f"the ledger has several entries, and it is unknown which one is the last: {batches}", _highest(candidates)
        )
    return last if place == at or last.serial == 0 else MovedLedger(serial=last.serial, topic=place.topic)


def is_lost(pointer: OffsetAndMetadata, signer: Signer = UNSIGNED) -> bool:
    """Whether a pointer has no entry any more, as after `kafka-consumer-groups --reset-offsets`."""
    try:
        _decode_committed(pointer, signer)
    except NewerEntry:
        return False
    except NotAnEntry:
        return True
    return False


def misleading(
    committed: Mapping[TopicPartition, OffsetAndMetadata], at: TopicPartition, signer: Signer = UNSIGNED
) -> dict[TopicPartition, bool]:
    """The other places of the ledger's group that do not say that the ledger is `at`; true where its topic has records,
    too, as it was a ledger topic.
    """
    places: dict[TopicPartition, bool] = {}
    for place, pointer in committed.items():
        if place == at:
            continue
        try:
            entry = _decode_committed(pointer, signer)
        except NotAnEntry:
            places[place] = False
            continue
        if entry.serial == 0 or (isinstance(entry, MovedLedger) and entry.topic != at.topic):
            places[place] = False
        elif isinstance(entry, LedgerEntry):
            places[place] = True
    return places


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


def unreadable(content: str, serial: int) -> UnreadableEntry:
    """What to make of `content`, which is not an entry, if the highest serial found is `serial`."""
    excerpt = content if len(content) <= 600 else f"{content[:600]}…"
    return UnreadableEntry(description=excerpt, digest=digest(content), serial=serial)


def _highest(candidates: Iterable[tuple[TopicPartition, LedgerEntry | MovedLedger]]) -> int:
    return max((entry.serial for _, entry in candidates), default=0)


def _contradict(entry: LedgerEntry, other: LedgerEntry) -> bool:
    """Whether two entries with the same serial contradict each other. A query may have left several without a
    serial.
    """
    if entry.serial == 0:
        return entry.query_id != other.query_id
    return (entry.query_id, entry.batch_id, entry.digest) != (other.query_id, other.batch_id, other.digest)


def _fields(entry: LedgerEntry | MovedLedger) -> dict[str, Any]:
    if isinstance(entry, MovedLedger):
        return {"v": VERSION, "serial": entry.serial, "moved": entry.topic}
    version = VERSION if entry.buckets is None else IN_REAL_TIME
    fields: dict[str, Any] = {"v": version, "serial": entry.serial, "query": entry.query_id, "batch": entry.batch_id}
    fields["digest"] = entry.digest
    fields |= {} if entry.run_id is None else {"run": entry.run_id}
    fields |= {} if entry.table is None else {"table": entry.table}
    fields |= {} if entry.buckets is None else {"buckets": entry.buckets}
    return fields | {"incomplete": True} if entry.incomplete else fields


def _more_fields(entry: LedgerEntry | MovedLedger) -> dict[str, Any]:
    """What only the record has."""
    if isinstance(entry, MovedLedger):
        return {}
    fields: dict[str, Any] = {"after": list(entry.earlier_runs)} if entry.earlier_runs else {}
    fields |= {} if entry.transaction_version is None else {"tv": entry.transaction_version}
    if entry.outputs:
        ids = sorted(entry.outputs.items())
        fields["outputs"] = {name: None if topic_id is None else str(topic_id) for name, topic_id in ids}
    if entry.sources is not None:
        fields["sources"] = [None if source is None else _source_fields(source) for source in entry.sources]
    if entry.writes is not None:
        fields["writes"] = dict(entry.writes)
    if entry.written is not None:
        size = entry.written
        fields["written"] = {"records": size.records, "bytes": size.bytes, "ms": size.milliseconds}
        fields["written"] |= {"dead": size.dead_letters} if size.dead_letters else {}
        fields["written"] |= {"lost": dict(size.lost)} if size.lost else {}
    return fields


def _source_fields(source: SourceProgress) -> dict[str, Any]:
    fields: dict[str, Any] = {"cluster": source.cluster, "offsets": offsets_to_json(source.offsets)}
    if source.start is not None:  # a partition that was not read began where it ended
        moved = {tp: at for tp, at in source.start.items() if source.offsets.get(tp) != at}
        new = dict.fromkeys(source.offsets.keys() - source.start.keys(), _NEW)
        fields["from"] = offsets_to_json(moved | new)
    if source.origin is not None:
        origin = origin_to_json(source.origin)
        fields |= {"origin": origin.pop("cluster"), **origin}
    return fields


def _json(fields: Mapping[str, Any]) -> str:
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=True)


def _entry(entry: LedgerEntry | MovedLedger) -> LedgerEntry:
    if isinstance(entry, MovedLedger):
        raise NotAnEntry(f"the ledger has moved to topic {entry.topic!r}")
    return entry


def _decode_record(value: bytes, signer: Signer) -> LedgerEntry | MovedLedger:
    return _decode(value.decode(errors="replace"), signer)


def _decode_committed(committed: OffsetAndMetadata, signer: Signer) -> LedgerEntry | MovedLedger:
    entry = _decode(committed.metadata, signer)
    if isinstance(entry, LedgerEntry) and entry.serial == 0 and committed.offset != entry.batch_id + 1:
        raise NotAnEntry(f"it contains batch {entry.batch_id}, but is not at offset {entry.batch_id + 1}")
    return entry


def _decode(text: str, signer: Signer) -> LedgerEntry | MovedLedger:
    try:
        fields = json.loads(text)
        version = fields["v"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise NotAnEntry("another program has written it") from None
    if version not in (1, 2, VERSION, IN_REAL_TIME):
        raise NewerEntry(f"it has format version {version!r}, but this release supports versions up to {IN_REAL_TIME}")
    if not signer.accepts(fields):
        raise NotAnEntry(
            "it is not signed with ledgerKey: somebody else has written it, or it was written before the key was set"
        )
    if (version == IN_REAL_TIME) != isinstance(fields.get("buckets"), int):
        raise NotAnEntry("a field is missing")
    match fields:
        case {"moved": str(topic), "serial": int(serial)} if version == VERSION:
            return MovedLedger(serial=serial, topic=topic)
        case {"query": str(query_id), "batch": int(batch_id), "digest": str(range_digest)} if version == 1:
            return LedgerEntry(query_id=query_id, batch_id=batch_id, digest=range_digest)
        case {"query": str(query_id), "batch": int(batch_id), "digest": str(range_digest), "serial": int(serial)}:
            run_id = fields.get("run")
            return LedgerEntry(
                query_id=query_id,
                batch_id=batch_id,
                digest=range_digest,
                serial=serial,
                run_id=run_id if isinstance(run_id, str) else None,
                earlier_runs=_runs(fields.get("after")),
                outputs=_outputs(fields.get("outputs")),
                sources=_sources(fields.get("sources")),
                writes=_writes(fields.get("writes")),
                incomplete=fields.get("incomplete") is True,
                table=_number(fields.get("table"), "table's version is"),
                transaction_version=_number(fields.get("tv"), "transaction version is"),
                written=_written(fields.get("written")),
                buckets=_number(fields.get("buckets"), "number of buckets is"),
            )
    raise NotAnEntry("a field is missing")


def _runs(value: object) -> tuple[str, ...]:
    match value:
        case None:
            return ()
        case list(runs):
            return tuple(str(run) for run in runs)
    raise NotAnEntry(f"its earlier runs are invalid: {value!r}")


def _number(value: object, what: str) -> int | None:
    match value:
        case None:
            return None
        case int(number):
            return number
    raise NotAnEntry(f"its {what} invalid: {value!r}")


def _outputs(value: object) -> dict[str, uuid.UUID | None]:
    match value:
        case None:
            return {}
        case dict(outputs):
            with contextlib.suppress(ValueError):  # raised below, with the value
                return {
                    str(name): None if topic_id is None else uuid.UUID(str(topic_id))
                    for name, topic_id in outputs.items()
                }
    raise NotAnEntry(f"its outputs are invalid: {value!r}")


def _sources(value: object) -> tuple[SourceProgress | None, ...] | None:
    match value:
        case None:
            return None
        case list(sources):
            return tuple(None if source is None else _source(source) for source in sources)
    raise NotAnEntry(f"its sources are invalid: {value!r}")


def _source(value: object) -> SourceProgress:
    match value:
        case {"cluster": str(cluster), "offsets": dict(offsets), **more}:
            with contextlib.suppress(ValueError, TypeError, AttributeError):  # raised below, with the value
                ends = offsets_from_json(offsets)
                fields: dict[str, Any] = {str(name): content for name, content in more.items()}
                start = None if "from" not in fields else ends | offsets_from_json(fields["from"])
                start = start and {tp: at for tp, at in start.items() if at != _NEW}
                origin = None if "origin" not in fields else origin_from_json(fields | {"cluster": fields["origin"]})
                return SourceProgress(cluster=cluster, offsets=ends, origin=origin, start=start)
    raise NotAnEntry(f"a source's progress is invalid: {value!r}")


def _writes(value: object) -> dict[str, str] | None:
    match value:
        case None:
            return None
        case dict(writes):
            return {str(destination): str(versions) for destination, versions in writes.items()}
    raise NotAnEntry(f"its batch writes are invalid: {value!r}")


def _written(value: object) -> BatchCounts | None:
    match value:
        case {"records": int(records), "bytes": int(size), "ms": int(milliseconds), **others}:
            dead, lost = others.get("dead"), others.get("lost")
            return BatchCounts(
                records=records,
                bytes=size,
                milliseconds=milliseconds,
                dead_letters=dead if isinstance(dead, int) else 0,
                lost={topic: count for topic, count in lost.items() if isinstance(count, int)}
                if isinstance(lost, dict)
                else {},
            )
    return None


def _order(entry: LedgerEntry | MovedLedger) -> tuple[int, int]:
    return entry.serial, entry.batch_id if isinstance(entry, LedgerEntry) else -1
