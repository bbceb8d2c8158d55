"""A model of the group coordinator's committed offsets, outside of and within transactions (KIP-98, KIP-447).

Follows OffsetMetadataManager (Kafka 4.3) and GroupMetadata (3.9's classic coordinator);
tests/broker/test_simulation_model.py compares it with these brokers. Each group has its own partition for its offsets,
which checks producer epochs as any other partition.

Not obvious: before a classic coordinator appends pending offsets to the log, it stores them by producer id and
partition, without the epoch; if the log rejects them, it removes them. So a late TxnOffsetCommit of a past epoch is
rejected, but also removes the pending offsets of the next epoch. The next epoch's transaction commits, but the group
keeps its old offsets until another broker becomes its coordinator and reads the log, which is complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lab.simulation.partition import Partition
from spark_kafka_eos.kafka.partitions import TopicPartition

OFFSETS_TOPIC = "__consumer_offsets"

Committed = tuple[int, str]  # offset, metadata
CommittedOffsets = dict[TopicPartition, Committed]


class Group:
    """The offsets of one consumer group, and their log.

    `offsets` is what the coordinator answers; `history` is what was really committed.
    """

    def __init__(self, number: int, *, classic: bool = False) -> None:
        self.kept_in = TopicPartition(OFFSETS_TOPIC, number)
        self.partition = Partition()
        self.offsets: CommittedOffsets = {}
        self.history: list[tuple[int, int, CommittedOffsets]] = []  # producer id, epoch of the records
        self.past: list[CommittedOffsets] = []  # the offsets before each commit
        self.expired: CommittedOffsets = {}  # the offsets before they expired
        self._classic = classic
        self._committed_s = 0.0  # time of the last commit
        self._logged: CommittedOffsets = {}
        self._pending: dict[int, CommittedOffsets] = {}
        self._pending_in_log: dict[int, list[tuple[int, CommittedOffsets]]] = {}

    def commit(self, producer_id: int, epoch: int, offsets: Mapping[TopicPartition, Committed]) -> int:
        """TxnOffsetCommit, after the group was added to the transaction: the error code."""
        code, _ = self.partition.append(producer_id, epoch, None, (dict(offsets),))
        if not code:
            self._pending.setdefault(producer_id, {}).update(offsets)
            self._pending_in_log.setdefault(producer_id, []).append((epoch, dict(offsets)))
        elif self._classic:
            for tp in offsets:
                self._pending.get(producer_id, {}).pop(tp, None)
        return code

    def commit_at_once(self, offsets: Mapping[TopicPartition, Committed], *, now_s: float = 0.0) -> None:
        """OffsetCommit, of a client that is no member."""
        self._committed_s = now_s
        self.past.append(dict(self.offsets))
        self.offsets.update(offsets)
        self._logged.update(offsets)

    def mark(self, producer_id: int, epoch: int, commit: bool, *, now_s: float = 0.0) -> None:
        """Apply the transaction's marker: its pending offsets become the group's, or are discarded."""
        if not self.partition.mark(producer_id, epoch, commit):
            return
        pending, in_log = self._pending.pop(producer_id, {}), self._pending_in_log.pop(producer_id, [])
        if not commit:
            return
        self._committed_s = now_s
        self.past.append(dict(self.offsets))
        self.offsets.update(pending)
        last = {tp: number for number, (_, offsets) in enumerate(in_log) for tp in offsets}
        for number, (of_records, offsets) in enumerate(in_log):
            counts = {tp: at for tp, at in offsets.items() if last[tp] == number}  # a later one replaces it
            self._logged.update(counts)
            self.history.append((producer_id, of_records, counts))

    def expire(self, now_s: float, retention_s: float) -> None:
        """Forget all offsets if none is pending or younger than `retention_s` (`offsets.retention.minutes`)."""
        if now_s - self._committed_s >= retention_s and not any(self._pending_in_log.values()):
            self.expired |= self.offsets
            self.offsets.clear()
            self._logged.clear()
            self.past.clear()

    def reload(self) -> None:
        """Move the group to another coordinator, which reads the log."""
        self.offsets = dict(self._logged)
        self._pending = {
            producer_id: {tp: at for _, offsets in waiting for tp, at in offsets.items()}
            for producer_id, waiting in self._pending_in_log.items()
        }

    def unstable(self, partition: TopicPartition) -> bool:
        """Whether an open transaction has a pending offset for this partition."""
        return any(partition in waiting for waiting in self._pending.values())

    def fetch(
        self, partitions: Iterable[TopicPartition], require_stable: bool
    ) -> dict[TopicPartition, Committed | None]:
        """OffsetFetch: None stands for UNSTABLE_OFFSET_COMMIT, (-1, "") for no offset."""
        return {
            tp: None if require_stable and self.unstable(tp) else self.offsets.get(tp, (-1, "")) for tp in partitions
        }
