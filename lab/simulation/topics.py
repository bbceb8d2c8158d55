"""A model of a cluster's topics: ids, partitions, leaders, leader epochs, and their creation.

Metadata      leaders and leader epochs
CreateTopics  takes effect at once, on every broker
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from types import SimpleNamespace as Answer
from typing import Any

from lab.simulation.chance import Chance
from lab.simulation.partition import Partition
from spark_kafka_eos.kafka.partitions import TopicPartition

NONE = 0
UNKNOWN_TOPIC_OR_PARTITION = 3
NOT_LEADER_OR_FOLLOWER = 6
TOPIC_ALREADY_EXISTS = 36
INVALID_PARTITIONS = 37
INVALID_REPLICATION_FACTOR = 38
FENCED_LEADER_EPOCH = 74
UNKNOWN_LEADER_EPOCH = 75

_NO_ID = uuid.UUID(int=0)
_NO_EPOCH = -1
_DEFAULT = -1  # a broker's own num.partitions and default.replication.factor, both 1


class Topics:
    """The topics of a cluster with `nodes` brokers, each of which has a replica of every partition."""

    def __init__(self, nodes: int, topics: Mapping[str, int]) -> None:
        """`topics`: the number of partitions by topic."""
        self.nodes = nodes
        self.partitions: dict[TopicPartition, Partition] = {}
        self.leader: dict[TopicPartition, int] = {}
        self.leader_epoch: dict[TopicPartition, int] = {}
        self._ids: dict[str, uuid.UUID] = {}
        self._topics_created = 0
        self._names: dict[uuid.UUID, str] = {}
        for name, partitions in topics.items():
            self.create(name, partitions)

    def create(self, name: str, partitions: int) -> uuid.UUID:
        """Create a topic; return its id."""
        made = self._ids[name] = uuid.UUID(int=7 + self._topics_created)
        self._names[made] = name
        self._topics_created += 1
        for number in range(partitions):
            self.add(TopicPartition(name, number))
        return made

    def add(self, tp: TopicPartition) -> None:
        """Give a topic its next partition."""
        self.partitions[tp], self.leader[tp], self.leader_epoch[tp] = Partition(), tp.partition % self.nodes, 0

    def delete(self, name: str) -> None:
        """Delete a topic."""
        del self._names[self._ids.pop(name)]
        for tp in [tp for tp in self.partitions if tp.topic == name]:
            del self.partitions[tp], self.leader[tp], self.leader_epoch[tp]

    def name(self, topic_id: uuid.UUID) -> str | None:
        return self._names.get(topic_id)

    def move(self, chance: Chance) -> None:
        """Move every partition to a random broker."""
        for tp, before in self.leader.items():
            self.leader[tp] = chance.choose("leader", range(self.nodes))
            self.leader_epoch[tp] += self.leader[tp] != before

    def refusal(self, node: int, tp: TopicPartition, leader_epoch: int = _NO_EPOCH) -> int:
        """The error code with which `node` rejects a request for the partition with `leader_epoch`; NONE if none."""
        if tp not in self.partitions:
            return UNKNOWN_TOPIC_OR_PARTITION
        if leader_epoch not in (_NO_EPOCH, self.leader_epoch[tp]):
            return FENCED_LEADER_EPOCH if leader_epoch < self.leader_epoch[tp] else UNKNOWN_LEADER_EPOCH
        return NONE if self.leader[tp] == node else NOT_LEADER_OR_FOLLOWER

    # -- requests

    def metadata(self, _node: int, _version: int, request: Any) -> Any:
        brokers = [Answer(node_id=node, host=f"node-{node}", port=9092) for node in range(self.nodes)]
        names = list(self._ids) if request.topics is None else [topic.name for topic in request.topics]
        partitions: dict[str, list[Answer]] = {}
        for tp, leader in self.leader.items():
            epoch = self.leader_epoch[tp]
            described = Answer(partition_index=tp.partition, leader_id=leader, leader_epoch=epoch)
            partitions.setdefault(tp.topic, []).append(described)
        topics = [self._described(name, partitions.get(name, [])) for name in names]
        return Answer(brokers=brokers, cluster_id="model", controller_id=0, topics=topics)

    def _described(self, name: str, partitions: list[Answer]) -> Answer:
        return Answer(
            name=name,
            topic_id=self._ids.get(name, _NO_ID),
            is_internal=False,
            error_code=NONE if name in self._ids else UNKNOWN_TOPIC_OR_PARTITION,
            partitions=partitions,
        )

    def create_topics(self, _node: int, _version: int, request: Any) -> Any:
        return Answer(topics=[self._created(topic, really=not request.validate_only) for topic in request.topics])

    def _created(self, topic: Any, *, really: bool) -> Answer:
        partitions = 1 if topic.num_partitions == _DEFAULT else topic.num_partitions
        replicas = 1 if topic.replication_factor == _DEFAULT else topic.replication_factor
        code, topic_id = NONE, _NO_ID
        if topic.name in self._ids:
            code = TOPIC_ALREADY_EXISTS
        elif partitions < 1:
            code = INVALID_PARTITIONS
        elif not 1 <= replicas <= self.nodes:
            code = INVALID_REPLICATION_FACTOR
        elif really:
            topic_id = self.create(topic.name, partitions)
        return Answer(
            name=topic.name,
            topic_id=topic_id,
            error_code=code,
            error_message=None,
            num_partitions=_DEFAULT if code else partitions,
            replication_factor=_DEFAULT if code else replicas,
        )
