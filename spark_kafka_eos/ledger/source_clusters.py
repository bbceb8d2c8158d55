"""Which cluster each source of a batch reads, and which of its topics are those of the sink's cluster.

A topic's name alone says nothing: another cluster may have a topic of the same name. A kafka-eos source says in the
checkpoint which cluster and which topics it reads (`model.Origin`). Of any other source, only the option
`sourceClusters` says it; without the option, it is taken to be on the sink's cluster, which `preflight.run` doubts as
far as it can.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace

from spark_kafka_eos.errors import ConfigurationError, UnknownTopic
from spark_kafka_eos.kafka.partitions import Offsets, TopicPartition, lowest
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.ledger.write_verdicts import NAMED_BY_ROWS
from spark_kafka_eos.micro_batch import MicroBatch, SourceRange
from spark_kafka_eos.options import SinkOptions
from spark_kafka_eos.source_offset import Origin


class SourceClusters:
    """The sources of a sink's batches, as seen from the sink's cluster. Raises ConfigurationError if `sourceClusters`
    contradicts a batch; AuthorizationFailed, BrokerError, BrokerUnreachable.
    """

    def __init__(self, options: SinkOptions, cluster: Cluster) -> None:
        self._named, self._cluster = options.source_clusters, cluster
        self._fail_on_data_loss = options.fail_on_data_loss
        self._ids_here: Mapping[str, uuid.UUID] = {}  # of source topics that were seen to be on the sink's cluster

    def of(self, batch: MicroBatch) -> tuple[str, ...]:
        """The cluster id of each of the batch's sources."""
        return clusters_of(batch, self._named, self._cluster.cluster_id())

    def known(self, batch: MicroBatch) -> MicroBatch:
        """The batch, with what this cluster knows of it: the ids of a batch write's topics, and of a source's topics
        that are here, if the source does not say which records it reads.
        """
        if batch.destination:
            return replace(batch, destination=self._destination(batch.destination))
        own = self._cluster.cluster_id()
        pairs = zip(batch.sources, self.of(batch), strict=True)
        sources = tuple(
            self._with_origin(source) if source is not None and source.origin is None and cluster == own else source
            for source, cluster in pairs
        )
        return replace(batch, sources=sources)

    def _with_origin(self, source: SourceRange) -> SourceRange:
        """The source with the origin of its topics now; also of its start, unless data may have been lost."""
        origin = self._origin(source)
        return replace(source, origin=origin, start_origin=origin if self._fail_on_data_loss else None)

    def _origin(self, source: SourceRange) -> Origin:
        ids = self.topic_ids({tp.topic for tp in source.end})
        epochs = {tp: self._cluster.leader_epoch(tp) for tp in source.end if tp.topic in ids}
        return Origin(cluster=self._cluster.cluster_id(), topic_ids=ids, leader_epochs=epochs)

    def _destination(self, topics: str) -> str:
        """The topics with their ids: one that was created again is another destination."""
        named = topics.removeprefix(NAMED_BY_ROWS)
        names = [name for name in named.split(",") if name]
        ids = self.topic_ids(names)
        return topics[: len(topics) - len(named)] + ",".join(f"{name}@{ids.get(name, '')}" for name in names)

    def ends_here(self, batch: MicroBatch) -> dict[TopicPartition, int]:
        """Where the batch ends in the partitions that it reads from the sink's cluster."""
        return lowest(
            {tp: offset for tp, offset in source.end.items() if is_here(tp)} for source, is_here in self._here(batch)
        )

    def starts_here(self, batch: MicroBatch) -> list[TopicPartition]:
        """The partitions with a known start that the batch reads from the sink's cluster, sorted."""
        return sorted({tp for source, is_here in self._here(batch) for tp in source.start or {} if is_here(tp)})

    def topic_ids(self, names: Collection[str], *, optional: Collection[str] = ()) -> dict[str, uuid.UUID]:
        """The ids of those topics that exist on the sink's cluster. A broker may not know a new one for a moment:
        nothing waits for those that are `optional`.
        """
        try:
            self._cluster.look_up(names, optional=optional)
            names = [name for name in names if name not in optional or self._cluster.knows(name)]
        except UnknownTopic:
            names = self._cluster.existing(names, patience_ms=0)
        return {name: self._cluster.topic(name).id for name in names}

    def _here(self, batch: MicroBatch) -> Iterator[tuple[SourceRange, Callable[[TopicPartition], bool]]]:
        """The sources on the sink's cluster, and whether a partition of theirs is there.

        Two clusters may have the same id, as when a volume was cloned; then a topic of the same name has another id.
        """
        own = self._cluster.cluster_id()
        for source, cluster in zip(batch.sources, self.of(batch), strict=True):
            if source is not None and cluster == own:
                yield source, self._is_here(source)

    def _is_here(self, source: SourceRange) -> Callable[[TopicPartition], bool]:
        if source.origin is None or not source.origin.topic_ids:
            return lambda _: True
        read = source.origin.topic_ids
        here = self.topic_ids(read.keys()) if read != self._ids_here else read
        if here == read:
            self._ids_here = read
        return lambda tp: tp.topic not in read or here.get(tp.topic) == read[tp.topic]


def clusters_of(batch: MicroBatch, named: tuple[str, ...], own: str) -> tuple[str, ...]:
    """The cluster id of each of the batch's sources; `named` is the option `sourceClusters`, `own` the sink's cluster.

    Raises ConfigurationError if the option contradicts the batch.
    """
    count = len(batch.sources)
    if len(named) > 1 and len(named) != count:
        raise ConfigurationError(
            "sourceClusters",
            f"lists {len(named)} clusters, but the query has {count} sources",
            action="Set one cluster for all sources, or one for each source, in their order.",
        )
    every = named if len(named) > 1 else (named or ("",)) * count
    return tuple(_cluster_of(source, name, own) for source, name in zip(batch.sources, every, strict=True))


def ends_of_unnamed(batch: MicroBatch) -> Offsets:
    """Where the batch ends in the partitions of sources that do not say which cluster they read."""
    return lowest(
        source.end
        for source in batch.sources
        if source is not None and (source.origin is None or not source.origin.cluster)
    )


def _cluster_of(source: SourceRange | None, named: str, own: str) -> str:
    """The cluster that a source reads: as it says itself, or else as the option says."""
    if source is None or source.origin is None or not source.origin.cluster:
        return named or own
    if named not in ("", source.origin.cluster):
        raise ConfigurationError(
            "sourceClusters",
            f"says that the query reads cluster {named}, but its source reads {source.origin.cluster}",
            action="Omit it: a kafka-eos source says itself which cluster it reads.",
        )
    return source.origin.cluster
