"""The ledger's topic on its brokers: read for all transactional.ids, or for one by its owner, who appends to it.

All records are in partition 0, so that added partitions do not matter. `ledger.records` says how they are read.
- The owner of the transactional.id knows that its own transactions have ended. So what is not settled is a straggler's
  record, which never will be, or one whose marker was left out (`transaction.hanging`).
- Other readers wait for the marker, as OffsetFetch does with require_stable.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from spark_kafka_eos.errors import BrokerUnreachable, DataLoss, LedgerRefused, UnknownTopic
from spark_kafka_eos.kafka.fetching.fetch import Fetcher
from spark_kafka_eos.kafka.fetching.fetch_steps import Fetched
from spark_kafka_eos.kafka.partitions import OffsetRange, TopicPartition
from spark_kafka_eos.kafka.producer import Ack, ProducerIdentity
from spark_kafka_eos.kafka.producing.produce import Appender
from spark_kafka_eos.kafka.protocol import offsets
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.transactions import add_partitions
from spark_kafka_eos.kafka.wire import single
from spark_kafka_eos.kafka.wire.record_batch import stamp
from spark_kafka_eos.ledger.copies import newest
from spark_kafka_eos.ledger.entry import LedgerEntry, MovedLedger, UnreadableEntry, unreadable
from spark_kafka_eos.ledger.records import LedgerRecord, LedgerRecords, RecordLog
from spark_kafka_eos.ledger.signing import UNSIGNED, Signer

_FETCH_WAIT_MS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRecord:
    """What was `found` of one transactional.id, None if nothing at all, in the topic up to offset `position`."""

    position: int
    records: LedgerRecords | None

    @property
    def record(self) -> LedgerRecord | None:
        """The last committed record."""
        return None if self.records is None else self.records.last

    @property
    def value(self) -> bytes | None:
        """That of the last committed record; None if there is none."""
        return None if self.record is None else self.record.value

    @property
    def pending(self) -> bool:
        """Whether the outcome of a later record is not known yet."""
        return self.records is not None and bool(self.records.pending)


class LedgerTopic:
    """The records of one transactional.id. Raises AuthorizationFailed, BrokerError, BrokerUnreachable, and
    LedgerRefused if the topic is not a ledger.
    """

    def __init__(self, cluster: Cluster, topic: str, transactional_id: str) -> None:
        self.at = TopicPartition(topic, 0)
        self._cluster, self._name = cluster, transactional_id
        self._there = False

    def ensure(self) -> None:
        """Create the topic if it does not exist."""
        if not self.exists():
            from spark_kafka_eos.ledger.create import create_ledger  # once in its life

            create_ledger(self._cluster, self.at.topic)
            self._cluster.refresh([self.at.topic])

    def ensure_again(self) -> None:
        """The same for a topic that was deleted since."""
        self._there = False
        self.ensure()

    def exists(self) -> bool:
        """Whether the topic exists; asks until it does."""
        self._there = self._there or self._cluster.exists(self.at.topic, patience_ms=0)
        return self._there

    def read(self, since: int | None) -> LastRecord:
        """The last committed record, for the owner of the transactional.id. The record is at offset `since` or after
        it; None reads everything.
        """
        scan = self._scan(since)
        if since is not None and scan.records is None:  # the topic was created again or truncated
            scan = self._scan(None)
        return scan

    def read_settled(self) -> bytes | None:
        """Its value, for other readers: waits for the outcome of the last record. None without a record or a topic."""
        budget = self._cluster.budget()
        try:
            while (scan := self._scan(None)).pending:
                delay = budget.delay()
                if delay is None:
                    raise still_open(self._name)
                self._cluster.sleep(delay)
        except UnknownTopic:
            return None
        return scan.value

    def follows(self, position: int, acknowledged: Ack) -> bool:
        """Whether no record of this id was committed between `position` and the one just appended."""
        if acknowledged.base_offset == position:
            return True
        end = acknowledged.base_offset if acknowledged.base_offset >= 0 else None
        return self._scan(position, end).record is None

    def append_entry(self, identity: ProducerIdentity, value: bytes, *, timestamp_ms: int) -> Ack:
        """Append the record in the open transaction. Raises what `Appender` raises."""
        add_partitions(self._cluster, identity, [self.at])
        batch = single.encode_record(self._name.encode(), value, timestamp_ms)
        stamp(batch, producer_id=identity.producer_id, epoch=identity.epoch, base_sequence=0, transactional=True)
        version = identity.transaction_version
        with Appender(self._cluster, identity, transaction_version=version, linger_bytes=0, reserved=None) as appender:
            appender.append(self.at, batch, records=1, base_sequence=0)
            (ack,) = appender.flush()
        return ack

    # -- reading

    def _scan(self, since: int | None, end: int | None = None) -> LastRecord:
        log_ends = offsets.log_ends(self._cluster, [self.at])[self.at]
        end = log_ends.high_watermark if end is None else end
        start = since if since is not None and since <= end else _earliest(self._cluster, self.at)
        log = RecordLog(only=self._name)
        try:
            for part in _fetch(self._cluster, OffsetRange(partition=self.at, start=start, end=end)):
                log.take(part, end)
        except DataLoss:
            if since is None:
                raise
            return self._scan(None, end)
        log.settle(min(log_ends.last_stable_offset, end))
        records = log.by_id.get(self._name)
        if records is not None and records.outside is not None:
            raise LedgerRefused(
                f"topic {self.at.topic!r} contains a record of {self._name!r} at offset {records.outside.offset} that "
                "was not written in a transaction: another program writes to it",
                action="Set ledgerTopic to a topic that only kafka-eos sinks write to.",
            )
        return LastRecord(position=end, records=records)


def follow(
    cluster: Cluster,
    transactional_id: str,
    entry: LedgerEntry | MovedLedger | UnreadableEntry | None,
    at: TopicPartition,
    read: Callable[[LedgerTopic], bytes | None],
    signer: Signer = UNSIGNED,
) -> tuple[LedgerEntry | UnreadableEntry | None, list[TopicPartition]]:
    """Follow a moved ledger: the entry to which `entry`, read at `at`, leads, and the places that were read, `at`
    first.

    `read` reads the value of a topic's last record; None without a record or a topic.
    """
    passed = [at]
    while isinstance(entry, MovedLedger):
        place = TopicPartition(entry.topic, 0)
        record = None if place in passed else read(LedgerTopic(cluster, entry.topic, transactional_id))
        onward = newest(record, {}, place, signer)
        if onward is None or (not isinstance(onward, UnreadableEntry) and onward.serial < entry.serial):
            lost = (
                f"the ledger of {transactional_id!r} is in topic {entry.topic!r} since commit {entry.serial}, but its"
            )
            gone = f"{lost} entry is not there: the topic was deleted, or its records were"
            return unreadable(gone, entry.serial), passed
        passed.append(place)
        least = entry.serial
        entry = replace(onward, serial=max(onward.serial, least)) if isinstance(onward, UnreadableEntry) else onward
    return entry, passed


class LedgerReader:
    """The records of `topic` by transactional.id, as of the last `read`: of each id, the last `keep` committed ones.

    `only` leaves out all other ids but those of its buckets. It is for readers that own no id, such as `kafka-eos`.
    """

    def __init__(self, cluster: Cluster, topic: str, *, keep: int = 1, only: str | None = None) -> None:
        self.at = TopicPartition(topic, 0)
        self._cluster, self._keep, self._only = cluster, keep, only
        self._start_over()

    @property
    def by_id(self) -> Mapping[str, LedgerRecords]:
        """The records of each transactional.id."""
        return self._log.by_id

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
        self._log = RecordLog(keep=self._keep, only=self._only)
        self._position: int | None = None
        self._topic_id: uuid.UUID | None = None

    def _read(self) -> None:
        log_ends = offsets.log_ends(self._cluster, [self.at])[self.at]
        end = log_ends.high_watermark
        topic_id = self._cluster.topic(self.at.topic).id
        if self._position is None or self._position > end or self._topic_id != topic_id:
            self._start_over()
            self._position, self._topic_id = _earliest(self._cluster, self.at), topic_id
        new = OffsetRange(partition=self.at, start=self._position, end=end, topic_id=topic_id)
        for part in _fetch(self._cluster, new):
            self._log.take(part, end)
            self._position = min(part.next_offset, end)
        self._log.settle(min(log_ends.last_stable_offset, end))


def still_open(name: str) -> BrokerUnreachable:
    """What to raise if the ledger of this transactional.id cannot be read for an open transaction."""
    return BrokerUnreachable(
        f"a transaction of {name!r} is still open, so its ledger entry is not final",
        action="Retry when its query has finished the batch, or when the transaction has timed out. If it stays open, "
        "a marker was left out: kafka-eos transactions hanging shows it, and what ends it.",
    )


def read_end(cluster: Cluster, at: TopicPartition, count: int, *, only: str | None = None) -> tuple[RecordLog, bool]:
    """The records in the last `count` stable offsets and in all after them, and whether these are all; `only` as in
    RecordLog.
    """
    log_ends = offsets.log_ends(cluster, [at])[at]
    end, earliest, log = log_ends.high_watermark, _earliest(cluster, at), RecordLog(only=only)
    start = max(earliest, min(log_ends.last_stable_offset, end) - count)
    for part in _fetch(cluster, OffsetRange(partition=at, start=start, end=end)):
        log.take(part, end)
    log.settle(min(log_ends.last_stable_offset, end))
    return log, start == earliest


def _earliest(cluster: Cluster, at: TopicPartition) -> int:
    return offsets.earliest(cluster, [at])[at]


def _fetch(cluster: Cluster, offset_range: OffsetRange) -> Iterator[Fetched]:
    fetcher = Fetcher(cluster, isolation_level="read_uncommitted", fetch_max_wait_ms=_FETCH_WAIT_MS)
    yield from fetcher.fetch([offset_range])
