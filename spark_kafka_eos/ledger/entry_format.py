"""The ledger: the last committed micro-batch of a transactional.id, in two places, written in one transaction. Pure.

    the record   in the compacted topic `ledgerTopic`, partition 0, key = transactional.id; it never expires
                 {"v": 3, "serial": n, "query": query id, "batch": batch id, "digest": digest of the batch's range,
                  "run": id of the run that wrote it, "after": [the runs that committed before it, newest first],
                  "table": version of the table that took part,
                  "buckets": how many transactional ids commit by themselves, in real time ("v" is then 4),
                  "starts": [serials], of the entries that have started them, unless this one has started all,
                  "group": where these commit the source's offsets,
                  "left": like a source, without "from": where partitions ended in real time that were not read since
                  ("v" is then 4, too),
                  "tv": transaction version of the commit (1, or 2 for KIP-890's),
                  "outputs": {topic: topic id},
                  "sources": [{"cluster": id, "offsets": {topic: {partition: offset}}, "from": the same of its start,
                               "topics": {topic: topic id}, "epochs": {topic: {leader epoch: partitions}}}, null, …],
                  "writes": {destination: versions}, of batch writes,
                  "written": {"records": n, "bytes": n, "ms": n, "dead": n, "lost": {topic: records}},
                  "mac": signature with ledgerKey}
    the pointer  the committed offset of the group `<transactional.id>.ledger` for that partition, which can expire
                 offset: the record is there or after it, so a start need not read the whole partition
                 metadata: the same fields without "after", "starts", "group", "tv", "outputs", "sources", "writes" and
                 "written", and with an empty "left"

In real time, each bucket has a record of its own (`ledger.bucket_record`).

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
import json
import uuid
from collections.abc import Mapping
from typing import Any

from spark_kafka_eos.errors import ConfigurationError
from spark_kafka_eos.kafka.partitions import MAX_METADATA_BYTES, OffsetAndMetadata, offsets_from_json, offsets_to_json
from spark_kafka_eos.ledger.entry import BatchCounts, LedgerEntry, MovedLedger, SourceProgress
from spark_kafka_eos.ledger.signing import UNSIGNED, Signer
from spark_kafka_eos.source_offset import origin_from_json, origin_to_json

VERSION = 3
IN_REAL_TIME = 4  # the version of entries that releases without it must not take for those of a micro-batch

# What is believed of content that is not an entry: somebody else may have written it.
_MOST_SERIAL, _MOST_BUCKETS = 2**53, 1_000

_NEW = -1  # where a partition began that the batch's start does not have, because it is new


class NotAnEntry(ValueError):
    """The content is not a ledger entry that this release can read; the text says why."""


class NewerEntry(NotAnEntry):
    """A newer release has written it."""


class NotALedgers(NotAnEntry):
    """Another program has written it; or a pointer was reset, which leaves nothing of it."""


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
    return _entry(record_content(value, signer))


def record_content(value: bytes, signer: Signer) -> LedgerEntry | MovedLedger:
    """The same, or where the ledger has moved."""
    return _decode(value.decode(errors="replace"), signer)


def decode_committed(committed: OffsetAndMetadata, signer: Signer = UNSIGNED) -> LedgerEntry:
    """A pointer, or an entry of version 1, whose offset must match its batch id. Raises NotAnEntry."""
    return _entry(pointer_content(committed, signer))


def pointer_content(committed: OffsetAndMetadata, signer: Signer) -> LedgerEntry | MovedLedger:
    """The same, or where the ledger has moved."""
    entry = _decode(committed.metadata, signer)
    if isinstance(entry, LedgerEntry) and entry.serial == 0 and committed.offset != entry.batch_id + 1:
        raise NotAnEntry(f"it contains batch {entry.batch_id}, but is not at offset {entry.batch_id + 1}")
    return entry


def stated(text: str) -> tuple[int, int]:
    """The serial and the number of buckets that a record's or pointer's text says, even if it is not an entry; 0 for
    what it does not say, or beyond all that a release writes.
    """
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        return 0, 0
    if not isinstance(fields, dict):
        return 0, 0
    return _up_to(_MOST_SERIAL, fields.get("serial")), _up_to(_MOST_BUCKETS, fields.get("buckets"))


def _up_to(most: int, value: object) -> int:
    return value if isinstance(value, int) and 0 < value <= most else 0


def _fields(entry: LedgerEntry | MovedLedger) -> dict[str, Any]:
    if isinstance(entry, MovedLedger):
        return {"v": VERSION, "serial": entry.serial, "moved": entry.topic}
    version = VERSION if entry.buckets is None and entry.left is None else IN_REAL_TIME
    fields: dict[str, Any] = {"v": version, "serial": entry.serial, "query": entry.query_id, "batch": entry.batch_id}
    fields["digest"] = entry.digest
    fields |= {} if entry.run_id is None else {"run": entry.run_id}
    fields |= {} if entry.table is None else {"table": entry.table}
    fields |= {} if entry.buckets is None else {"buckets": entry.buckets}
    fields |= {} if entry.left is None else {"left": {}}
    return fields | {"incomplete": True} if entry.incomplete else fields


def _more_fields(entry: LedgerEntry | MovedLedger) -> dict[str, Any]:
    """What only the record has."""
    if isinstance(entry, MovedLedger):
        return {}
    fields: dict[str, Any] = {"after": list(entry.earlier_runs)} if entry.earlier_runs else {}
    fields |= {"starts": list(entry.starts)} if entry.starts else {}
    fields |= {} if entry.left is None else {"left": _source_fields(entry.left)}
    fields |= {} if entry.group is None else {"group": entry.group}
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


def _decode(text: str, signer: Signer) -> LedgerEntry | MovedLedger:
    try:
        fields = json.loads(text)
        version = fields["v"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise NotALedgers("another program has written it") from None
    if version not in (1, 2, VERSION, IN_REAL_TIME):
        raise NewerEntry(f"it has format version {version!r}, but this release supports versions up to {IN_REAL_TIME}")
    if not signer.accepts(fields):
        raise NotAnEntry(
            "it is not signed with ledgerKey: somebody else has written it, or it was written before the key was set"
        )
    if (version == IN_REAL_TIME) != (isinstance(fields.get("buckets"), int) or "left" in fields):
        raise NotAnEntry("a field is missing")
    match fields:
        case {"moved": str(topic), "serial": int(serial)} if version == VERSION:
            return MovedLedger(serial=serial, topic=topic)
        case {"query": str(query_id), "batch": int(batch_id), "digest": str(range_digest)} if version == 1:
            return LedgerEntry(query_id=query_id, batch_id=batch_id, digest=range_digest)
        case {"query": str(query_id), "batch": int(batch_id), "digest": str(range_digest), "serial": int(serial)}:
            run_id, group = fields.get("run"), fields.get("group")
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
                group=group if isinstance(group, str) else None,
                starts=_starts(fields.get("starts")),
                left=_left(fields.get("left")),
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


def _starts(value: object) -> tuple[int, ...]:
    match value:
        case None:
            return ()
        case list(serials) if all(isinstance(serial, int) for serial in serials):
            return tuple(serials)
    raise NotAnEntry(f"what has started its buckets is invalid: {value!r}")


def _left(value: object) -> SourceProgress | None:
    match value:
        case None:
            return None
        case dict() if not value:  # in a pointer
            return SourceProgress(cluster="", offsets={})
    return _source(value)


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
