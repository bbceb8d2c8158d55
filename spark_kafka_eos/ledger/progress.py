"""Reads a sink's ledger for a source: the offsets at which the sink's transactions ended."""

from __future__ import annotations

from collections.abc import Mapping

from spark_kafka_eos.broker.cluster import Cluster
from spark_kafka_eos.errors import LedgerRefused
from spark_kafka_eos.ledger.entry import LedgerEntry, Unreadable, newest
from spark_kafka_eos.ledger.signing import UNSIGNED, Signer
from spark_kafka_eos.ledger.topic import LastRecord, LedgerTopic, follow
from spark_kafka_eos.model import TopicPartition
from spark_kafka_eos.options.client import client_options
from spark_kafka_eos.options.source import SinkLedger
from spark_kafka_eos.options.table import SOURCE, take


def cluster_id(options: Mapping[str, object]) -> str:
    """The id of the Kafka cluster that these options connect to, for the sink's option `sourceClusters`.

    `options` are `kafka.bootstrap.servers` and the security options. Raises ConfigurationError, AuthenticationFailed,
    BrokerUnreachable.
    """
    with Cluster(client_options(take(options, SOURCE))) as cluster:
        return cluster.cluster_id()


def last_entry(
    cluster: Cluster, topic: str, transactional_id: str, *, ignore_open: bool = False, signer: Signer = UNSIGNED
) -> LedgerEntry | None:
    """The ledger's last entry, for processes other than its owner: waits for an open transaction to end.

    With `ignore_open`, the entry of an open transaction does not count: the caller is about to abort it. Raises
    LedgerRefused if the record is not a ledger entry that `signer` accepts, AuthorizationFailed, BrokerError,
    BrokerUnreachable.
    """

    def read(kept: LedgerTopic) -> LastRecord | None:
        if not ignore_open:
            return kept.read_settled()
        return kept.read(None) if cluster.exists(kept.at.topic, patience_ms=0) else None

    kept = LedgerTopic(cluster, topic, transactional_id)
    record = read(kept)
    found = newest(None if record is None else record.value, {}, kept.at, signer)
    entry, _ = follow(cluster, transactional_id, found, kept.at, read, signer)
    if isinstance(entry, Unreadable):
        raise LedgerRefused(
            f"the last record of {transactional_id!r} in topic {topic!r} cannot be used: {entry.description}",
            action="Use the release that wrote it, or a later one. With ledgerKey, use the key of the sink that wrote "
            "it, and let that sink commit a batch with the key first.",
        )
    return entry


def signer_at(sink: SinkLedger) -> Signer:
    """Accepts what was signed with the keys that the ledger is read with."""
    return Signer(sink.transactional_id, [key.reveal() for key in sink.keys])


def committed_by(sink: SinkLedger, cluster_id: str) -> dict[TopicPartition, int]:
    """The offsets up to which the sink has committed the topics of the cluster with this id; empty if there are none.

    Raises what `last_entry` raises, and LedgerRefused if two of its sources read the same partition and are at
    different offsets.
    """
    with Cluster(sink.client) as cluster:
        entry = last_entry(cluster, sink.topic, sink.transactional_id, signer=signer_at(sink))
    offsets: dict[TopicPartition, int] = {}
    for source in (entry and entry.sources) or ():
        if source is None or source.cluster != cluster_id:
            continue
        for tp, offset in source.offsets.items():
            if offsets.setdefault(tp, offset) != offset:
                raise LedgerRefused(
                    f"two sources of the query with transactional.id {sink.transactional_id!r} read {tp}, and are at "
                    f"offsets {offsets[tp]} and {offset}",
                    action="Set startingOffsets as JSON, separately for each source.",
                )
    return offsets
