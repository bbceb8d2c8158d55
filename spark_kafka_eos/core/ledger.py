"""The ledger: which micro-batch was committed last under a transactional.id, in two places that one transaction writes.

    the record   in the compacted topic `ledgerTopic`, partition 0, key = transactional.id; it never expires
                 {"v": 2, "serial": n, "query": query id, "batch": batch id, "digest": digest of the batch's range,
                  "sources": [{"cluster": id, "offsets": {topic: {partition: offset}}}, null, …]}
    the pointer  the committed offset of the group `<transactional.id>.ledger` at that partition, which does expire
                 offset: from where on the record is found, so that a start need not read the whole partition
                 metadata: the same without "sources"

`serial` grows by one with each commit, so it is known which of the two is the later, should one have been lost. An
entry of version 1 was the group's alone: at partition 0 of an output topic, offset = batch id + 1, without serial and
sources. It counts until the first entry of version 2 is there.

What cannot be understood is refused, never taken for "no entry". A broker takes at most 4,096 bytes of metadata
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
from spark_kafka_eos.model import (
    LedgerEntry,
    OffsetAndMetadata,
    SourceProgress,
    TopicPartition,
    offsets_from_json,
    offsets_to_json,
)

VERSION = 2
MAX_METADATA_BYTES = 4_096

_SOURCE_MARK = "kafka-eos transactional.id="


class NotAnEntry(ValueError):
    """What stands in the ledger's place is no entry that this release can read; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """What the ledger holds where no entry can be made of it: `found` for people, `digest` names exactly that."""

    found: str
    digest: str


def digest(batch_range: object) -> str:
    """A short hash of a batch's range: any JSON value; equal values give equal digests whatever their keys' order.

    Parse JSON text first, or its spelling counts too. 64 bits: this guards against accidents, not against an attacker.
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
    return _json(fields).encode()


def encode_pointer(entry: LedgerEntry, position: int) -> OffsetAndMetadata:
    """The offset and metadata to commit beside the record, which is found at `position` or behind it.

    ConfigurationError if the query's id is too long.
    """
    metadata = _json(_fields(entry))
    if len(metadata) > MAX_METADATA_BYTES:
        raise ConfigurationError(
            "txnAppId",
            f"the ledger entry takes {len(metadata):,} bytes, a broker keeps at most {MAX_METADATA_BYTES:,}",
            action="Choose a shorter id.",
        )
    return OffsetAndMetadata(offset=position, metadata=metadata)


def decode_record(value: bytes) -> LedgerEntry:
    """Inverse of `encode_record`. Raises NotAnEntry for anything that no release up to this one wrote."""
    return _decode(value.decode(errors="replace"))


def decode_committed(committed: OffsetAndMetadata) -> LedgerEntry:
    """A pointer, or an entry of version 1, whose batch id stands in both places. Raises NotAnEntry."""
    entry = _decode(committed.metadata)
    if entry.serial == 0 and committed.offset != entry.batch_id + 1:
        raise NotAnEntry(f"it names batch {entry.batch_id}, which belongs at offset {entry.batch_id + 1}")
    return entry


def newest(
    record: bytes | None, committed: Mapping[TopicPartition, OffsetAndMetadata], at: TopicPartition
) -> LedgerEntry | Unreadable | None:
    """The entry that holds, of the record and of all that is `committed` to the ledger's group; the pointer is `at`.

    Record and pointer are written by one transaction, so where one of them is behind it was lost, and the later holds.
    """
    try:
        pointer = committed.get(at)
        found = [] if record is None else [decode_record(record)]
        found += [] if pointer is None else [decode_committed(pointer)]
        # Where earlier releases kept it; wherever that was, so the order of output topics means nothing.
        found = found or [decode_committed(entry) for place, entry in sorted(committed.items()) if place != at]
    except NotAnEntry as error:
        shown = [repr(record)] if record is not None else []
        shown += [f"{place}: offset {entry.offset}, metadata {entry.metadata!r}" for place, entry in committed.items()]
        return _unreadable(f"what the ledger holds is no entry ({error}): {'; '.join(shown)}")
    if not found:
        return None
    last = max(found, key=lambda entry: (entry.serial, entry.batch_id))
    rivals = [entry for entry in found if entry.serial == last.serial and _contradict(entry, last)]
    if rivals:
        each = "; ".join(f"batch {entry.batch_id} of query {entry.query_id}" for entry in found)
        return _unreadable(f"the ledger has several entries, and nothing tells which is the last: {each}")
    return last


def source_mark(transactional_id: str) -> str:
    """The metadata of source offsets that a transaction commits: nobody else may commit to that group."""
    return (_SOURCE_MARK + transactional_id)[: MAX_METADATA_BYTES // 4]  # a character takes four bytes at most


def marked_by(committed: OffsetAndMetadata) -> str | None:
    """The transactional.id whose transactions commit this source offset; None if it bears no `source_mark`."""
    found = committed.metadata.startswith(_SOURCE_MARK)
    return committed.metadata.removeprefix(_SOURCE_MARK) if found else None


def strangers(committed: Mapping[TopicPartition, OffsetAndMetadata | None], transactional_id: str) -> list[str]:
    """The other transactional.ids whose transactions commit source offsets to this group."""
    ours = marked_by(OffsetAndMetadata(offset=0, metadata=source_mark(transactional_id)))
    marks = {marked_by(at) for at in committed.values() if at is not None}
    return sorted(mark for mark in marks if mark is not None and mark != ours)


def _contradict(one: LedgerEntry, other: LedgerEntry) -> bool:
    """Whether two entries of one serial can't both hold; of those without one, a query may have left several."""
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
        raise NotAnEntry("some other program writes there") from None
    if version not in (1, VERSION):
        raise NotAnEntry(f"it has format version {version!r}, this release reads up to {VERSION}")
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
            )
    raise NotAnEntry("it lacks a field")


def _sources(found: object) -> tuple[SourceProgress | None, ...] | None:
    match found:
        case None:
            return None
        case list(sources):
            return tuple(None if source is None else _source(source) for source in sources)
    raise NotAnEntry(f"its sources are {found!r}")


def _source(found: object) -> SourceProgress:
    match found:
        case {"cluster": str(cluster), "offsets": dict(offsets)}:
            with contextlib.suppress(ValueError, TypeError):  # said below, with the value
                return SourceProgress(cluster=cluster, offsets=offsets_from_json(offsets))
    raise NotAnEntry(f"a source's progress is {found!r}")


def _unreadable(found: str) -> Unreadable:
    return Unreadable(found=found if len(found) <= 600 else f"{found[:600]}…", digest=digest(found))
