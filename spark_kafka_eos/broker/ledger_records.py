"""The ledger's records of all transactional.ids, for those who look on: who owns which id is not their business.

It is read uncommitted and from its beginning, as `ledger_topic` explains. A second look reads only what is new.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from spark_kafka_eos.broker import offsets
from spark_kafka_eos.broker.cluster import Cluster
from spark_kafka_eos.broker.fetch import Fetcher
from spark_kafka_eos.core.fetch_steps import Fetched
from spark_kafka_eos.errors import DataLoss, UnknownTopic
from spark_kafka_eos.model import OffsetRange, RecordBatchHeader, TopicPartition
from spark_kafka_eos.wire import single

_FETCH_WAIT_MS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRecord:
    """A record of the ledger topic; `timestamp_ms` since 1970, by the driver's clock.

    `producer_id` and `epoch` are -1 if it was not written in a transaction, so by another program.
    """

    offset: int
    timestamp_ms: int
    value: bytes | None
    producer_id: int
    epoch: int


@dataclass(slots=True)
class Records:
    """The records of one transactional.id: the last committed ones, oldest first, and those of open transactions."""

    committed: deque[LedgerRecord]
    pending: list[LedgerRecord] = field(default_factory=list)

    def end(self, producer_id: int, *, commit: bool) -> None:
        """Move the pending records of this producer to the committed ones, or drop them."""
        ended = [record for record in self.pending if record.producer_id == producer_id]
        self.pending = [record for record in self.pending if record.producer_id != producer_id]
        if commit:
            self._commit(ended)

    def settle(self, stable: int) -> None:
        """Below the last stable offset, records without a marker are committed: compaction has removed it."""
        self._commit([record for record in self.pending if record.offset < stable])
        self.pending = [record for record in self.pending if record.offset >= stable]

    def _commit(self, records: list[LedgerRecord]) -> None:
        for record in records:
            if not self.committed or record.offset > self.committed[-1].offset:
                self.committed.append(record)


class LedgerRecords:
    """The records of `topic` by transactional.id, as of the last `read`: of each id, the last `keep` committed ones.

    `only` leaves out all other ids.
    """

    def __init__(self, cluster: Cluster, topic: str, *, keep: int = 1, only: str | None = None) -> None:
        self.at = TopicPartition(topic, 0)
        self._cluster, self._keep = cluster, keep
        self._only = None if only is None else only.encode()
        self._start_over()

    def read(self) -> bool:
        """Read what is new; False if the topic does not exist.

        Raises AuthorizationFailed, CorruptRecordBatch, BrokerError, BrokerUnreachable.
        """
        try:
            if not self._cluster.exists(self.at.topic, patience_ms=0):
                self._start_over()
                return False
            try:
                self._read()
            except (DataLoss, UnknownTopic):  # created again, or truncated
                self._start_over()
                self._read()
        except UnknownTopic:
            self._start_over()
            return False
        return True

    def _start_over(self) -> None:
        self.by_id: dict[str, Records] = {}
        self._ids: dict[int, set[str]] = {}  # by producer id, of what is pending
        self._position: int | None = None
        self._topic_id: uuid.UUID | None = None

    def _read(self) -> None:
        # Request the stable offset first: then the marker before it is below the high watermark.
        stable = offsets.latest(self._cluster, [self.at])[self.at]
        end = offsets.latest(self._cluster, [self.at], isolation_level="read_uncommitted")[self.at]
        topic_id = self._cluster.topic(self.at.topic).id
        if self._position is None or self._position > end or self._topic_id != topic_id:
            self._start_over()
            self._position, self._topic_id = offsets.earliest(self._cluster, [self.at])[self.at], topic_id
        new = OffsetRange(partition=self.at, start=self._position, end=end, topic_id=topic_id)
        fetcher = Fetcher(self._cluster, isolation_level="read_uncommitted", fetch_max_wait_ms=_FETCH_WAIT_MS)
        for part in fetcher.fetch([new]):
            self._take(part, end)
            self._position = min(part.next_offset, end)
        for name in {name for names in self._ids.values() for name in names}:
            self.by_id[name].settle(min(stable, end))
        self._ids = {
            producer_id: names
            for producer_id, names in self._ids.items()
            if any(record.producer_id == producer_id for name in names for record in self.by_id[name].pending)
        }

    def _take(self, part: Fetched, end: int) -> None:
        for header in part.batches:
            if header.base_offset >= end:
                return
            if header.is_control:
                marker = single.marker(part.buffer, header)
                for name in self._ids.pop(header.producer_id, ()) if marker else ():
                    self.by_id[name].end(header.producer_id, commit=marker == "commit")
                continue
            ours = header.is_transactional
            for offset, key, value in self._records(part, header):
                name = key.decode(errors="replace")
                records = self.by_id.setdefault(name, Records(deque(maxlen=self._keep)))
                records.pending.append(
                    LedgerRecord(
                        offset=offset,
                        timestamp_ms=header.base_timestamp,
                        value=value,
                        producer_id=header.producer_id if ours else -1,
                        epoch=header.producer_epoch if ours else -1,
                    )
                )
                if ours:
                    self._ids.setdefault(header.producer_id, set()).add(name)
                else:
                    records.end(-1, commit=True)

    def _records(self, part: Fetched, header: RecordBatchHeader) -> Iterator[tuple[int, bytes, bytes | None]]:
        if self._only is not None and not header.compression_code:
            record_batch = part.buffer[header.position : header.position + header.size]
            if self._only not in bytes(record_batch):
                return  # not decoded
        for offset, key, value in single.records(part.buffer, header):
            if key is not None and self._only in (None, key):
                yield offset, key, value
