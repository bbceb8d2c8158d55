"""The ledger: the last committed micro-batch of a transactional.id, in two places, written in one transaction.

    the record   in the compacted topic `ledgerTopic`, partition 0, key = transactional.id; it never expires
                 {"v": 2, "serial": n, "query": query id, "batch": batch id, "digest": digest of the batch's range,
                  "sources": [{"cluster": id, "offsets": {topic: {partition: offset}}}, null, …],
                  "written": {"records": n, "bytes": n, "ms": n, "dead": n}}
    the pointer  the committed offset of the group `<transactional.id>.ledger` for that partition, which can expire
                 offset: the record is there or after it, so a start need not read the whole partition
                 metadata: the same fields without "sources" and "written"

`serial` increases by one with each commit, so the later of the two is known if one was lost. An entry of version 1 was
only in the group: for partition 0 of an output topic, offset = batch id + 1, without serial and sources. It is valid
until there is an entry of version 2.

"written" is for people. Releases up to 0.2.0 neither write nor read it, and nothing is decided by it, so an entry is
valid without it, and whatever it contains. It has "dead" only if the batch has dead letters.

Unreadable content is refused, never treated as "no entry". A broker accepts at most 4,096 bytes of metadata
(`offset.metadata.max.bytes`).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spark_kafka_eos.errors import ConfigurationError
from spark_kafka_eos.model import OffsetAndMetadata, Offsets, TopicPartition, offsets_from_json, offsets_to_json

VERSION = 2
MAX_METADATA_BYTES = 4_096

_SOURCE_MARK = "kafka-eos transactional.id="


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceProgress:
    """The committed `offsets` of one source of a query, on the cluster with this id."""

    cluster: str
    offsets: Offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What a batch wrote: `records` of the output and the `bytes` of their record batches; none if all were filtered.

    `milliseconds` is the wall time of the steps begin, encode and append; the others end after the entry is sent.
    `dead_letters` are among the records.
    """

    records: int
    bytes: int
    milliseconds: int
    dead_letters: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """The last micro-batch committed under a transactional.id.

    `serial` numbers the commits under that id across queries, so the entry with the higher number is the later one; it
    is 0 in old entries, which had no number. `sources` has each source's progress in Spark's order, None for a source
    that is not Kafka; it is None if the entry does not contain it. `incomplete`: only some DataFrames of this batch
    were committed. `written` is for people and decides nothing; None in entries of 0.2.0 and older.
    """

    query_id: str
    batch_id: int
    digest: str
    serial: int = 0
    sources: tuple[SourceProgress | None, ...] | None = None
    incomplete: bool = False
    written: Written | None = None


class NotAnEntry(ValueError):
    """The content is not a ledger entry that this release can read; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """Ledger content that is not an entry: `description` is for people, `digest` identifies it exactly."""

    description: str
    digest: str


def digest(batch_range: object) -> str:
    """A short hash of a batch's range, which is any JSON value. Equal values have equal digests, whatever the key
    order.

    Parse JSON text first, or its formatting counts, too. With 64 bits, it protects from accidents, not from attackers.
    """
    canonical = json.dumps(batch_range, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def encode_record(entry: LedgerEntry) -> bytes:
    """The record's value."""
    fields = _fields(entry)
    if entry.sources is not None:
        fields["sources"] = [
            None if source is None else {"cluster": source.cluster, "offsets": offsets_to_json(source.offsets)}
            for source in entry.sources
        ]
    if entry.written is not None:
        size = entry.written
        fields["written"] = {"records": size.records, "bytes": size.bytes, "ms": size.milliseconds}
        fields["written"] |= {"dead": size.dead_letters} if size.dead_letters else {}
    return _json(fields).encode()


def encode_pointer(entry: LedgerEntry, position: int) -> OffsetAndMetadata:
    """The offset and metadata to commit with the record, which is at `position` or after it.

    Raises ConfigurationError if the query's id is too long.
    """
    metadata = _json(_fields(entry))
    if len(metadata) > MAX_METADATA_BYTES:
        raise ConfigurationError(
            "txnAppId",
            f"the ledger entry has {len(metadata):,} bytes, but a broker accepts at most {MAX_METADATA_BYTES:,}",
            action="Choose a shorter id.",
        )
    return OffsetAndMetadata(offset=position, metadata=metadata)


def decode_record(value: bytes) -> LedgerEntry:
    """Inverse of `encode_record`. Raises NotAnEntry for anything that neither this nor an earlier release wrote."""
    return _decode(value.decode(errors="replace"))


def decode_committed(committed: OffsetAndMetadata) -> LedgerEntry:
    """A pointer, or an entry of version 1, whose offset must match its batch id. Raises NotAnEntry."""
    entry = _decode(committed.metadata)
    if entry.serial == 0 and committed.offset != entry.batch_id + 1:
        raise NotAnEntry(f"it contains batch {entry.batch_id}, but is not at offset {entry.batch_id + 1}")
    return entry


def newest(
    record: bytes | None, committed: Mapping[TopicPartition, OffsetAndMetadata], at: TopicPartition
) -> LedgerEntry | Unreadable | None:
    """The valid entry, from the record and from everything `committed` to the ledger's group; the pointer is at `at`.

    Record and pointer are written in one transaction, so if one of them is older, it was lost, and the later is valid.
    """
    try:
        pointer = committed.get(at)
        entries = [] if record is None else [decode_record(record)]
        entries += [] if pointer is None else [decode_committed(pointer)]
        # Earlier releases kept it at an output topic; any of them, so their order does not matter.
        entries = entries or [decode_committed(entry) for place, entry in sorted(committed.items()) if place != at]
    except NotAnEntry as error:
        shown = [repr(record)] if record is not None else []
        shown += [f"{place}: offset {entry.offset}, metadata {entry.metadata!r}" for place, entry in committed.items()]
        return _unreadable(f"the ledger contains something that is not an entry ({error}): {'; '.join(shown)}")
    if not entries:
        return None
    last = max(entries, key=lambda entry: (entry.serial, entry.batch_id))
    rivals = [entry for entry in entries if entry.serial == last.serial and _contradict(entry, last)]
    if rivals:
        each = "; ".join(f"batch {entry.batch_id} of query {entry.query_id}" for entry in entries)
        return _unreadable(f"the ledger has several entries, and it is unknown which one is the last: {each}")
    return last


def source_mark(transactional_id: str) -> str:
    """The metadata of source offsets that a transaction commits; it reserves the group for this transactional.id."""
    return (_SOURCE_MARK + transactional_id)[: MAX_METADATA_BYTES // 4]  # a character has at most four bytes


def marked_by(committed: OffsetAndMetadata) -> str | None:
    """The transactional.id whose transactions commit this source offset; None if it has no `source_mark`."""
    marked = committed.metadata.startswith(_SOURCE_MARK)
    return committed.metadata.removeprefix(_SOURCE_MARK) if marked else None


def strangers(committed: Mapping[TopicPartition, OffsetAndMetadata | None], transactional_id: str) -> list[str]:
    """The other transactional.ids whose transactions commit source offsets to this group."""
    ours = marked_by(OffsetAndMetadata(offset=0, metadata=source_mark(transactional_id)))
    marks = {marked_by(at) for at in committed.values() if at is not None}
    return sorted(mark for mark in marks if mark is not None and mark != ours)


def _contradict(one: LedgerEntry, other: LedgerEntry) -> bool:
    """Whether two entries with the same serial contradict each other. A query may have left several without a
    serial.
    """
    if one.serial == 0:
        return one.query_id != other.query_id
    return (one.query_id, one.batch_id, one.digest) != (other.query_id, other.batch_id, other.digest)


def _fields(entry: LedgerEntry) -> dict[str, Any]:
    fields: dict[str, Any] = {"v": VERSION, "serial": entry.serial, "query": entry.query_id, "batch": entry.batch_id}
    fields["digest"] = entry.digest
    return fields | {"incomplete": True} if entry.incomplete else fields


def _json(fields: Mapping[str, Any]) -> str:
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=True)


def _decode(text: str) -> LedgerEntry:
    try:
        fields = json.loads(text)
        version = fields["v"]
    except (ValueError, KeyError, TypeError):
        raise NotAnEntry("another program has written it") from None
    if version not in (1, VERSION):
        raise NotAnEntry(f"it has format version {version!r}, but this release supports versions up to {VERSION}")
    match fields:
        case {"query": str(query_id), "batch": int(batch_id), "digest": str(range_digest)} if version == 1:
            return LedgerEntry(query_id=query_id, batch_id=batch_id, digest=range_digest)
        case {"query": str(query_id), "batch": int(batch_id), "digest": str(range_digest), "serial": int(serial)}:
            return LedgerEntry(
                query_id=query_id,
                batch_id=batch_id,
                digest=range_digest,
                serial=serial,
                sources=_sources(fields.get("sources")),
                incomplete=fields.get("incomplete") is True,
                written=_written(fields.get("written")),
            )
    raise NotAnEntry("a field is missing")


def _sources(value: object) -> tuple[SourceProgress | None, ...] | None:
    match value:
        case None:
            return None
        case list(sources):
            return tuple(None if source is None else _source(source) for source in sources)
    raise NotAnEntry(f"its sources are invalid: {value!r}")


def _source(value: object) -> SourceProgress:
    match value:
        case {"cluster": str(cluster), "offsets": dict(offsets)}:
            with contextlib.suppress(ValueError, TypeError):  # raised below, with the value
                return SourceProgress(cluster=cluster, offsets=offsets_from_json(offsets))
    raise NotAnEntry(f"a source's progress is invalid: {value!r}")


def _written(value: object) -> Written | None:
    match value:
        case {"records": int(records), "bytes": int(size), "ms": int(milliseconds), **others}:
            dead = others.get("dead")
            number = dead if isinstance(dead, int) else 0
            return Written(records=records, bytes=size, milliseconds=milliseconds, dead_letters=number)
    return None


def _unreadable(content: str) -> Unreadable:
    return Unreadable(description=content if len(content) <= 600 else f"{content[:600]}…", digest=digest(content))
