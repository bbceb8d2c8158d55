"""A model of the group coordinator's committed offsets, outside of and within transactions (KIP-98, KIP-447).

Follows OffsetMetadataManager (Kafka 4.3) and GroupMetadata (3.9's classic coordinator);
tests/broker/test_simulation_model.py compares it with these brokers. Each group has its own partition for its offsets,
which checks producer epochs as any other partition.

Not obvious:
- Of two transactions' offsets, those count that are later in the log, in whatever order the markers come.
- Before a classic coordinator appends pending offsets to the log, it stores them by producer id and partition, without
  the epoch; if the log rejects them, it removes them. So a late TxnOffsetCommit of a past epoch is rejected, but also
  removes the pending offsets of the next epoch. The next epoch's transaction commits, but the group keeps its old
  offsets until another broker becomes its coordinator and reads the log, which is complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from lab.simulation.partition import Partition
from spark_kafka_eos.kafka.partitions import TopicPartition

OFFSETS_TOPIC = "__consumer_offsets"

Committed = tuple[int, str]  # offset, metadata
CommittedOffsets = dict[TopicPartition, Committed]


class Commit(NamedTuple):
    """Offsets of one TxnOffsetCommit that were committed, and its `place` in the group's log."""

    producer_id: int
    epoch: int  # of the records
    offsets: CommittedOffsets
    place: int


class Group:
    """The offsets of one consumer group, and their log.

    `offsets` is what the coordinator answers; `history` is what was really committed.
    """

    def __init__(self, number: int, *, classic: bool = False) -> None:
        self.kept_in = TopicPartition(OFFSETS_TOPIC, number)
        self.partition = Partition()
        self.offsets: CommittedOffsets = {}
        self.history: list[Commit] = []  # in the order of their markers
        self.past: list[CommittedOffsets] = []  # the offsets before each commit
        self.expired: CommittedOffsets = {}  # the offsets before they expired
        self._classic = classic
        self._committed_s = 0.0  # time of the last commit
        self._logged: CommittedOffsets = {}
        self._places: dict[TopicPartition, int] = {}  # of `offsets` in the log
        self._logged_places: dict[TopicPartition, int] = {}
        self._pending: dict[int, dict[TopicPartition, Commit]] = {}
        self._pending_in_log: dict[int, list[Commit]] = {}

    def commit(self, producer_id: int, epoch: int, offsets: Mapping[TopicPartition, Committed]) -> int:
        """TxnOffsetCommit, after the group was added to the transaction: the error code."""
        code, place = self.partition.append(producer_id, epoch, None, (dict(offsets),))
        if not code:
            commit = Commit(producer_id, epoch, dict(offsets), place)
            self._pending.setdefault(producer_id, {}).update(dict.fromkeys(offsets, commit))
            self._pending_in_log.setdefault(producer_id, []).append(commit)
        elif self._classic:
            for tp in offsets:
                self._pending.get(producer_id, {}).pop(tp, None)
        return code

    def commit_at_once(self, offsets: Mapping[TopicPartition, Committed], *, now_s: float = 0.0) -> None:
        """OffsetCommit, of a client that is no member."""
        self._committed_s = now_s
        self.past.append(dict(self.offsets))
        place = self.partition.append_plain((dict(offsets),))
        commits = dict.fromkeys(offsets, Commit(-1, -1, dict(offsets), place))
        _apply(commits, self.offsets, self._places)
        _apply(commits, self._logged, self._logged_places)

    def mark(self, producer_id: int, epoch: int, commit: bool, *, now_s: float = 0.0) -> None:
        """Apply the transaction's marker: its pending offsets become the group's, or are discarded."""
        if not self.partition.mark(producer_id, epoch, commit):
            return
        pending, in_log = self._pending.pop(producer_id, {}), self._pending_in_log.pop(producer_id, [])
        if not commit:
            return
        self._committed_s = now_s
        self.past.append(dict(self.offsets))
        _apply(pending, self.offsets, self._places)
        last = _last(in_log)
        _apply(last, self._logged, self._logged_places)
        for one in in_log:  # a later one replaces what both have
            counts = {tp: at for tp, at in one.offsets.items() if last[tp] is one}
            self.history.append(one._replace(offsets=counts))

    def expire(self, now_s: float, retention_s: float) -> None:
        """Forget all offsets if none is pending or younger than `retention_s` (`offsets.retention.minutes`)."""
        if now_s - self._committed_s >= retention_s and not any(self._pending_in_log.values()):
            self.expired |= self.offsets
            for offsets in (self.offsets, self._places, self._logged, self._logged_places):
                offsets.clear()
            self.past.clear()

    def reload(self) -> None:
        """Move the group to another coordinator, which reads the log."""
        self.offsets, self._places = dict(self._logged), dict(self._logged_places)
        self._pending = {producer_id: _last(waiting) for producer_id, waiting in self._pending_in_log.items()}

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


def _last(commits: Iterable[Commit]) -> dict[TopicPartition, Commit]:
    return {tp: commit for commit in commits for tp in commit.offsets}


def _apply(
    commits: Mapping[TopicPartition, Commit], offsets: CommittedOffsets, places: dict[TopicPartition, int]
) -> None:
    """Take over those offsets that are later in the log than what is there."""
    for tp, commit in commits.items():
        if commit.place > places.get(tp, -1):
            offsets[tp], places[tp] = commit.offsets[tp], commit.place
