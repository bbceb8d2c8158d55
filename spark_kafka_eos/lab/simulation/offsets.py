"""A model of the group coordinator, as far as committed offsets go: at once, or with a transaction (KIP-98, KIP-447).

Read off OffsetMetadataManager (Kafka 4.3) and GroupMetadata (3.9's classic coordinator); compared with brokers by
tests/broker/test_simulation_model.py. Each group keeps its offsets in a partition of its own, where its producers'
epochs are checked as in any other.

Not obvious: a classic coordinator notes what is pending before the log takes it, by producer id and partition without
the epoch, and forgets it when the log refuses. So a late TxnOffsetCommit of an epoch that is over is refused, and takes
the offsets along that the next epoch has pending. Their transaction commits, and the group stays where it was, until
another broker coordinates it: that one reads the log, which has it all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from spark_kafka_eos.lab.simulation.partition import Partition
from spark_kafka_eos.model import TopicPartition

OFFSETS_TOPIC = "__consumer_offsets"

Committed = tuple[int, str]  # offset, metadata
CommittedOffsets = dict[TopicPartition, Committed]


class Group:
    """The offsets of one consumer group, and the log they are kept in.

    `offsets` is what the coordinator tells; `history` what was committed, whatever it tells.
    """

    def __init__(self, number: int, *, classic: bool = False) -> None:
        self.kept_in = TopicPartition(OFFSETS_TOPIC, number)
        self.partition = Partition()
        self.offsets: CommittedOffsets = {}
        self.history: list[tuple[int, int, CommittedOffsets]] = []  # producer id, epoch of the records
        self.past: list[CommittedOffsets] = []  # the offsets before each commit
        self.expired: CommittedOffsets = {}  # what was told before it expired
        self._classic = classic
        self._committed_s = 0.0  # when last
        self._logged: CommittedOffsets = {}
        self._pending: dict[int, CommittedOffsets] = {}
        self._pending_in_log: dict[int, list[tuple[int, CommittedOffsets]]] = {}

    def commit(self, producer_id: int, epoch: int, offsets: Mapping[TopicPartition, Committed]) -> int:
        """TxnOffsetCommit, once the coordinator let the group into the transaction: the error code."""
        code, _ = self.partition.append(producer_id, epoch, None, (dict(offsets),))
        if not code:
            self._pending.setdefault(producer_id, {}).update(offsets)
            self._pending_in_log.setdefault(producer_id, []).append((epoch, dict(offsets)))
        elif self._classic:
            for tp in offsets:
                self._pending.get(producer_id, {}).pop(tp, None)
        return code

    def mark(self, producer_id: int, epoch: int, commit: bool, *, now_s: float = 0.0) -> None:
        """The transaction's marker: what waited for it becomes the group's, or is forgotten."""
        if not self.partition.mark(producer_id, epoch, commit):
            return
        pending, in_log = self._pending.pop(producer_id, {}), self._pending_in_log.pop(producer_id, [])
        if not commit:
            return
        self._committed_s = now_s
        self.past.append(dict(self.offsets))
        self.offsets.update(pending)
        for of_records, offsets in in_log:
            self._logged.update(offsets)
            self.history.append((producer_id, of_records, offsets))

    def expire(self, now_s: float, retention_s: float) -> None:
        """Forget every offset if none was committed for so long (`offsets.retention.minutes`) and none is pending."""
        if now_s - self._committed_s >= retention_s and not any(self._pending_in_log.values()):
            self.expired |= self.offsets
            self.offsets.clear()
            self._logged.clear()
            self.past.clear()

    def reload(self) -> None:
        """Another broker coordinates the group from here on: it knows what the log says."""
        self.offsets = dict(self._logged)
        self._pending = {
            producer_id: {tp: at for _, offsets in waiting for tp, at in offsets.items()}
            for producer_id, waiting in self._pending_in_log.items()
        }

    def unstable(self, partition: TopicPartition) -> bool:
        """Whether an open transaction is about to commit this partition's offset."""
        return any(partition in waiting for waiting in self._pending.values())

    def fetch(
        self, partitions: Iterable[TopicPartition], require_stable: bool
    ) -> dict[TopicPartition, Committed | None]:
        """OffsetFetch: None stands for UNSTABLE_OFFSET_COMMIT, (-1, "") for no offset."""
        return {
            tp: None if require_stable and self.unstable(tp) else self.offsets.get(tp, (-1, "")) for tp in partitions
        }
