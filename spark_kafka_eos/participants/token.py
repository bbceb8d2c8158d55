"""The token: which Kafka transaction the table's last rows belong to, and which batch they are. Pure.

    {"v": 1, "id": transactional id, "producer": producer id, "epoch": epoch, "tv": transaction.version,
     "cluster": id of the Kafka cluster, "query": query id, "batch": batch id, "digest": digest of the batch's range,
     "serial": of its ledger entry, "records": n, "bytes": n, "mac": signature with ledgerKey}

With producer id and epoch, any process can commit the transaction (KIP-98: it does not belong to a connection). The
serial tells whether the ledger's entry is older or newer. An epoch is used for one transaction, so each attempt at a
batch has a token of its own.

Tokens of earlier releases, and of clusters without an id, have no `cluster`. Earlier releases ignore the field.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from spark_kafka_eos.kafka.producer import ProducerIdentity
from spark_kafka_eos.ledger.entry import BatchCounts, LedgerEntry
from spark_kafka_eos.ledger.signing import MAC, Signer
from spark_kafka_eos.micro_batch import MicroBatch

VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """The transaction of the table's last rows. `records` and `bytes` are those that it appended to Kafka."""

    identity: ProducerIdentity
    query_id: str
    batch_id: int
    digest: str
    serial: int
    records: int
    bytes: int
    cluster: str = ""

    def names(self, other: LedgerEntry | MicroBatch) -> bool:
        """Whether it is the same batch, with the same range."""
        return (self.query_id, self.batch_id, self.digest) == (other.query_id, other.batch_id, other.digest)

    def __str__(self) -> str:
        return f"batch {self.batch_id} of query {self.query_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableToken:
    """Content that is not a token of this sink; `reason` says why."""

    reason: str


def token_of(identity: ProducerIdentity, entry: LedgerEntry, written: BatchCounts, cluster: str) -> Token:
    """The token of the transaction that is prepared under `identity` on `cluster` and contains `entry`."""
    return Token(
        identity=identity,
        query_id=entry.query_id,
        batch_id=entry.batch_id,
        digest=entry.digest,
        serial=entry.serial,
        records=written.records,
        bytes=written.bytes,
        cluster=cluster,
    )


def encode(token: Token, signer: Signer) -> str:
    """The text that the table stores; equal tokens have equal texts."""
    fields: dict[str, Any] = {
        "v": VERSION,
        "id": token.identity.transactional_id,
        "producer": token.identity.producer_id,
        "epoch": token.identity.epoch,
        "tv": token.identity.transaction_version,
        "query": token.query_id,
        "batch": token.batch_id,
        "digest": token.digest,
        "serial": token.serial,
        "records": token.records,
        "bytes": token.bytes,
        **({"cluster": token.cluster} if token.cluster else {}),
    }
    return json.dumps(signer.signed(fields), separators=(",", ":"), ensure_ascii=True)


def is_signed(text: str | None) -> bool:
    """Whether the token has a signature, whoever made it: `decode` checks that."""
    try:
        fields = json.loads(text or "")
    except (ValueError, RecursionError):
        return False
    return isinstance(fields, dict) and MAC in fields


def decode(text: str | None, signer: Signer) -> Token | UnreadableToken | None:
    """Inverse of `encode`; None stays None."""
    if text is None:
        return None
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict) or "v" not in fields:
        return UnreadableToken(reason="another program has written it")
    if fields["v"] != VERSION:
        return UnreadableToken(reason=f"it has format version {fields['v']!r}, but this release supports {VERSION}")
    if not signer.accepts(fields):
        return UnreadableToken(
            reason="it is not signed with ledgerKey: somebody else has written it, or it was written before the key "
            "was set"
        )
    match {"cluster": "", **fields}:
        case {
            "id": str(name),
            "producer": int(producer_id),
            "epoch": int(epoch),
            "tv": int(version),
            "query": str(query_id),
            "batch": int(batch_id),
            "digest": str(digest),
            "serial": int(serial),
            "records": int(records),
            "bytes": int(size),
            "cluster": str(cluster),
        }:
            identity = ProducerIdentity(
                transactional_id=name, producer_id=producer_id, epoch=epoch, transaction_version=version
            )
            return Token(
                identity=identity,
                query_id=query_id,
                batch_id=batch_id,
                digest=digest,
                serial=serial,
                records=records,
                bytes=size,
                cluster=cluster,
            )
    return UnreadableToken(reason="a field is missing")
