"""The ledger's records in its compacted topic: reads the last one of a transactional.id, and appends the next one.

All of them are in partition 0, so that added partitions do not matter. Not obvious:
- It is read uncommitted, up to the high watermark, and control batches decide: other queries have open transactions in
  the same partition, and a read_committed reader would wait for them.
- The owner of the transactional.id knows that its own transactions have ended. So a record without a later marker is
  committed if it is stable (compaction has removed the marker); else it is a straggler's record, which never ends.
- Other readers wait for the marker, as OffsetFetch does with require_stable.
Source: KIP-98 (control batches, last stable offset), Kafka's LogCleaner.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from spark_kafka_eos.broker import offsets
from spark_kafka_eos.broker.cluster import Cluster
from spark_kafka_eos.broker.fetch import Fetcher
from spark_kafka_eos.broker.produce import Appender
from spark_kafka_eos.broker.topics import create_topic
from spark_kafka_eos.broker.transactions import TransactionCoordinator
from spark_kafka_eos.core.fetch_steps import Fetched
from spark_kafka_eos.errors import AuthorizationFailed, BrokerUnreachable, DataLoss, LedgerRefused, UnknownTopic
from spark_kafka_eos.model import Ack, OffsetRange, ProducerIdentity, RecordBatchHeader, TopicPartition
from spark_kafka_eos.wire import single
from spark_kafka_eos.wire.record_batch import stamp

_REPLICAS = 3
_FETCH_WAIT_MS = 100
# Small segments, because the cleaner would otherwise not clean the last gigabyte.
SETTINGS: Mapping[str, str] = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.1",
    "segment.bytes": str(16 << 20),
    "unclean.leader.election.enable": "false",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRecord:
    """The value of the last committed record, None if there is none, and the offset up to which the topic was read."""

    value: bytes | None
    position: int


class LedgerTopic:
    """The records of one transactional.id. Raises AuthorizationFailed, BrokerError, BrokerUnreachable, and
    LedgerRefused if the topic is not a ledger.
    """

    def __init__(self, cluster: Cluster, topic: str, transactional_id: str) -> None:
        self.at = TopicPartition(topic, 0)
        self._cluster, self._key = cluster, transactional_id.encode()
        self._there = False

    def ensure(self) -> None:
        """Create the topic if it does not exist: compacted, with three replicas if there are three brokers."""
        if self._there:
            return
        try:
            self._cluster.refresh([self.at.topic], patience_ms=0)
        except UnknownTopic:
            self._create()
            self._cluster.refresh([self.at.topic])
        self._there = True

    def read(self, since: int | None) -> LastRecord:
        """The last committed record, for the owner of the transactional.id. The record is at offset `since` or after
        it; None reads everything.
        """
        scan = self._scan(since)
        if since is not None and not scan.any:  # the topic was created again or truncated
            scan = self._scan(None)
        return LastRecord(value=scan.last(), position=scan.position)

    def read_settled(self) -> LastRecord | None:
        """The same for other readers: waits for the outcome of the last record. None if the topic does not exist."""
        budget = self._cluster.budget()
        try:
            while (scan := self._scan(None)).unsettled():
                delay = budget.delay()
                if delay is None:
                    raise BrokerUnreachable(
                        f"a transaction of {self._key.decode()!r} is still open, so its ledger entry is not final",
                        action="Retry when its query has finished the batch, or when the transaction has timed out.",
                    )
                self._cluster.sleep(delay)
        except UnknownTopic:
            return None
        return LastRecord(value=scan.last(), position=scan.position)

    def follows(self, position: int, acknowledged: Ack) -> bool:
        """Whether no record of this id was committed between `position` and the one just appended."""
        if acknowledged.base_offset == position:
            return True
        end = acknowledged.base_offset if acknowledged.base_offset >= 0 else None
        return self._scan(position, end).settled is None

    def append(
        self, coordinator: TransactionCoordinator, identity: ProducerIdentity, value: bytes, *, timestamp_ms: int
    ) -> PendingRecord:
        """Append the record in the open transaction, without waiting for its acknowledgement."""
        coordinator.add_partitions(identity, [self.at])
        batch = single.encode_record(self._key, value, timestamp_ms)
        stamp(batch, producer_id=identity.producer_id, epoch=identity.epoch, base_sequence=0, transactional=True)
        appender = Appender(self._cluster, identity, transaction_version=identity.transaction_version, linger_bytes=0)
        appender.append(self.at, batch, records=1, base_sequence=0)
        return PendingRecord(appender)

    # -- reading

    def _scan(self, since: int | None, end: int | None = None) -> _Scan:
        # Request the stable offset first: then the marker before it is below the high watermark.
        stable = offsets.latest(self._cluster, [self.at])[self.at]
        if end is None:
            end = offsets.latest(self._cluster, [self.at], isolation_level="read_uncommitted")[self.at]
        start = since if since is not None and since <= end else self._earliest()
        scan = _Scan(position=end, stable=min(stable, end))
        fetcher = Fetcher(self._cluster, isolation_level="read_uncommitted", fetch_max_wait_ms=_FETCH_WAIT_MS)
        try:
            for part in fetcher.fetch([OffsetRange(partition=self.at, start=start, end=end)]):
                self._take(part, end, scan)
        except DataLoss:
            if since is None:
                raise
            return self._scan(None, end)
        return scan

    def _earliest(self) -> int:
        return offsets.earliest(self._cluster, [self.at])[self.at]

    def _take(self, part: Fetched, end: int, scan: _Scan) -> None:
        for header in part.batches:
            if header.base_offset >= end:
                return
            if header.is_control:
                scan.mark(header.producer_id, single.marker(part.buffer, header))
            elif self._may_concern(part.buffer, header):
                self._take_records(part, header, scan)

    def _may_concern(self, buffer: memoryview, header: RecordBatchHeader) -> bool:
        """Whether the batch may contain our key; others are not decoded."""
        record_batch = buffer[header.position : header.position + header.size]
        return bool(header.compression_code) or self._key in bytes(record_batch)

    def _take_records(self, part: Fetched, header: RecordBatchHeader, scan: _Scan) -> None:
        for offset, key, value in single.records(part.buffer, header):
            if key != self._key:
                continue
            if value is not None and not header.is_transactional:
                raise LedgerRefused(
                    f"topic {self.at.topic!r} contains a record of {self._key.decode()!r} at offset {offset} that was "
                    "not written in a transaction: another program writes to it",
                    action="Set ledgerTopic to a topic that only kafka-eos sinks write to.",
                )
            scan.add(header.producer_id if header.is_transactional else None, offset, value)

    # -- creating

    def _create(self) -> None:
        replicas = min(_REPLICAS, len(self._cluster.nodes()))
        settings = {**SETTINGS, "min.insync.replicas": str(max(1, replicas - 1))}
        try:
            create_topic(self._cluster, self.at.topic, partitions=1, replicas=replicas, config=settings)
        except AuthorizationFailed as error:
            config = " ".join(f"--config {name}={value}" for name, value in settings.items())
            action = (
                f"Create the ledger topic: kafka-topics.sh --create --topic {self.at.topic} --partitions 1 "
                f"--replication-factor {replicas} {config}; or grant Create on it to this principal, once."
            )
            raise error.replaced(action=action) from error


class PendingRecord:
    """A record in flight; a context manager that abandons it unless it was awaited."""

    def __init__(self, appender: Appender) -> None:
        self._appender = appender

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._appender.close()

    def acknowledged(self) -> Ack:
        """Wait for the broker's acknowledgement. Raises what `Appender` raises."""
        (ack,) = self._appender.flush()
        return ack


@dataclass(slots=True, kw_only=True)
class _Scan:
    """The result of a scan: the last record with a known outcome, and those that wait for their producer's next
    marker.
    """

    position: int
    stable: int
    any: bool = False
    settled: tuple[int, bytes | None] | None = None
    open: dict[int, list[tuple[int, bytes | None]]] = field(default_factory=dict)

    def add(self, producer_id: int | None, offset: int, value: bytes | None) -> None:
        self.any = True
        if producer_id is None:
            self.settled = offset, value
        else:
            self.open.setdefault(producer_id, []).append((offset, value))

    def mark(self, producer_id: int, marker: str | None) -> None:
        if marker is None:
            return
        ended = self.open.pop(producer_id, [])
        if ended and marker == "commit":
            self.settled = max(ended[-1], self.settled or ended[-1], key=lambda record: record[0])

    def unsettled(self) -> bool:
        """Whether a record's transaction is still open."""
        return any(offset >= self.stable for records in self.open.values() for offset, _ in records)

    def last(self) -> bytes | None:
        """The valid value. Below the last stable offset, records without a marker are committed."""
        ended = [record for records in self.open.values() for record in records if record[0] < self.stable]
        last = max([*ended, *([self.settled] if self.settled else [])], key=lambda record: record[0], default=None)
        return None if last is None else last[1]
