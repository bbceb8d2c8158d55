"""Reads a sink's ledger for a source: the offsets at which the sink's transactions ended."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from spark_kafka_eos.errors import LedgerRefused
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.ledger.bucket_reader import BucketReader
from spark_kafka_eos.ledger.copies import newest
from spark_kafka_eos.ledger.entry import LedgerEntry, SourceProgress, UnreadableEntry
from spark_kafka_eos.ledger.real_time import with_records
from spark_kafka_eos.ledger.signing import UNSIGNED, Signer
from spark_kafka_eos.ledger.topic import LedgerTopic, follow
from spark_kafka_eos.options.client import client_options
from spark_kafka_eos.options.source import SinkLedger
from spark_kafka_eos.options.table import SOURCE, parse_options
from spark_kafka_eos.source_offset import Origin, SinkIdentity


def cluster_id(options: Mapping[str, object]) -> str:
    """The id of the Kafka cluster that these options connect to, for the sink's option `sourceClusters`.

    `options` are `kafka.bootstrap.servers` and the security options. Raises ConfigurationError, AuthenticationFailed,
    BrokerUnreachable.
    """
    with Cluster(client_options(parse_options(options, SOURCE))) as cluster:
        return cluster.cluster_id()


def last_entry(
    cluster: Cluster, topic: str, transactional_id: str, *, ignore_open: bool = False, signer: Signer = UNSIGNED
) -> LedgerEntry | None:
    """The ledger's last entry, for processes other than its owner: waits for an open transaction to end. In real time,
    its offsets are those where the buckets have ended.

    With `ignore_open`, the entry of an open transaction does not count: the caller is about to abort it. Raises
    LedgerRefused if the record is not a ledger entry that `signer` accepts, AuthorizationFailed, BrokerError,
    BrokerUnreachable.
    """

    def read(kept: LedgerTopic) -> bytes | None:
        if not ignore_open:
            return kept.read_settled()
        return kept.read(None).value if cluster.exists(kept.at.topic, patience_ms=0) else None

    kept = LedgerTopic(cluster, topic, transactional_id)
    latest = newest(read(kept), {}, kept.at, signer)
    entry, passed = follow(cluster, transactional_id, latest, kept.at, read, signer)
    if isinstance(entry, UnreadableEntry):
        raise LedgerRefused(
            f"the last record of {transactional_id!r} in topic {topic!r} cannot be used: {entry.description}",
            action="Use the release that wrote it, or a later one. With ledgerKey, use the key of the sink that wrote "
            "it, and let that sink commit a batch with the key first.",
        )
    if entry is not None and entry.buckets is not None and not ignore_open:
        buckets = BucketReader(cluster, transactional_id, signer)
        records = buckets.read_settled(range(entry.buckets), [place.topic for place in passed])
        entry = with_records(entry, records)
    return entry


def signer_at(sink: SinkLedger) -> Signer:
    """Accepts what was signed with the keys that the ledger is read with."""
    return Signer(sink.transactional_id, [key.reveal() for key in sink.keys])


def committed_by(sink: SinkLedger, cluster_id: str) -> dict[TopicPartition, int]:
    """The offsets up to which the sink has committed the topics of the cluster with this id, also those that it only
    read in real time, and not since; empty if there are none.

    Raises what `last_entry` raises, and LedgerRefused if two of its sources read the same partition and are at
    different offsets.
    """
    progress, _ = committed_progress(sink, cluster_id)
    return dict(progress.offsets)


def committed_progress(sink: SinkLedger, cluster_id: str) -> tuple[SourceProgress, SinkIdentity]:
    """The same, with the origin of the offsets as far as the ledger has it; and whose ledger it is."""
    entry, cluster = _last_entry(sink)
    identity = SinkIdentity(transactional_id=sink.transactional_id, ledger_topic=sink.topic, cluster=cluster)
    left = None if entry is None or entry.left is None or entry.left.cluster != cluster_id else entry.left
    return _merged(sink, _sources(entry, cluster_id), left), identity


def last_batch(sink: SinkLedger, origin: Origin, partitions: Collection[TopicPartition]) -> SourceProgress | None:
    """The last committed batch of the source that reads these partitions, of topics with the ids in `origin`; None if
    the ledger has none.

    Raises LedgerRefused if several sources read them and were at different offsets.
    """
    requested, candidates = set(partitions), list[SourceProgress]()
    entry, _ = _last_entry(sink)
    if entry is not None and (entry.incomplete or entry.buckets is not None):
        return None  # its end is not that of all that the batch should have written, or it has none
    for source in _sources(entry, origin.cluster):
        ids = {} if source.origin is None else source.origin.topic_ids
        there = {name for name, topic_id in origin.topic_ids.items() if ids.get(name, topic_id) == topic_id}
        kept = {tp for tp in source.offsets if tp.topic in there}
        if kept & requested:
            candidates.append(_only(source, kept))
    if not candidates:
        return None
    # Of sources that share a partition, the one with the same partitions is meant.
    best = max(len(requested & source.offsets.keys()) for source in candidates)
    candidates = [source for source in candidates if len(requested & source.offsets.keys()) == best]
    if any((source.offsets, source.start) != (candidates[0].offsets, candidates[0].start) for source in candidates):
        raise _ambiguous(sink, "the same partitions, and were at different offsets")
    return candidates[0]


def _only(source: SourceProgress, kept: Collection[TopicPartition]) -> SourceProgress:
    start = None if source.start is None else {tp: at for tp, at in source.start.items() if tp in kept}
    return replace(source, offsets={tp: at for tp, at in source.offsets.items() if tp in kept}, start=start)


def _merged(sink: SinkLedger, sources: Sequence[SourceProgress], left: SourceProgress | None) -> SourceProgress:
    offsets: dict[TopicPartition, int] = {}
    topic_ids: dict[str, uuid.UUID] = {}
    epochs: dict[TopicPartition, int] = {}
    for source in (*sources, *(() if left is None else (left,))):
        for tp, offset in source.offsets.items():
            if offsets.setdefault(tp, offset) != offset:
                raise _ambiguous(sink, f"{tp}, and are at offsets {offsets[tp]} and {offset}")
        if source.origin is not None:
            topic_ids |= source.origin.topic_ids
            epochs |= source.origin.leader_epochs
    finds_pattern = all(source.origin is not None and source.origin.finds_pattern for source in sources)
    origin = Origin(cluster="", topic_ids=topic_ids, leader_epochs=epochs, finds_pattern=finds_pattern)
    return SourceProgress(cluster="", offsets=offsets, origin=origin)


def _ambiguous(sink: SinkLedger, what: str) -> LedgerRefused:
    return LedgerRefused(
        f"two sources of the query with transactional.id {sink.transactional_id!r} read {what}",
        action="Set startingOffsets as JSON, separately for each source, without sink.kafka.transactional.id.",
    )


def _last_entry(sink: SinkLedger) -> tuple[LedgerEntry | None, str]:
    """The entry, and the id of the cluster that has it."""
    with Cluster(sink.client) as cluster:
        entry = last_entry(cluster, sink.topic, sink.transactional_id, signer=signer_at(sink))
        return entry, cluster.cluster_id()


def _sources(entry: LedgerEntry | None, cluster_id: str) -> list[SourceProgress]:
    """The progress of the sources on the cluster with this id."""
    sources = () if entry is None else entry.sources or ()
    return [source for source in sources if source is not None and source.cluster == cluster_id]
