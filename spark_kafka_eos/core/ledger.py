"""The ledger's entry as Kafka keeps it: a consumer group's committed offset with a little JSON beside it.

    offset    batch id + 1 (so that lag tools show the batches done)
    metadata  {"v": 1, "query": query id, "batch": batch id, "digest": digest of the batch's range}

The batch id stands in both places on purpose: an entry whose halves disagree was not written by this code, and what
cannot be understood is refused, never taken for "no entry". A broker takes at most 4,096 bytes of metadata
(`offset.metadata.max.bytes`).
"""

from __future__ import annotations

import hashlib
import json

from spark_kafka_eos.errors import ConfigurationError, LedgerRefused
from spark_kafka_eos.model import LedgerEntry, OffsetAndMetadata

VERSION = 1
MAX_METADATA_BYTES = 4_096

_SOURCE_MARK = "kafka-eos transactional.id="


def digest(batch_range: object) -> str:
    """A short hash of a batch's range: any JSON value; equal values give equal digests whatever their keys' order.

    Parse JSON text first, or its spelling counts too. 64 bits: this guards against accidents, not against an attacker.
    """
    canonical = json.dumps(batch_range, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def encode(entry: LedgerEntry) -> OffsetAndMetadata:
    """The offset and metadata to commit for `entry`. ConfigurationError if its query id is too long."""
    fields = {"v": VERSION, "query": entry.query_id, "batch": entry.batch_id, "digest": entry.digest}
    metadata = json.dumps(fields, separators=(",", ":"), ensure_ascii=True)
    if len(metadata) > MAX_METADATA_BYTES:
        raise ConfigurationError(
            "txnAppId",
            f"the ledger entry takes {len(metadata):,} bytes, a broker keeps at most {MAX_METADATA_BYTES:,}",
            action="Choose a shorter id.",
        )
    return OffsetAndMetadata(offset=entry.batch_id + 1, metadata=metadata)


def decode(committed: OffsetAndMetadata) -> LedgerEntry:
    """Inverse of `encode`. Raises LedgerRefused for anything that this version did not write."""
    try:
        fields = json.loads(committed.metadata)
        version = fields["v"]
    except (ValueError, KeyError, TypeError):
        raise _refused(committed, "is not a ledger entry; some other program commits to the ledger's group") from None
    if version != VERSION:
        raise LedgerRefused(
            f"the ledger entry has format version {version!r}, this release reads version {VERSION}",
            action="Run this query with the release that wrote the entry, or a later one.",
        )
    match fields:
        case {"query": str(query_id), "batch": int(batch_id), "digest": str(range_digest)}:
            entry = LedgerEntry(query_id=query_id, batch_id=batch_id, digest=range_digest)
        case _:
            raise _refused(committed, "lacks a field of a ledger entry")
    if committed.offset != entry.batch_id + 1:
        raise _refused(committed, f"names batch {entry.batch_id}, which belongs at offset {entry.batch_id + 1}")
    return entry


def source_mark(transactional_id: str) -> str:
    """The metadata of source offsets that a transaction commits: nobody else may commit to that group."""
    return (_SOURCE_MARK + transactional_id)[: MAX_METADATA_BYTES // 4]  # a character takes four bytes at most


def marked_by(committed: OffsetAndMetadata) -> str | None:
    """The transactional.id whose transactions commit this source offset; None if it bears no `source_mark`."""
    found = committed.metadata.startswith(_SOURCE_MARK)
    return committed.metadata.removeprefix(_SOURCE_MARK) if found else None


def _refused(committed: OffsetAndMetadata, why: str) -> LedgerRefused:
    shown = committed.metadata if len(committed.metadata) <= 200 else committed.metadata[:200] + "…"
    return LedgerRefused(
        f"what is committed in the ledger's group (offset {committed.offset}, metadata {shown!r}) {why}",
        action="No program but this sink may commit to the group `<kafka.transactional.id>.ledger`; "
        "use another `kafka.transactional.id`, with a new checkpointLocation and startingOffsets=committed.",
    )
