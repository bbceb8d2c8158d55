"""A model of a small Kafka cluster: what its brokers answer to the requests that a sink sends.

Requests are kafka-python's own classes, as the product builds them; answers have the fields of the response classes
that the product reads. Nothing here waits or fails by chance: who drives the model decides when a marker is written
(`later`), when a transaction times out, who leads and who coordinates.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Collection, Iterable
from types import SimpleNamespace as Answer
from typing import Any

from spark_kafka_eos.model import TopicPartition
from spark_kafka_eos.tools.simulation.coordinator import (
    CONCURRENT_TRANSACTIONS,
    INVALID_PRODUCER_EPOCH,
    NONE,
    NOT_COORDINATOR,
    PRODUCER_FENCED,
    Coordinator,
)
from spark_kafka_eos.tools.simulation.offsets import OFFSETS_TOPIC, Committed, Group
from spark_kafka_eos.tools.simulation.partition import Partition
from spark_kafka_eos.wire.record_batch import HEADER

NOT_LEADER_OR_FOLLOWER = 6
NOT_ENOUGH_REPLICAS = 19
UNSTABLE_OFFSET_COMMIT = 88
UNKNOWN_TOPIC_OR_PARTITION = 3

_FIRST_ADDING = 12  # the version of Produce from which on a leader adds the partition to the transaction (KIP-890)
_TOPIC_ID = uuid.UUID(int=7)

_BEHIND = 3  # commits that an outdated coordinator may have missed

# `later(why, action)`: run `action` some time later.
Later = Callable[[str, Callable[[], None]], None]


class ModelKafka:
    """A cluster of `nodes` brokers with one output topic; `contents(batch)` tells what a record batch's bytes hold."""

    def __init__(
        self,
        *,
        transaction_version: int,
        topic: str,
        partitions: int,
        later: Later,
        contents: Callable[[Any], tuple[Any, ...]],
        nodes: int = 2,
        first_epoch: int = -1,
    ) -> None:
        self.version = transaction_version
        self.nodes = nodes
        self.topic = topic
        self.partitions = {TopicPartition(topic, number): Partition() for number in range(partitions)}
        self.leader = {tp: tp.partition % nodes for tp in self.partitions}
        self.coordinated_by: dict[str, int] = {}
        self.groups: dict[str, Group] = {}
        self.coordinators: dict[str, Coordinator] = {}
        self.decisions: list[tuple[str, bool, int, int]] = []  # transactional.id, commit, producer id, epoch
        self.opened: Callable[[str, Coordinator], None] = lambda _id, _coordinator: None
        self._later, self._contents, self._first_epoch = later, contents, first_epoch
        self._ids = 0
        self._handlers: dict[str, Callable[[int, int, Any], Any]] = {
            "Metadata": self._metadata,
            "FindCoordinator": self._find_coordinator,
            "InitProducerId": self._init_producer_id,
            "AddPartitionsToTxn": self._add_partitions,
            "AddOffsetsToTxn": self._add_offsets,
            "Produce": self._produce,
            "TxnOffsetCommit": self._txn_offset_commit,
            "EndTxn": self._end_txn,
            "OffsetFetch": self._offset_fetch,
        }

    def handle(self, node: int, api: str, version: int, request: Any) -> Any:
        """What broker `node` answers."""
        return self._handlers[api](node, version, request)

    def group(self, group_id: str) -> Group:
        if group_id not in self.groups:
            self.groups[group_id] = Group(len(self.groups))
        return self.groups[group_id]

    def move(self, chance: random.Random) -> None:
        """Give every partition, transactional.id and group to some broker; with its state, which is replicated."""
        for tp in self.leader:
            self.leader[tp] = chance.randrange(self.nodes)
        for key in self.coordinated_by:
            self.coordinated_by[key] = chance.randrange(self.nodes)

    def open(self) -> list[str]:
        """What is not settled: open transactions, markers not written, offsets that wait for one."""
        found = [
            f"{name} is in state {coordinator.phase.value}"
            for name, coordinator in self.coordinators.items()
            if coordinator.partitions or coordinator.phase.value in ("Ongoing", "PrepareCommit", "PrepareAbort")
        ]
        logs = [*self.partitions.items(), *((group.kept_in, group.partition) for group in self.groups.values())]
        found += [
            f"{tp} is stable up to {partition.last_stable_offset} of {partition.end_offset}"
            for tp, partition in logs
            if partition.last_stable_offset != partition.end_offset
        ]
        found += [
            f"group {name} waits for {tp}"
            for name, group in self.groups.items()
            for tp in group.offsets
            if group.unstable(tp)
        ]
        return found

    # -- looking up

    def _metadata(self, _node: int, _version: int, request: Any) -> Any:
        brokers = [Answer(node_id=node, host=f"node-{node}", port=9092) for node in range(self.nodes)]
        wanted = [self.topic] if request.topics is None else [topic.name for topic in request.topics]
        topics = [
            Answer(
                name=name,
                topic_id=_TOPIC_ID,
                is_internal=False,
                error_code=NONE if name == self.topic else UNKNOWN_TOPIC_OR_PARTITION,
                partitions=[
                    Answer(partition_index=tp.partition, leader_id=leader, leader_epoch=0)
                    for tp, leader in self.leader.items()
                    if tp.topic == name
                ],
            )
            for name in wanted
        ]
        return Answer(brokers=brokers, topics=topics)

    def _find_coordinator(self, _node: int, _version: int, request: Any) -> Any:
        node = self.coordinated_by.setdefault(request.key, len(self.coordinated_by) % self.nodes)
        return Answer(error_code=NONE, node_id=node, host=f"node-{node}", port=9092)

    def _misdirected(self, node: int, key: str) -> bool:
        return self.coordinated_by.get(key, node) != node

    # -- the transaction coordinator

    def _coordinator(self, transactional_id: str) -> Coordinator:
        if transactional_id not in self.coordinators:

            def decided(
                commit: bool, id_: int, of_records: int, epoch: int, joined: Collection[TopicPartition]
            ) -> None:
                self._end(transactional_id, commit, id_, of_records, epoch, joined)

            made = self.coordinators[transactional_id] = Coordinator(
                server_version=self.version, new_id=self._new_id, decided=decided
            )
            made.epoch = self._first_epoch
            if made.epoch >= 0:
                made.producer_id = self._new_id()
        return self.coordinators[transactional_id]

    def _new_id(self) -> int:
        self._ids += 1
        return self._ids

    def _init_producer_id(self, node: int, _version: int, request: Any) -> Any:
        if self._misdirected(node, request.transactional_id):
            return Answer(error_code=NOT_COORDINATOR)
        code, (producer_id, epoch) = self._coordinator(request.transactional_id).init(
            request.producer_id, request.producer_epoch, request.transaction_timeout_ms
        )
        return Answer(error_code=code, producer_id=producer_id, producer_epoch=epoch)

    def _add_partitions(self, node: int, _version: int, request: Any) -> Any:
        name = request.v3_and_below_transactional_id
        asked = [TopicPartition(topic.name, n) for topic in request.v3_and_below_topics for n in topic.partitions]
        code = NOT_COORDINATOR
        if not self._misdirected(node, name):
            code = self._add(name, request.v3_and_below_producer_id, request.v3_and_below_producer_epoch, asked)
        topics = [
            Answer(
                name=tp.topic, results_by_partition=[Answer(partition_index=tp.partition, partition_error_code=code)]
            )
            for tp in asked
        ]
        return Answer(results_by_topic_v3_and_below=topics)

    def _add_offsets(self, node: int, _version: int, request: Any) -> Any:
        if self._misdirected(node, request.transactional_id):
            return Answer(error_code=NOT_COORDINATOR)
        joining = [self.group(request.group_id).kept_in]
        code = self._add(request.transactional_id, request.producer_id, request.producer_epoch, joining)
        return Answer(error_code=code)

    def _add(self, name: str, producer_id: int, epoch: int, joining: list[TopicPartition]) -> int:
        coordinator = self._coordinator(name)
        before = coordinator.transactions
        code = coordinator.add(producer_id, epoch, joining)
        if coordinator.transactions != before:
            self.opened(name, coordinator)
        return code

    def _end_txn(self, node: int, version: int, request: Any) -> Any:
        if self._misdirected(node, request.transactional_id):
            return Answer(error_code=NOT_COORDINATOR)
        code, (producer_id, epoch) = self._coordinator(request.transactional_id).end(
            request.producer_id, request.producer_epoch, request.committed, 2 if version >= 5 else 0
        )
        return Answer(error_code=code, producer_id=producer_id, producer_epoch=epoch)

    def _end(
        self,
        name: str,
        commit: bool,
        producer_id: int,
        of_records: int,
        epoch: int,
        joined: Collection[TopicPartition],
    ) -> None:
        """The end is decided: the markers are on their way."""
        self.decisions.append((name, commit, producer_id, of_records))
        coordinator = self.coordinators[name]
        if not joined:
            coordinator.completed()
            return
        left = set(joined)

        def mark(tp: TopicPartition) -> None:
            if tp.topic == OFFSETS_TOPIC:
                for group in self.groups.values():
                    if group.kept_in == tp:
                        group.mark(producer_id, epoch, commit)
            else:
                self.partitions[tp].mark(producer_id, epoch, commit)
            left.discard(tp)
            if not left:
                coordinator.completed()

        for tp in sorted(joined):
            self._later(f"the {'commit' if commit else 'abort'} marker reaches {tp}", lambda tp=tp: mark(tp))  # type: ignore[misc]

    # -- leaders

    def _produce(self, node: int, version: int, request: Any) -> Any:
        responses = []
        for topic in request.topic_data:
            answers = []
            for data in topic.partition_data:
                tp = TopicPartition(topic.name, data.index)
                code, offset = self._append(node, version, request.transactional_id, tp, data.records)
                answers.append(
                    Answer(index=data.index, error_code=code, base_offset=offset, error_message=None, record_errors=())
                )
            responses.append(Answer(name=topic.name, partition_responses=answers))
        return Answer(responses=responses)

    def _append(self, node: int, version: int, name: str, tp: TopicPartition, batch: Any) -> tuple[int, int]:
        if self.leader[tp] != node:
            return NOT_LEADER_OR_FOLLOWER, -1
        header = HEADER.unpack_from(batch)
        producer_id, epoch, base_sequence = header[9], header[10], header[11]
        partition = self.partitions[tp]
        if partition.outdated(producer_id, epoch):
            return INVALID_PRODUCER_EPOCH, -1
        if not partition.in_transaction(producer_id, epoch):
            partition.asks(producer_id, epoch, base_sequence)
        code = self._let_in(name, tp, partition, producer_id, epoch, adding=version >= _FIRST_ADDING)
        if code:
            return code, -1
        return partition.append(
            producer_id,
            epoch,
            base_sequence,
            self._contents(batch),
            first_sequence_is_zero=version >= _FIRST_ADDING,
        )

    def _let_in(
        self, name: str, tp: TopicPartition, partition: Partition, producer_id: int, epoch: int, *, adding: bool
    ) -> int:
        """Whether the coordinator knows that `tp` is part of the open transaction; with `adding` (TV2) it learns it."""
        if partition.in_transaction(producer_id, epoch):
            return NONE
        if adding:
            code = self._add(name, producer_id, epoch, [tp])
        else:
            code = self._coordinator(name).verify(producer_id, epoch, tp)
        if code == PRODUCER_FENCED:
            return INVALID_PRODUCER_EPOCH
        return NOT_ENOUGH_REPLICAS if code == CONCURRENT_TRANSACTIONS else code

    # -- groups

    def _txn_offset_commit(self, node: int, version: int, request: Any) -> Any:
        offsets = {
            TopicPartition(topic.name, p.partition_index): (p.committed_offset, p.committed_metadata)
            for topic in request.topics
            for p in topic.partitions
        }
        code = NOT_COORDINATOR
        if not self._misdirected(node, request.group_id):
            group = self.group(request.group_id)
            code = self._let_in(
                request.transactional_id,
                group.kept_in,
                group.partition,
                request.producer_id,
                request.producer_epoch,
                adding=version >= 5,
            )
            code = code or group.commit(request.producer_id, request.producer_epoch, offsets)
        return Answer(topics=_by_topic((tp, Answer(partition_index=tp.partition, error_code=code)) for tp in offsets))

    def _offset_fetch(self, node: int, _version: int, request: Any) -> Any:
        if self._misdirected(node, request.group_id):
            return Answer(error_code=NOT_COORDINATOR, topics=[])
        asked = [TopicPartition(topic.name, n) for topic in request.topics for n in topic.partition_indexes]
        found = self.group(request.group_id).fetch(asked, request.require_stable)
        return Answer(error_code=NONE, topics=_by_topic((tp, _offset(tp, at)) for tp, at in found.items()))

    def outdated(self, request: Any, chance: random.Random) -> Any:
        """What a coordinator answers to OffsetFetch that was paused and has not heard of its successor; None where none
        can be asked: whose offsets are pending knows the real one, which took them."""
        group = self.group(request.group_id)
        asked = [TopicPartition(topic.name, n) for topic in request.topics for n in topic.partition_indexes]
        if not group.past or any(group.unstable(tp) for tp in asked):
            return None
        told = chance.choice(group.past[-_BEHIND:])
        return Answer(error_code=NONE, topics=_by_topic((tp, _offset(tp, told.get(tp, (-1, "")))) for tp in asked))


def _offset(tp: TopicPartition, at: Committed | None) -> Answer:
    offset, metadata = at or (-1, "")
    code = UNSTABLE_OFFSET_COMMIT if at is None else NONE
    return Answer(partition_index=tp.partition, committed_offset=offset, metadata=metadata, error_code=code)


def _by_topic(answers: Iterable[tuple[TopicPartition, Answer]]) -> list[Answer]:
    topics: dict[str, list[Answer]] = {}
    for tp, answer in answers:
        topics.setdefault(tp.topic, []).append(answer)
    return [Answer(name=name, partitions=partitions) for name, partitions in topics.items()]
