"""A model of the group coordinator, as far as committed offsets go: at once, or with a transaction (KIP-98, KIP-447).

Read off OffsetMetadataManager (Kafka 4.3); compared with brokers by tests/broker/test_simulation_model.py. Each group
keeps its offsets in a partition of its own, where its producers' epochs are checked as in any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from spark_kafka_eos.model import TopicPartition
from spark_kafka_eos.tools.simulation.partition import Partition

OFFSETS_TOPIC = "__consumer_offsets"

Committed = tuple[int, str]  # offset, metadata


class Group:
    """The offsets of one consumer group, and the log they are kept in."""

    def __init__(self, number: int) -> None:
        self.kept_in = TopicPartition(OFFSETS_TOPIC, number)
        self.partition = Partition()
        self.offsets: dict[TopicPartition, Committed] = {}
        self.history: list[tuple[int, int, dict[TopicPartition, Committed]]] = []  # producer id, epoch of the records
        self.past: list[dict[TopicPartition, Committed]] = []  # the offsets before each commit
        self._pending: dict[int, list[tuple[int, dict[TopicPartition, Committed]]]] = {}

    def commit(self, producer_id: int, epoch: int, offsets: Mapping[TopicPartition, Committed]) -> int:
        """TxnOffsetCommit, once the coordinator let the group into the transaction: the error code."""
        code, _ = self.partition.append(producer_id, epoch, None, (dict(offsets),))
        if not code:
            self._pending.setdefault(producer_id, []).append((epoch, dict(offsets)))
        return code

    def mark(self, producer_id: int, epoch: int, commit: bool) -> None:
        """The transaction's marker: what waited for it becomes the group's, or is forgotten."""
        if not self.partition.mark(producer_id, epoch, commit):
            return
        if commit:
            self.past.append(dict(self.offsets))
        for of_records, offsets in self._pending.pop(producer_id, ()):
            if commit:
                self.offsets.update(offsets)
                self.history.append((producer_id, of_records, offsets))

    def unstable(self, partition: TopicPartition) -> bool:
        """Whether an open transaction is about to commit this partition's offset."""
        return any(partition in offsets for waiting in self._pending.values() for _, offsets in waiting)

    def fetch(
        self, partitions: Iterable[TopicPartition], require_stable: bool
    ) -> dict[TopicPartition, Committed | None]:
        """OffsetFetch: None stands for UNSTABLE_OFFSET_COMMIT, (-1, "") for no offset."""
        return {
            tp: None if require_stable and self.unstable(tp) else self.offsets.get(tp, (-1, "")) for tp in partitions
        }
