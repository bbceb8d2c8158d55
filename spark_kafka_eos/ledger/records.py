"""The ledger's records by transactional.id, with the outcome of their transactions. Pure: takes what was fetched.

The partition is read uncommitted, up to the high watermark, and control batches decide: many queries have open
transactions in it, and a read_committed reader would wait for all of them. Not obvious:
- Below the last stable offset, a record without a marker is committed: compaction has removed the marker.
- A record that was not written in a transaction counts as committed, and `LedgerRecords.outside` keeps it: its readers
  decide what that means.
Source: KIP-98 (control batches, last stable offset), Kafka's LogCleaner.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from spark_kafka_eos.kafka.fetching.fetch_steps import Fetched
from spark_kafka_eos.kafka.producer import ProducerEpoch
from spark_kafka_eos.kafka.wire import single
from spark_kafka_eos.kafka.wire.batch_header import RecordBatchHeader
from spark_kafka_eos.options.sink import BUCKETS


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

    @property
    def producer(self) -> ProducerEpoch:
        return ProducerEpoch(self.producer_id, self.epoch)


@dataclass(slots=True)
class LedgerRecords:
    """The records of one transactional.id: the last committed ones, oldest first, and those of open transactions."""

    committed: deque[LedgerRecord]
    pending: list[LedgerRecord] = field(default_factory=list)
    outside: LedgerRecord | None = None  # the last one, not a tombstone, that was not written in a transaction

    @property
    def last(self) -> LedgerRecord | None:
        """The last committed record."""
        return self.committed[-1] if self.committed else None

    @property
    def undecided(self) -> frozenset[int]:
        """The producer ids of records in open transactions."""
        return frozenset(record.producer_id for record in self.pending)

    def end(self, producer_id: int, *, commit: bool) -> None:
        """Move the pending records of this producer to the committed ones, or drop them."""
        ended = [record for record in self.pending if record.producer_id == producer_id]
        self.pending = [record for record in self.pending if record.producer_id != producer_id]
        if commit:
            self._commit(ended)

    def settle(self, stable: int) -> None:
        """Commit what is pending below the last stable offset."""
        self._commit([record for record in self.pending if record.offset < stable])
        self.pending = [record for record in self.pending if record.offset >= stable]

    def _commit(self, records: list[LedgerRecord]) -> None:
        for record in records:
            if not self.committed or record.offset > self.committed[-1].offset:
                self.committed.append(record)


class RecordLog:
    """The records of all transactional.ids, or of the one in `only` and its buckets: of each, the last `keep` committed
    ones.
    """

    def __init__(self, *, keep: int = 1, only: str | None = None) -> None:
        self._keep = keep
        self._only = None if only is None else only.encode()
        self._buckets = b"" if only is None else f"{only}{BUCKETS}".encode()
        self.by_id: dict[str, LedgerRecords] = {}
        self._ids: dict[int, set[str]] = {}  # by producer id, of what is pending

    def take(self, part: Fetched, end: int) -> None:
        """Add the fetched record batches that begin before `end`."""
        for header in part.batches:
            if header.base_offset >= end:
                return
            if header.is_control:
                if header.producer_id in self._ids and (marker := single.marker(part.buffer, header)):
                    for name in self._ids.pop(header.producer_id):
                        self.by_id[name].end(header.producer_id, commit=marker == "commit")
            else:
                self._take_records(part, header)

    def settle(self, stable: int) -> None:
        """Commit what is pending below `stable`, the last stable offset, as no marker will follow."""
        for name in {name for names in self._ids.values() for name in names}:
            self.by_id[name].settle(stable)
        self._ids = {
            producer_id: names
            for producer_id, names in self._ids.items()
            if any(record.producer_id == producer_id for name in names for record in self.by_id[name].pending)
        }

    def _take_records(self, part: Fetched, header: RecordBatchHeader) -> None:
        in_transaction = header.is_transactional
        for offset, key, value in self._records(part, header):
            name = key.decode(errors="replace")
            records = self.by_id.setdefault(name, LedgerRecords(deque(maxlen=self._keep)))
            record = LedgerRecord(
                offset=offset,
                timestamp_ms=header.base_timestamp,
                value=value,
                producer_id=header.producer_id if in_transaction else -1,
                epoch=header.producer_epoch if in_transaction else -1,
            )
            records.pending.append(record)
            if in_transaction:
                self._ids.setdefault(header.producer_id, set()).add(name)
            else:
                records.end(-1, commit=True)
                records.outside = records.outside if value is None else record

    def _records(self, part: Fetched, header: RecordBatchHeader) -> Iterator[tuple[int, bytes, bytes | None]]:
        if self._only is not None and not header.compression_code:
            record_batch = part.buffer[header.position : header.position + header.size]
            if self._only not in bytes(record_batch):
                return  # not decoded
        for offset, key, value in single.records(part.buffer, header):
            if key is not None and (self._only in (None, key) or key.startswith(self._buckets)):
                yield offset, key, value
