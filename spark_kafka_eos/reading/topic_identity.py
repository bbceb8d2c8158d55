"""Whether offsets still mean the records for which they were planned, although Kafka's topics have changed since.

Three facts show it, and the source writes them to the checkpoint with each batch's end (`source_offset.Origin`): the
cluster's id (KIP-78), each topic's id (KIP-516) and each partition's leader epoch (KIP-320). Not obvious:
- A leader epoch is that of the leader that returned the end: ListOffsets sends the epoch that we know, and a later
  leader refuses it. So no record before the end has a later epoch.
- The epochs that are recorded with an end are those of the last comparison, which comes after it was looked up. They
  are not those that are known by then: a leader that was elected in between may have a truncated log, and nobody would
  compare it.
- A log can only be truncated when a leader is elected. So leaders are asked about the partitions that have another
  leader than when the offsets were planned, which costs nothing in most batches.
- A broker that lags behind may still return the id of a deleted topic. So others are asked before another id counts
  (`source_partitions`), and ids of the past are remembered.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping

from spark_kafka_eos.errors import ConfigurationError, UnknownTopic
from spark_kafka_eos.kafka.logs import logger
from spark_kafka_eos.kafka.partitions import Offsets, TopicPartition
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.source_offset import Origin

log = logger(__name__)


class TopicIdentity:
    """What the offsets of one source belong to, and what its topics are now."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._ids: dict[str, uuid.UUID] = {}  # of the topics to which the query's offsets belong
        self._current: dict[str, uuid.UUID] = {}
        self._past: set[uuid.UUID] = set()
        self._loaded = False
        self._compared: dict[TopicPartition, int] = {}  # the epochs of the leaders at the last comparison
        self._confirmed: dict[TopicPartition, int] = {}  # the epoch of the leader that has the offsets' records

    # -- the checkpoint

    def load(self, origin: Origin | None) -> None:
        """That of the offsets with which this process begins: from now on, its topics count.

        Raises ConfigurationError if it is another cluster.
        """
        if self._loaded:
            return
        if origin is not None:
            self.check_cluster(origin)
            self.pin(origin.topic_ids)
        self._loaded = True

    def pin(self, topic_ids: Mapping[str, uuid.UUID]) -> None:
        """The query's offsets of these topics belong to the topics with these ids, whichever there are now."""
        self._ids |= topic_ids

    def check_cluster(self, origin: Origin) -> None:
        """Raise ConfigurationError if the offsets with this origin are those of another cluster."""
        here = self._cluster.cluster_id()
        if here and origin.cluster and here != origin.cluster:
            raise ConfigurationError(
                "kafka.bootstrap.servers",
                f"these brokers are of cluster {here}, but the checkpoint has the offsets of cluster {origin.cluster}, "
                "where they mean other records",
                action="Restore the brokers of the last run. To read this cluster, start the query with a new "
                "checkpointLocation.",
            )

    def origin(self, offsets: Iterable[TopicPartition]) -> Origin:
        """What offsets of these partitions mean that are planned now, since the last comparison."""
        partitions = list(offsets)
        topics = sorted({tp.topic for tp in partitions})
        return Origin(
            cluster=self._cluster.cluster_id(),
            topic_ids={name: self._ids[name] for name in topics if name in self._ids},
            leader_epochs={
                tp: self._compared.get(tp, epoch) for tp, epoch in self._cluster.leader_epochs(partitions).items()
            },
            finds_pattern=True,
        )

    # -- now

    def refresh(self, topics: Iterable[str]) -> None:
        """The cluster has just looked up these topics, all that the query reads now."""
        self._current = {name: self._cluster.topic(name).id for name in topics}
        self._ids = self._current | self._ids

    def topic_id(self, name: str) -> uuid.UUID | None:
        """The id of the topic to which the query's offsets belong."""
        return self._ids.get(name)

    def is_the_same(self, name: str, topic_id: uuid.UUID) -> bool:
        """Whether this is the topic to which the query's offsets belong, or one that it has not read."""
        return self._ids.get(name, topic_id) == topic_id

    def created_again(self) -> set[str]:
        """The topics that were created again. Each is returned once; from then on the new topic counts."""
        ids, past = self._ids, self._past
        again = {name: new for name, new in self._current.items() if new != ids[name] and new not in past}
        for name, topic_id in sorted(again.items()):
            log.warning("topic %s was deleted and created again: its id is %s and was %s", name, topic_id, ids[name])
            past.add(ids[name])
        self._ids |= again
        self._confirmed = {tp: epoch for tp, epoch in self._confirmed.items() if tp.topic not in again}
        return set(again)

    def log_ends(self, origin: Origin | None, offsets: Offsets) -> dict[TopicPartition, int]:
        """Where the logs end that the leaders of `origin` had, of the partitions in which that is before `offsets`.

        Asks only about partitions that have another leader since; of an origin that is not known, about none. Raises
        AuthorizationFailed, BrokerError, BrokerUnreachable.
        """
        self._compared = {}
        if origin is None:
            return {}
        epochs = {
            tp: epoch
            for tp, epoch in origin.leader_epochs.items()
            if tp in offsets and origin.topic_ids.get(tp.topic) == self._current.get(tp.topic)
        }
        self._compared = now = self._cluster.leader_epochs(epochs)
        changed = {tp: epochs[tp] for tp, epoch in now.items() if epoch > self._confirmed.get(tp, epochs[tp])}
        if not changed:
            return {}
        from spark_kafka_eos.kafka.protocol.epochs import log_ends  # on demand: few processes need it

        try:
            ends = log_ends(self._cluster, changed)
        except UnknownTopic:
            return {}  # deleted just now, which the next look at the topics shows
        before = {tp: end for tp, end in ends.items() if end < offsets[tp]}
        for tp, end in sorted(before.items()):
            log.warning("the log of %s was truncated to %d since leader epoch %d", tp, end, changed[tp])
        now |= self._cluster.leader_epochs(changed)  # of the leaders that have answered
        self._confirmed |= {tp: now[tp] for tp in changed.keys() - before.keys()}
        return before


def created_between(before: Origin | None, after: Origin | None) -> dict[str, str]:
    """The topics that were created again between the origins of two offsets, and the words for it."""
    if before is None or after is None:
        return {}
    return {
        name: f"the topic was deleted and created again: its id was {earlier_id} and is {after.topic_ids[name]}"
        for name, earlier_id in before.topic_ids.items()
        if after.topic_ids.get(name, earlier_id) != earlier_id
    }
