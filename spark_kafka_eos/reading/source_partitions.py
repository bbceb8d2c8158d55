"""Which partitions a source reads: those that its options select, as far as they exist now."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection
from collections.abc import Set as AbstractSet

from spark_kafka_eos.errors import ConfigurationError, UnknownTopic
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.backoff import OUTDATED_LEADER_MS
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.options import SourceOptions
from spark_kafka_eos.reading.topic_identity import TopicIdentity
from spark_kafka_eos.source_offset import Origin

# The maximum delay until a new topic is noticed while no other topic has data; the built-in source checks every time.
_LOOK_AGAIN_SECONDS = 5.0


class SourcePartitions:
    """The partitions of a source. `read_before` are those that the query has read: one that does not exist now was
    deleted. Not thread-safe.
    """

    def __init__(
        self, options: SourceOptions, cluster: Cluster, identity: TopicIdentity, clock: Callable[[], float]
    ) -> None:
        self._options, self._cluster, self._identity, self._clock = options, cluster, identity, clock
        self._partitions: tuple[TopicPartition, ...] = ()
        self._looked = float("-inf")
        self.read_before: set[TopicPartition] = set()
        self._gone: set[TopicPartition] = set()  # of these: did not exist when last looked up, after some patience
        self._believed: set[uuid.UUID] = set()  # the topics' ids at the last look, after some patience
        self._compared = False  # the topics that subscribePattern selects now with those of the checkpoint

    def current(self, *, now: bool = False) -> tuple[TopicPartition, ...]:
        """The partitions to read, looked up before each micro-batch that has something to read, else every few
        seconds.
        """
        if now or self._clock() - self._looked > _LOOK_AGAIN_SECONDS:
            self._partitions = tuple(sorted(self._read_partitions()))
            self.read_before.update(self._partitions)
            self._identity.refresh({tp.topic for tp in self._partitions})
            self._looked = self._clock()
        return self._partitions

    def compare(self, read_before: AbstractSet[str], origin: Origin | None) -> None:
        """Raise ConfigurationError if subscribePattern finds topics that whoever planned the offsets of `read_before`,
        with this origin, may have left out: earlier releases compared it with whole names.
        """
        compared, self._compared = self._compared, True
        partial = self._options.finds_pattern_in_a_part
        if compared or self._options.subscribe_pattern is None:
            return
        if (origin is not None and origin.finds_pattern) or any(map(partial, read_before)):
            return
        added = {tp.topic for tp in self.current()} - read_before
        if doubtful := sorted(filter(partial, added)):
            raise ConfigurationError(
                "subscribePattern",
                f"is found in {', '.join(doubtful)}, which the query has not read so far. Earlier releases compared it "
                "with whole names and left such topics out; this one finds it anywhere in a name, as the built-in "
                "source does. Nothing was read",
                action="To go on without these topics, set ^(?:pattern)$. To read them too, from their beginning, set "
                ".*(?:pattern).*, with the pattern as it was.",
            )

    def _read_partitions(self) -> Collection[TopicPartition]:
        """The partitions there are. Raises UnknownTopic if one is missing that was not read before."""
        options, cluster = self._options, self._cluster
        topics = self._existing(self._topics())
        budget = cluster.budget(OUTDATED_LEADER_MS)
        while self._is_outdated(topics) and (delay := budget.delay()) is not None:
            cluster.sleep(delay)
            topics = self._existing(topics, elsewhere=True)
        self._believed = {cluster.topic(name).id for name in topics}
        existing = {TopicPartition(name, number) for name in topics for number in cluster.topic(name).partitions}
        if missing := sorted(set(options.assign) - existing - self.read_before):
            raise UnknownTopic(f"{missing[0]} is listed in the option assign but does not exist")
        self._gone = self.read_before - existing
        return existing.intersection(options.assign) if options.assign else existing

    def _topics(self) -> Collection[str]:
        options = self._options
        if options.subscribe_pattern is None:
            return list(options.subscribe) or list(dict.fromkeys(tp.topic for tp in options.assign))
        # A broker that leaves out a topic may be outdated, so those that were read before are looked up as well.
        names = {*self._cluster.topic_names(), *(tp.topic for tp in self.read_before - self._gone)}
        return sorted(name for name in names if options.finds_pattern(name) and name not in options.ledger_topics)

    def _existing(self, topics: Collection[str], *, elsewhere: bool = False) -> Collection[str]:
        """Look up `topics`, and return those that exist. Raises UnknownTopic if one is missing that was not read
        before.

        Only once are other brokers asked for some seconds before a missing topic counts as deleted.
        """
        gone = {tp.topic for tp in self._gone} - {tp.topic for tp in self._partitions}
        doubtful = [name for name in topics if name in gone]
        there = [name for name in topics if name not in gone]
        there += self._cluster.existing(doubtful, patience_ms=0) if doubtful else []
        try:
            self._cluster.refresh(there, elsewhere=elsewhere)
        except UnknownTopic:
            there = self._cluster.existing(there, patience_ms=0)
            read_before = {tp.topic for tp in self.read_before}
            if self._options.subscribe_pattern is None and not read_before.issuperset(set(topics).difference(there)):
                raise
        return there

    def _is_outdated(self, topics: Collection[str]) -> bool:
        """Whether a broker's answer may be outdated: a topic has another id than that of the query's offsets, which may
        also be that of one that was deleted long ago; or fewer partitions than were read before, and it loses none.
        """
        current = {name: self._cluster.topic(name) for name in topics}
        if not all(
            self._identity.is_the_same(name, topic.id) or topic.id in self._believed for name, topic in current.items()
        ):
            return True
        return any(
            tp.topic in current and tp.partition not in current[tp.topic].partitions
            for tp in self.read_before - self._gone
        )
