"""A model of a partition's leader: its log, its producer state, and what read_committed consumers see.

Follows UnifiedLog, ProducerStateManager and ProducerAppendInfo (Kafka 3.9 and 4.3);
tests/broker/test_simulation_model.py compares it with these brokers.

Not obvious:
- A duplicate is recognized by epoch, first and last sequence among the producer's last five batches, not by content.
- These five are forgotten when the epoch changes, also by a marker with a higher epoch.
- TV1 accepts any first sequence from an unknown producer.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from spark_kafka_eos.kafka.wire.batch_header import AbortedTransaction

NONE = 0
OUT_OF_ORDER_SEQUENCE_NUMBER = 45
INVALID_PRODUCER_EPOCH = 47

_MAX_SEQUENCE = 0x7FFF_FFFF
_REMEMBERED = 5
_NO_PRODUCER = -1


class Entry(NamedTuple):
    """One batch of the log: records or, if `commit` is not None, a transaction marker.

    `batch` is what the producer sent, `timestamp_ms` the time of the marker; both may be omitted if nothing reads them.
    """

    offset: int
    producer_id: int
    epoch: int
    content: tuple[Any, ...]
    commit: bool | None
    batch: bytes = b""
    leader_epoch: int = 0
    timestamp_ms: int = 0

    @property
    def next_offset(self) -> int:
        return self.offset + len(self.content)


class _Producer:
    __slots__ = ("batches", "epoch", "first_offset")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches: deque[tuple[int, int, int]] = deque(maxlen=_REMEMBERED)  # first and last sequence, offset
        self.first_offset: int | None = None  # of the open transaction


class Partition:
    """The log of one partition; offsets from 0."""

    def __init__(self) -> None:
        self.log: list[Entry] = []
        self.start_offset = 0
        self.end_offset = 0
        self._producers: dict[int, _Producer] = {}
        self._asked_about: dict[int, tuple[int, int]] = {}  # producer id -> epoch, lowest sequence

    def in_transaction(self, producer_id: int, epoch: int | None = None) -> bool:
        """Whether a transaction of the producer has records here, so that the leader no longer asks the coordinator.

        Kafka 4 also checks the epoch; Kafka 3 does not.
        """
        producer = self._producers.get(producer_id)
        return producer is not None and producer.first_offset is not None and epoch in (None, producer.epoch)

    @property
    def transactions(self) -> dict[int, tuple[int, int | None]]:
        """The epoch of each known producer, and where its open transaction starts, None if it has none."""
        return {
            producer_id: (producer.epoch, producer.first_offset) for producer_id, producer in self._producers.items()
        }

    def outdated(self, producer_id: int, epoch: int) -> bool:
        """Whether a later epoch has written here, even if only a marker."""
        producer = self._producers.get(producer_id)
        return producer is not None and epoch < producer.epoch

    def asks(self, producer_id: int, epoch: int, base_sequence: int) -> None:
        """Record that the coordinator is asked about this sequence: no higher sequence may be appended first."""
        known_epoch, lowest = self._asked_about.get(producer_id, (epoch, base_sequence))
        if epoch > known_epoch:
            known_epoch, lowest = epoch, base_sequence
        elif epoch == known_epoch:
            lowest = min(lowest, base_sequence)
        self._asked_about[producer_id] = known_epoch, lowest

    def append(
        self,
        producer_id: int,
        epoch: int,
        base_sequence: int | None,
        content: tuple[Any, ...],
        *,
        batch: bytes = b"",
        leader_epoch: int = 0,
        first_sequence_is_zero: bool = False,
        transactional: bool = True,
    ) -> tuple[int, int]:
        """Append a producer's records: (error code, base offset). Offsets of groups have no base sequence."""
        producer = self._producers.get(producer_id)
        if base_sequence is not None:
            last = (base_sequence + len(content) - 1) & _MAX_SEQUENCE
            if producer is not None and producer.epoch == epoch:
                for first_seen, last_seen, offset in producer.batches:
                    if (first_seen, last_seen) == (base_sequence, last):
                        return NONE, offset
        if producer is not None and epoch < producer.epoch:
            return INVALID_PRODUCER_EPOCH, -1
        if base_sequence is not None:
            above = base_sequence > self._asked_about.get(producer_id, (epoch, base_sequence))[1]
            if above or not self._follows(producer, epoch, base_sequence, first_sequence_is_zero):
                return OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        offset = self.end_offset
        producer = self._producer(producer_id, epoch)
        if base_sequence is not None:
            producer.batches.append((base_sequence, last, offset))
        if transactional and producer.first_offset is None:
            producer.first_offset = offset
        self._add(Entry(offset, producer_id, epoch, content, None, batch, leader_epoch))
        return NONE, offset

    def append_plain(self, content: tuple[Any, ...], *, batch: bytes = b"", leader_epoch: int = 0) -> int:
        """Append records outside of transactions, of a producer without an id; return their offset."""
        entry = Entry(self.end_offset, _NO_PRODUCER, _NO_PRODUCER, content, None, batch, leader_epoch)
        self._add(entry)
        return entry.offset

    def delete_before(self, offset: int) -> None:
        """Delete the records before `offset`, as DeleteRecords and retention do: the first batch may keep some."""
        self.start_offset = offset
        self.log = [entry for entry in self.log if entry.next_offset > offset]

    def mark(self, producer_id: int, epoch: int, commit: bool, *, leader_epoch: int = 0, timestamp_ms: int = 0) -> bool:
        """Write a transaction marker; False if it is rejected because a later epoch has written here."""
        producer = self._producers.get(producer_id)
        if producer is not None and epoch < producer.epoch:
            return False
        self._producer(producer_id, epoch).first_offset = None
        entry = Entry(self.end_offset, producer_id, epoch, (commit,), commit, b"", leader_epoch, timestamp_ms)
        self._add(entry)
        return True

    def forget_producers(self) -> None:
        """Let producers without an open transaction here expire (`producer.id.expiration.ms`), with their epochs."""
        self._producers = {
            id_: producer for id_, producer in self._producers.items() if producer.first_offset is not None
        }
        self._asked_about.clear()

    def end_of_epoch(self, epoch: int) -> int:
        """Where the log of this leader epoch, or an earlier one, ends: where the first later one begins."""
        return next((entry.offset for entry in self.log if entry.leader_epoch > epoch), self.end_offset)

    def truncate(self, offset: int) -> None:
        """Lose what follows `offset`, as in an unclean leader election. It ends a batch."""
        self.log = [entry for entry in self.log if entry.next_offset <= offset]
        self.end_offset = offset

    @property
    def last_stable_offset(self) -> int:
        """The first offset of the oldest open transaction; the log's end if none is open."""
        opened = [p.first_offset for p in self._producers.values() if p.first_offset is not None]
        return min(opened, default=self.end_offset)

    def entries(self, start: int, end: int) -> list[Entry]:
        """The batches with an offset in `[start, end)`, in order."""
        return [entry for entry in self.log if entry.next_offset > start and entry.offset < end]

    def aborted(self, start: int, end: int) -> list[AbortedTransaction]:
        """The aborted transactions with an offset in `[start, end)`, in the order of their ends."""
        opened: dict[int, int] = {}  # producer id -> first offset
        transactions = []
        for entry in self.log:
            if entry.commit is None:
                if entry.producer_id != _NO_PRODUCER:
                    opened.setdefault(entry.producer_id, entry.offset)
                continue
            first = opened.pop(entry.producer_id, None)
            if first is not None and not entry.commit and entry.offset >= start and first < end:
                transactions.append(AbortedTransaction(producer_id=entry.producer_id, first_offset=first))
        return transactions

    def committed(self) -> list[Entry]:
        """The batches that a read_committed consumer sees, in order."""
        fate: dict[int, bool] = {}
        seen = []
        stable = self.last_stable_offset
        for entry in reversed(self.log):  # the producer's next marker decides about a batch
            if entry.commit is not None:
                fate[entry.producer_id] = entry.commit
            elif entry.offset < stable and fate.get(entry.producer_id, entry.producer_id == _NO_PRODUCER):
                seen.append(entry)
        seen.reverse()
        return seen

    def _follows(self, producer: _Producer | None, epoch: int, base_sequence: int, must_be_zero: bool) -> bool:
        if producer is None:
            return base_sequence == 0 or not must_be_zero
        if producer.epoch != epoch or not producer.batches:
            return base_sequence == 0
        return base_sequence == (producer.batches[-1][1] + 1) & _MAX_SEQUENCE

    def _producer(self, producer_id: int, epoch: int) -> _Producer:
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._producers[producer_id] = _Producer(epoch)
        elif producer.epoch != epoch:
            producer.epoch = epoch
            producer.batches.clear()
        return producer

    def _add(self, entry: Entry) -> None:
        self._asked_about.pop(entry.producer_id, None)
        self.log.append(entry)
        self.end_offset = entry.next_offset
