"""The requests to the model's transaction coordinators, with one `Coordinator` for each transactional.id.

Not obvious: only InitProducerId creates a transactional.id; all other requests for an unknown one are rejected.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from types import SimpleNamespace as Answer
from typing import Any

from lab.simulation.coordinator import (
    INVALID_PRODUCER_ID_MAPPING,
    NONE,
    NOT_COORDINATOR,
    Coordinator,
    Phase,
)
from spark_kafka_eos.kafka.partitions import TopicPartition

UNKNOWN_TOPIC_OR_PARTITION = 3
OPERATION_NOT_ATTEMPTED = 55
TRANSACTIONAL_ID_NOT_FOUND = 105

_FIRST_OF_TV2 = 5  # the version of EndTxn

# `later(why, action)`: run `action` some time later.
Later = Callable[[str, Callable[[], None]], None]
# Of the partitions of a transaction that ends: the one whose marker is left out, if any.
LeavesOut = Callable[[Collection[TopicPartition]], "TopicPartition | None"]


class Transactions:
    """`mark(partition, producer id, epoch, commit)` writes a marker; `later` decides when.

    `misdirected(node, key)` returns whether another broker coordinates `key`, `group_log(group)` the partition with a
    group's offsets. `opened(name, coordinator)` is called for each transaction that begins, `marked(partition)` for
    each marker that is written.
    """

    def __init__(
        self,
        *,
        version: int,
        misdirected: Callable[[int, str], bool],
        known_partitions: Collection[TopicPartition],
        group_log: Callable[[str], TopicPartition],
        mark: Callable[[TopicPartition, int, int, bool], None],
        later: Later,
        leaves_out: LeavesOut,
        now_ms: Callable[[], int],
        first_epoch: int,
    ) -> None:
        self.coordinators: dict[str, Coordinator] = {}
        self.opened: Callable[[str, Coordinator], None] = lambda _name, _coordinator: None
        self.marked: Callable[[TopicPartition], None] = lambda _tp: None
        self._version, self._first_epoch = version, first_epoch
        self._misdirected, self._known_partitions, self._group_log = misdirected, known_partitions, group_log
        self._mark, self._later, self._leaves_out, self._now_ms = mark, later, leaves_out, now_ms
        self._ids = 0
        self.left_out: dict[tuple[TopicPartition, int], bool] = {}  # by partition and producer id: whether to commit

    def states(self) -> dict[str, tuple[Phase, int, int]]:
        """Phase, producer id and epoch of each transactional.id."""
        return {
            name: (coordinator.phase, coordinator.producer_id, coordinator.epoch)
            for name, coordinator in self.coordinators.items()
        }

    def open_ids(self) -> set[int]:
        """The producer ids that have a transaction open, or being ended, for their coordinators."""
        over = (Phase.EMPTY, Phase.COMPLETE_COMMIT, Phase.COMPLETE_ABORT)
        return {producer_id for phase, producer_id, _ in self.states().values() if phase not in over}

    def is_ongoing(self, tp: TopicPartition, producer_id: int, epoch: int) -> bool:
        """Whether a transaction of this producer and epoch is open for its coordinator, and has this partition."""
        mine = (each for each in self.coordinators.values() if (each.producer_id, each.epoch) == (producer_id, epoch))
        return any(each.phase is Phase.ONGOING and tp in each.partitions for each in mine)

    def add(self, name: str, producer_id: int, epoch: int, joining: Collection[TopicPartition]) -> int:
        """Add partitions to the transaction, for a client or a TV2 leader: the error code."""
        coordinator = self.coordinators.get(name)
        if coordinator is None:
            return INVALID_PRODUCER_ID_MAPPING
        before = coordinator.transactions
        code = coordinator.add(producer_id, epoch, joining)
        if coordinator.transactions != before:
            self.opened(name, coordinator)
        return code

    def verify(self, name: str, producer_id: int, epoch: int, partition: TopicPartition) -> int:
        """Answer a TV1 leader whether the partition is part of the transaction: the error code."""
        coordinator = self.coordinators.get(name)
        return INVALID_PRODUCER_ID_MAPPING if coordinator is None else coordinator.verify(producer_id, epoch, partition)

    def expire(self) -> None:
        """Forget every transactional.id without an open transaction (`transactional.id.expiration.ms`)."""
        for name in [name for name, coordinator in self.coordinators.items() if coordinator.at_rest]:
            del self.coordinators[name]

    # -- requests

    def init_producer_id(self, node: int, _version: int, request: Any) -> Any:
        if request.transactional_id is None:  # a new id, whatever the producer had
            return Answer(error_code=NONE, producer_id=self._new_id(), producer_epoch=0)
        if self._misdirected(node, request.transactional_id):
            return Answer(error_code=NOT_COORDINATOR)
        code, (producer_id, epoch) = self._made(request.transactional_id).init(
            request.producer_id, request.producer_epoch, request.transaction_timeout_ms
        )
        return Answer(error_code=code, producer_id=producer_id, producer_epoch=epoch)

    def add_partitions(self, node: int, _version: int, request: Any) -> Any:
        name = request.v3_and_below_transactional_id
        asked = [TopicPartition(topic.name, n) for topic in request.v3_and_below_topics for n in topic.partitions]
        unknown = [tp for tp in asked if tp not in self._known_partitions]
        if unknown:
            code = OPERATION_NOT_ATTEMPTED
        elif self._misdirected(node, name):
            code = NOT_COORDINATOR
        else:
            code = self.add(name, request.v3_and_below_producer_id, request.v3_and_below_producer_epoch, asked)
        codes = dict.fromkeys(asked, code) | dict.fromkeys(unknown, UNKNOWN_TOPIC_OR_PARTITION)
        topics = [
            Answer(
                name=tp.topic, results_by_partition=[Answer(partition_index=tp.partition, partition_error_code=code)]
            )
            for tp, code in codes.items()
        ]
        return Answer(results_by_topic_v3_and_below=topics)

    def add_offsets(self, node: int, _version: int, request: Any) -> Any:
        code = NOT_COORDINATOR
        if not self._misdirected(node, request.transactional_id):
            joining = [self._group_log(request.group_id)]
            code = self.add(request.transactional_id, request.producer_id, request.producer_epoch, joining)
        return Answer(error_code=code)

    def end_txn(self, node: int, version: int, request: Any) -> Any:
        if self._misdirected(node, request.transactional_id):
            return Answer(error_code=NOT_COORDINATOR)
        coordinator = self.coordinators.get(request.transactional_id)
        if coordinator is None:
            return Answer(error_code=INVALID_PRODUCER_ID_MAPPING)
        code, (producer_id, epoch) = coordinator.end(
            request.producer_id, request.producer_epoch, request.committed, 2 if version >= _FIRST_OF_TV2 else 0
        )
        return Answer(error_code=code, producer_id=producer_id, producer_epoch=epoch)

    def describe(self, node: int, _version: int, request: Any) -> Any:
        return Answer(transaction_states=[self._described(node, name) for name in request.transactional_ids])

    def _described(self, node: int, name: str) -> Answer:
        coordinator = self.coordinators.get(name)
        if coordinator is None or self._misdirected(node, name):
            code = NOT_COORDINATOR if self._misdirected(node, name) else TRANSACTIONAL_ID_NOT_FOUND
            return Answer(transactional_id=name, error_code=code)
        topics: dict[str, list[int]] = {}
        for tp in sorted(coordinator.partitions):
            topics.setdefault(tp.topic, []).append(tp.partition)
        return Answer(
            transactional_id=name,
            error_code=NONE,
            transaction_state=coordinator.phase.value,
            transaction_timeout_ms=coordinator.timeout_ms,
            transaction_start_time_ms=coordinator.started_ms,
            producer_id=coordinator.producer_id,
            producer_epoch=coordinator.epoch,
            topics=[Answer(topic=topic, partitions=numbers) for topic, numbers in topics.items()],
        )

    # -- without a request

    def _made(self, name: str) -> Coordinator:
        if name not in self.coordinators:

            def decided(
                commit: bool, id_: int, _of_records: int, epoch: int, joined: Collection[TopicPartition]
            ) -> None:
                self._end(made, commit, id_, epoch, joined)

            made = self.coordinators[name] = Coordinator(
                server_version=self._version, new_id=self._new_id, decided=decided, now_ms=self._now_ms
            )
            made.epoch = self._first_epoch
            if made.epoch >= 0:
                made.producer_id = self._new_id()
        return self.coordinators[name]

    def _new_id(self) -> int:
        self._ids += 1
        return self._ids

    def _end(
        self, coordinator: Coordinator, commit: bool, producer_id: int, epoch: int, joined: Collection[TopicPartition]
    ) -> None:
        """Send the markers, after the end is decided."""
        if joined and (left_out := self._leaves_out(joined)) is not None:
            joined = [tp for tp in joined if tp != left_out]
            coordinator.partitions.discard(left_out)
            self.left_out[left_out, producer_id] = commit
        if not joined:
            coordinator.completed()
            return

        def mark(tp: TopicPartition) -> None:
            self._mark(tp, producer_id, epoch, commit)
            self.marked(tp)
            coordinator.partitions.discard(tp)
            if not coordinator.partitions:
                coordinator.completed()

        for tp in sorted(joined):
            self._later(f"the {'commit' if commit else 'abort'} marker reaches {tp}", lambda tp=tp: mark(tp))  # type: ignore[misc]
