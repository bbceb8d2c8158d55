"""A model of a small Kafka cluster: its brokers' answers to the requests of source and sink.

`transactions` handles transactions, `topics` and `reading` handle topics. Appends and committed offsets, which need
both, are here.

Requests are kafka-python's classes, as the product builds them; answers have those fields of the response classes that
the product reads. Nothing here waits or is random: the caller decides when a marker is written (`later`), when a
transaction times out, and which broker leads and coordinates.
"""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace as Answer
from typing import Any

from lab.simulation import reading
from lab.simulation.chance import Chance
from lab.simulation.conditions import USUAL, Conditions
from lab.simulation.coordinator import (
    CONCURRENT_TRANSACTIONS,
    INVALID_PRODUCER_EPOCH,
    NONE,
    NOT_COORDINATOR,
    PRODUCER_FENCED,
)
from lab.simulation.offsets import OFFSETS_TOPIC, Committed, CommittedOffsets, Group
from lab.simulation.partition import Partition
from lab.simulation.topics import NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION, Topics
from lab.simulation.transactions import Later, LeavesOut, Transactions
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.groups import stored_in
from spark_kafka_eos.kafka.wire.record_batch import HEADER

NOT_ENOUGH_REPLICAS = 19
UNSTABLE_OFFSET_COMMIT = 88

_FIRST_ADDING = 12  # the first version of Produce with which a leader adds the partition to the transaction (KIP-890)

_OFFSETS_PARTITIONS = 50
_OFFSETS_TOPIC_ID = uuid.UUID(int=3)
_BEHIND = 3  # commits that an outdated coordinator may have missed


class ModelKafka:
    """A cluster of `nodes` brokers.

    `topics`: the number of partitions by topic. `contents(partition, batch)` returns the contents of a record batch,
    one item per record. `clock` returns seconds.
    """

    def __init__(
        self,
        *,
        transaction_version: int,
        topics: Mapping[str, int],
        later: Later,
        leaves_out: LeavesOut = lambda _joined: None,
        contents: Callable[[TopicPartition, bytes], tuple[Any, ...]],
        clock: Callable[[], float] = lambda: 0.0,
        nodes: int = 2,
        first_epoch: int = -1,
        conditions: Conditions = USUAL,
    ) -> None:
        self.version = transaction_version
        self.nodes = nodes
        self.conditions = conditions
        self._verification = conditions.verification
        self._classic_groups = conditions.classic_groups and transaction_version < 2
        self.topics = Topics(nodes, topics)
        self.partitions = self.topics.partitions
        self.coordinated_by: dict[str, int] = {}
        self.wrong: list[str] = []  # what no client may do, although brokers accept it
        self.groups: dict[str, Group] = {}
        self._half_loaded: dict[str, tuple[float, CommittedOffsets]] = {}  # until when, and what is loaded
        self._contents, self._clock = contents, clock
        self.transactions = Transactions(
            version=transaction_version,
            misdirected=self._misdirected,
            known_partitions=self.partitions.keys(),
            group_log=lambda group_id: self.group(group_id).kept_in,
            mark=self._mark,
            later=later,
            leaves_out=leaves_out,
            now_ms=self._now_ms,
            first_epoch=first_epoch,
        )
        self._handlers: dict[str, Callable[[int, int, Any], Any]] = {
            "Metadata": self._metadata,
            "CreateTopics": self.topics.create_topics,
            "Fetch": functools.partial(reading.fetch, self.topics),
            "ListOffsets": functools.partial(reading.list_offsets, self.topics),
            "OffsetForLeaderEpoch": functools.partial(reading.offset_for_leader_epoch, self.topics),
            "FindCoordinator": self._find_coordinator,
            "DescribeConfigs": self._describe_configs,
            "DescribeGroups": self._describe_groups,
            "DescribeProducers": self._describe_producers,
            "DescribeTransactions": self.transactions.describe,
            "InitProducerId": self.transactions.init_producer_id,
            "AddPartitionsToTxn": self.transactions.add_partitions,
            "AddOffsetsToTxn": self.transactions.add_offsets,
            "Produce": self._produce,
            "TxnOffsetCommit": self._txn_offset_commit,
            "EndTxn": self.transactions.end_txn,
            "WriteTxnMarkers": self._write_txn_markers,
            "OffsetCommit": self._offset_commit,
            "OffsetFetch": self._offset_fetch,
        }

    def handle(self, node: int, api: str, version: int, request: Any) -> Any:
        """The answer of broker `node`."""
        return self._handlers[api](node, version, request)

    def group(self, group_id: str) -> Group:
        if group_id not in self.groups:
            self.groups[group_id] = Group(self._stored_in(group_id), classic=self._classic_groups)
        return self.groups[group_id]

    def _stored_in(self, group_id: str) -> int:
        """The partition with its offsets: where Kafka has it, if clients may have to look into it."""
        in_order = not (self.conditions.left_out and self.conditions.real_time)
        return len(self.groups) if in_order else stored_in(group_id, _OFFSETS_PARTITIONS)

    def _at(self, tp: TopicPartition) -> list[str]:
        """The groups that are stored in this partition."""
        return [group_id for group_id, group in self.groups.items() if group.kept_in == tp]

    def move(self, chance: Chance) -> None:
        """Move every partition, transactional.id and group to a random broker, with its state, which is replicated."""
        self.topics.move(chance)
        for key, before in self.coordinated_by.items():
            self.coordinated_by[key] = chance.choose("coordinator", range(self.nodes))
            if key in self.groups and self.coordinated_by[key] != before:
                self.groups[key].reload()

    def expire_group(self, group_id: str, retention_s: float) -> None:
        """Let the group's offsets expire if none was committed for `retention_s`."""
        self.group(group_id).expire(self._clock(), retention_s)

    def expire_producers(self, *, transactional_ids: bool) -> None:
        """Let leaders forget producers, and coordinators transactional.ids, without an open transaction."""
        for log in (*self.partitions.values(), *(group.partition for group in self.groups.values())):
            log.forget_producers()
        if transactional_ids:
            self.transactions.expire()

    def open(self, *, groups: bool = True) -> list[str]:
        """What is open: transactions, missing markers, and with `groups` also pending offsets."""
        pending = [
            f"{name} is in state {coordinator.phase.value}"
            for name, coordinator in self.transactions.coordinators.items()
            if not coordinator.at_rest
        ]
        logs = list(self.partitions.items())
        if groups:
            logs += [(group.kept_in, group.partition) for group in self.groups.values()]
        pending += [
            f"{tp} is stable up to {partition.last_stable_offset} of {partition.end_offset}"
            for tp, partition in logs
            if partition.last_stable_offset != partition.end_offset
        ]
        pending += [
            f"group {name} waits for {tp}"
            for name, group in (self.groups.items() if groups else ())
            for tp in group.offsets
            if group.unstable(tp)
        ]
        return pending

    # -- lookups

    def _metadata(self, node: int, version: int, request: Any) -> Any:
        answer = self.topics.metadata(node, version, request)
        for topic in answer.topics:
            if topic.name == OFFSETS_TOPIC:
                topic.error_code, topic.topic_id, topic.is_internal = NONE, _OFFSETS_TOPIC_ID, True
                topic.partitions = [
                    Answer(partition_index=number, leader_id=self._leads_offsets(number), leader_epoch=0)
                    for number in range(_OFFSETS_PARTITIONS)
                ]
        return answer

    def _leads_offsets(self, number: int) -> int:
        """The coordinator of the groups that are stored there."""
        groups = self._at(TopicPartition(OFFSETS_TOPIC, number))
        return next((self.coordinated_by[name] for name in groups if name in self.coordinated_by), 0)

    def _describe_configs(self, _node: int, _version: int, request: Any) -> Any:
        """Whether leaders verify partitions, and the size of a record batch; no other setting is modeled."""
        settings = {
            "transaction.partition.verification.enable": str(self._verification).lower(),
            "max.message.bytes": "1048588",
        }
        return Answer(
            results=[
                Answer(
                    resource_name=resource.resource_name,
                    error_code=NONE,
                    configs=[
                        Answer(name=name, value=settings[name])
                        for name in resource.configuration_keys
                        if name in settings
                    ],
                )
                for resource in request.resources
            ]
        )

    def _find_coordinator(self, _node: int, _version: int, request: Any) -> Any:
        node = self.coordinated_by.setdefault(request.key, len(self.coordinated_by) % self.nodes)
        return Answer(error_code=NONE, node_id=node, host=f"node-{node}", port=9092)

    def _misdirected(self, node: int, key: str) -> bool:
        return self.coordinated_by.get(key, node) != node

    def _now_ms(self) -> int:
        return int(self._clock() * 1e3)

    # -- leaders

    def _describe_producers(self, node: int, _version: int, request: Any) -> Any:
        asked = [TopicPartition(topic.name, n) for topic in request.topics for n in topic.partition_indexes]
        return Answer(topics=_by_topic((tp, self._producers(node, tp)) for tp in asked))

    def _producers(self, node: int, tp: TopicPartition) -> Answer:
        code = self._refusal(node, tp)
        transactions = {} if code else self._log(tp).transactions
        return Answer(
            partition_index=tp.partition,
            error_code=code,
            active_producers=[
                Answer(
                    producer_id=producer_id,
                    producer_epoch=epoch,
                    coordinator_epoch=0,
                    last_sequence=-1,
                    last_timestamp=-1,
                    current_txn_start_offset=-1 if start is None else start,
                )
                for producer_id, (epoch, start) in transactions.items()
            ],
        )

    def _mark(self, tp: TopicPartition, producer_id: int, epoch: int, commit: bool) -> None:
        """Write a transaction marker to a partition, unless its topic was deleted, or to the groups stored in it."""
        if tp in self.partitions:
            leader_epoch = self.topics.leader_epoch[tp]
            self.partitions[tp].mark(producer_id, epoch, commit, leader_epoch=leader_epoch, timestamp_ms=self._now_ms())
        for group in self.groups.values():
            if group.kept_in == tp:
                group.mark(producer_id, epoch, commit, now_s=self._clock())

    def _write_txn_markers(self, node: int, _version: int, request: Any) -> Any:
        """What leaders do with markers that a client sends."""
        answers = []
        for marker in request.markers:
            places = [TopicPartition(topic.name, n) for topic in marker.topics for n in topic.partition_indexes]
            codes = {tp: self._marked(node, tp, marker) for tp in places}
            topics = _by_topic(
                (tp, Answer(partition_index=tp.partition, error_code=code)) for tp, code in codes.items()
            )
            answers.append(Answer(producer_id=marker.producer_id, topics=topics))
        return Answer(markers=answers)

    def _marked(self, node: int, tp: TopicPartition, marker: Any) -> int:
        if code := self._refusal(node, tp):
            return code
        if self._log(tp).outdated(marker.producer_id, marker.producer_epoch):
            return INVALID_PRODUCER_EPOCH
        if self.transactions.is_ongoing(tp, marker.producer_id, marker.producer_epoch):
            self.wrong.append(f"a client's marker ended a transaction in {tp} that its producer goes on with")
        self._mark(tp, marker.producer_id, marker.producer_epoch, marker.transaction_result)
        return NONE

    def _log(self, tp: TopicPartition) -> Partition:
        """The log of a partition, also of one with the offsets of groups, of which the model has one each."""
        return self.groups[self._at(tp)[0]].partition if tp.topic == OFFSETS_TOPIC else self.partitions[tp]

    def _refusal(self, node: int, tp: TopicPartition) -> int:
        if tp.topic != OFFSETS_TOPIC:
            return self.topics.refusal(node, tp)
        groups = self._at(tp)
        if not groups:
            return UNKNOWN_TOPIC_OR_PARTITION
        return NOT_LEADER_OR_FOLLOWER if self._misdirected(node, groups[0]) else NONE

    def open_at(self, tp: TopicPartition, start_offset: int) -> int | None:
        """The producer id whose open transaction starts there, None if there is none."""
        starts = {start: id_ for id_, (_, start) in self._log(tp).transactions.items()}
        return starts.get(start_offset)

    def is_open(self, tp: TopicPartition, producer_id: int) -> bool:
        """Whether this producer has a transaction open in the partition."""
        return producer_id in self._log(tp).transactions

    def end_at(self, tp: TopicPartition, producer_id: int, *, commit: bool) -> None:
        """End what this producer has open in the partition, as an operator does."""
        self._mark(tp, producer_id, self._log(tp).transactions[producer_id][0], commit)

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

    def _append(self, node: int, version: int, name: str | None, tp: TopicPartition, batch: Any) -> tuple[int, int]:
        if code := self.topics.refusal(node, tp):
            return code, -1
        batch = bytes(batch)  # the sender may use its buffer again
        header = HEADER.unpack_from(batch)
        producer_id, epoch, base_sequence = header[9], header[10], header[11]
        partition = self.partitions[tp]
        if partition.outdated(producer_id, epoch):
            return INVALID_PRODUCER_EPOCH, -1
        if name is None:
            if producer_id < 0:
                return NONE, partition.append_plain(self._contents(tp, batch), batch=batch)
            return partition.append(
                producer_id, epoch, base_sequence, self._contents(tp, batch), batch=batch, transactional=False
            )
        adding = version >= _FIRST_ADDING
        if (adding or self._verification) and not partition.in_transaction(producer_id, epoch if adding else None):
            partition.asks(producer_id, epoch, base_sequence)
        code = self._let_in(name, tp, partition, producer_id, epoch, adding=adding)
        if code:
            return code, -1
        return partition.append(
            producer_id,
            epoch,
            base_sequence,
            self._contents(tp, batch),
            batch=batch,
            leader_epoch=self.topics.leader_epoch[tp],
            first_sequence_is_zero=adding,
        )

    def _let_in(
        self, name: str, tp: TopicPartition, partition: Partition, producer_id: int, epoch: int, *, adding: bool
    ) -> int:
        """Ask the coordinator whether `tp` is in the open transaction; with `adding` (TV2), add it: the error code."""
        if partition.in_transaction(producer_id, epoch if adding else None):
            return NONE
        if not adding and not self._verification:
            return NONE
        if adding:
            code = self.transactions.add(name, producer_id, epoch, [tp])
        else:
            code = self.transactions.verify(name, producer_id, epoch, tp)
        if code == PRODUCER_FENCED:
            return INVALID_PRODUCER_EPOCH
        return NOT_ENOUGH_REPLICAS if code == CONCURRENT_TRANSACTIONS else code

    # -- groups

    def _offset_commit(self, node: int, _version: int, request: Any) -> Any:
        offsets, code = _offsets_in(request), NOT_COORDINATOR
        if not self._misdirected(node, request.group_id):
            self.group(request.group_id).commit_at_once(offsets, now_s=self._clock())
            code = NONE
        return _offsets_answered(offsets, code)

    def _describe_groups(self, node: int, _version: int, request: Any) -> Any:
        """Nobody is a member of any."""
        (group_id,) = request.groups
        code = NOT_COORDINATOR if self._misdirected(node, group_id) else NONE
        described = Answer(
            group_id=group_id, error_code=code, group_state="Empty", members=[], authorized_operations=None
        )
        return Answer(groups=[described])

    def _txn_offset_commit(self, node: int, version: int, request: Any) -> Any:
        offsets = _offsets_in(request)
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
        return _offsets_answered(offsets, code)

    def _offset_fetch(self, node: int, _version: int, request: Any) -> Any:
        if self._misdirected(node, request.group_id):
            return Answer(error_code=NOT_COORDINATOR, topics=[])
        group = self.group(request.group_id)
        offsets = group.fetch(_asked(request, group.offsets), request.require_stable)
        return Answer(error_code=NONE, topics=_by_topic((tp, _offset(tp, at)) for tp, at in offsets.items()))

    def outdated(self, request: Any, chance: Chance) -> Any:
        """The answer to OffsetFetch of a former coordinator that was paused and does not know its successor. None if
        offsets are pending, because only the current coordinator knows these.
        """
        group = self.group(request.group_id)
        if not group.past or any(group.unstable(tp) for tp in _asked(request, group.offsets)):
            return None
        return self._with_offsets(request, chance.choose("outdated offsets", group.past[-_BEHIND:]))

    def load_half(self, chance: Chance, until_s: float) -> None:
        """Until then, new coordinators answer OffsetFetch with what they have loaded, as Kafka 4.4 does where a first
        load ends while the second one runs.
        """
        for name, group in self.groups.items():
            if group.past:
                self._half_loaded[name] = until_s, chance.choose("loaded offsets", group.past[-_BEHIND:])

    def half_loaded(self, request: Any, now_s: float) -> Any:
        """The answer of such a coordinator; None if it has loaded all."""
        until_s, offsets = self._half_loaded.get(request.group_id, (0.0, {}))
        return self._with_offsets(request, offsets) if now_s < until_s else None

    @staticmethod
    def _with_offsets(request: Any, offsets: CommittedOffsets) -> Any:
        asked = _asked(request, offsets)
        return Answer(error_code=NONE, topics=_by_topic((tp, _offset(tp, offsets.get(tp, (-1, "")))) for tp in asked))


def _offsets_in(request: Any) -> dict[TopicPartition, Committed]:
    return {
        TopicPartition(topic.name, p.partition_index): (p.committed_offset, p.committed_metadata)
        for topic in request.topics
        for p in topic.partitions
    }


def _offsets_answered(partitions: Iterable[TopicPartition], code: int) -> Answer:
    return Answer(topics=_by_topic((tp, Answer(partition_index=tp.partition, error_code=code)) for tp in partitions))


def _asked(request: Any, committed: Iterable[TopicPartition]) -> list[TopicPartition]:
    """The partitions that OffsetFetch requests; the `committed` ones if it requests all."""
    if request.topics is None:
        return list(committed)
    return [TopicPartition(topic.name, n) for topic in request.topics for n in topic.partition_indexes]


def _offset(tp: TopicPartition, at: Committed | None) -> Answer:
    offset, metadata = at or (-1, "")
    code = UNSTABLE_OFFSET_COMMIT if at is None else NONE
    return Answer(partition_index=tp.partition, committed_offset=offset, metadata=metadata, error_code=code)


def _by_topic(answers: Iterable[tuple[TopicPartition, Answer]]) -> list[Answer]:
    topics: dict[str, list[Answer]] = {}
    for tp, answer in answers:
        topics.setdefault(tp.topic, []).append(answer)
    return [Answer(name=name, partitions=partitions) for name, partitions in topics.items()]
