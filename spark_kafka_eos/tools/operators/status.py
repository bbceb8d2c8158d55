"""What Kafka knows of a query, by its transactional.id: the last commit, what is still unread, and the owner. Pure.

Nothing here is the query's own word, so it is the same whether the query runs, hangs or is gone. All times are in
milliseconds since 1970: those of commits and records by the clock of who wrote them.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from spark_kafka_eos.kafka.partitions import OffsetAndMetadata, Offsets, TopicPartition
from spark_kafka_eos.kafka.protocol.facts import LogEnds, TransactionFacts, Unavailable
from spark_kafka_eos.kafka.reserved_topics import OFFSETS_TOPIC
from spark_kafka_eos.ledger import copies
from spark_kafka_eos.ledger.bucket_record import BucketRecord
from spark_kafka_eos.ledger.entry import LedgerEntry, MovedLedger, UnreadableEntry
from spark_kafka_eos.ledger.real_time import with_records
from spark_kafka_eos.ledger.records import LedgerRecord
from spark_kafka_eos.options.sink import bucket_id
from spark_kafka_eos.real_time.buckets import bucket_of
from spark_kafka_eos.tools.operators.known import least


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedEntry:
    """A record of the ledger topic, sent just before the batch's EndTxn, and the entry that is in it."""

    record: LedgerRecord
    entry: LedgerEntry | UnreadableEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLag:
    """One source partition: the query has committed everything before `committed`.

    `earliest` is the first offset that Kafka still has. `oldest_unread_ms` is the timestamp of the first record that
    the query can read and has not committed; None if there is none, or if it was not looked up.
    """

    committed: int
    earliest: int
    log_ends: LogEnds
    oldest_unread_ms: int | None = None

    @property
    def unread(self) -> int:
        """The offsets that a read_committed reader can read and the query has not committed."""
        return max(0, self.log_ends.last_stable_offset - max(self.committed, self.earliest))

    @property
    def held(self) -> int:
        """The offsets after these: open transactions hold them back from every read_committed reader."""
        return max(0, self.log_ends.high_watermark - max(self.committed, self.log_ends.last_stable_offset))

    @property
    def lost(self) -> int:
        """The offsets that were deleted before the query read them."""
        return max(0, self.earliest - self.committed)

    def late_ms(self, now_ms: int) -> int | None:
        """How old the oldest unread record is; 0 if all is read, None if unknown."""
        if not self.unread:
            return 0
        return None if self.oldest_unread_ms is None else max(0, now_ms - self.oldest_unread_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLag:
    """One Kafka source of a query: the id of its `cluster`, the committed `offsets`, the ids of the topics that these
    mean, as far as they are known, and the lag of each partition.

    `unknown` says for the other partitions why their lag is not known: of a query in real time it may even be unknown
    what it has committed.
    """

    cluster: str
    offsets: Offsets
    topic_ids: Mapping[str, uuid.UUID] = field(default_factory=dict)
    partitions: Mapping[TopicPartition, PartitionLag] = field(default_factory=dict)
    unknown: Mapping[TopicPartition, str] = field(default_factory=dict)

    @property
    def all_partitions(self) -> list[TopicPartition]:
        """Sorted, with those whose committed offset is not known."""
        return sorted({*self.offsets, *self.unknown})

    def among(self, partitions: Collection[TopicPartition]) -> SourceLag:
        """The same of these partitions alone."""
        return replace(
            self,
            offsets={tp: at for tp, at in self.offsets.items() if tp in partitions},
            partitions={tp: lag for tp, lag in self.partitions.items() if tp in partitions},
            unknown={tp: why for tp, why in self.unknown.items() if tp in partitions},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketStatus:
    """A bucket of a query in real time: its `number`, its transactional id, and who owns that, as in QueryStatus."""

    number: int
    transactional_id: str
    owner: TransactionFacts | Unavailable | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryStatus:
    """What Kafka knows of a transactional.id that has records in `ledger.topic`.

    `commits` are its last committed records, oldest first; compaction keeps at least one. `pending` is the record of a
    transaction whose outcome is not known yet. `sources` are those of the last commit, in Spark's order, None for a
    source that is not Kafka; empty if the ledger does not contain them. `owner` is what the transaction coordinator
    says: None if it has forgotten the id, or if it was not asked. A query in real time has `buckets`, and its sources
    are those of its group, empty if that was not asked.
    """

    transactional_id: str
    ledger_topic: str
    commits: tuple[RecordedEntry, ...] = ()
    pending: RecordedEntry | None = None
    sources: tuple[SourceLag | None, ...] = ()
    owner: TransactionFacts | Unavailable | None = None
    buckets: tuple[BucketStatus, ...] = ()

    @property
    def last(self) -> RecordedEntry | None:
        """The last commit."""
        return self.commits[-1] if self.commits else None

    @property
    def entry(self) -> LedgerEntry | None:
        """The last commit's ledger entry; None if there is none, or if it is unreadable."""
        entry = None if self.last is None else self.last.entry
        return entry if isinstance(entry, LedgerEntry) else None

    @property
    def group(self) -> str:
        """The group with the offsets of a query in real time; entries that do not name it have the default."""
        entry = self.entry
        return (entry and entry.group) or self.transactional_id

    def of_bucket(self, number: int) -> QueryStatus:
        """The same, with the source partitions of one bucket alone."""
        count = len(self.buckets)
        sources = tuple(
            source and source.among({tp for tp in source.all_partitions if bucket_of(tp, count) == number})
            for source in self.sources
        )
        return replace(self, sources=sources)

    @property
    def outputs(self) -> set[str]:
        """The topics that the commits in `commits` wrote, and those of a transaction whose outcome is not known yet;
        none if the ledger does not say. Of a query in real time those in which its buckets have transactions open.
        """
        entries = [recorded.entry for recorded in (*self.commits, self.pending) if recorded is not None]
        opened = [bucket.owner for bucket in self.buckets if isinstance(bucket.owner, TransactionFacts)]
        by_buckets = {tp.topic for owner in opened if owner.is_open for tp in owner.partitions} - {OFFSETS_TOPIC}
        return by_buckets.union(*(entry.outputs for entry in entries if isinstance(entry, LedgerEntry)))

    @property
    def commits_missing(self) -> int:
        """How many commits there were before those in `commits`, or between them: commits are numbered."""
        serials = [commit.entry.serial for commit in self.commits if isinstance(commit.entry, LedgerEntry)]
        return max(0, serials[-1] - len(serials)) if serials else 0

    @property
    def partitions(self) -> list[PartitionLag]:
        """The partitions whose lag is known, of all sources."""
        return [lag for source in self.sources if source is not None for lag in source.partitions.values()]

    @property
    def unknown(self) -> list[str]:
        """Why the lag of some partitions is not known, each reason once."""
        reasons = (why for source in self.sources if source is not None for why in source.unknown.values())
        return list(dict.fromkeys(reasons))

    @property
    def unread(self) -> int | None:
        """`PartitionLag.unread` of all partitions whose lag is known; None instead of 0 if that of others is not."""
        return self._least(lag.unread for lag in self.partitions)

    @property
    def held(self) -> int | None:
        """`PartitionLag.held`, likewise."""
        return self._least(lag.held for lag in self.partitions)

    @property
    def lost(self) -> int | None:
        """`PartitionLag.lost`, likewise."""
        return self._least(lag.lost for lag in self.partitions)

    def late_ms(self, now_ms: int) -> int | None:
        """The age of the oldest unread record of all partitions, likewise."""
        return self._least((lag.late_ms(now_ms) for lag in self.partitions), max)

    def _least(self, values: Iterable[int | None], combine: Callable[[Iterable[int]], int] = sum) -> int | None:
        return least([*values, *(None for _ in self.unknown)], combine)


def in_real_time(status: QueryStatus, records: Mapping[int, BucketRecord] | str) -> QueryStatus:
    """A query in real time with the offsets that its buckets have committed, by their `records`, in its sources; or why
    they are not known.
    """
    entry = status.entry and with_records(status.entry, {} if isinstance(records, str) else records)
    sources = tuple(
        None
        if source is None
        else SourceLag(
            cluster=source.cluster,
            offsets={} if isinstance(records, str) else source.offsets,
            topic_ids={} if source.origin is None else source.origin.topic_ids,
            unknown=dict.fromkeys(source.offsets, records) if isinstance(records, str) else {},
        )
        for source in (entry and entry.sources) or ()
    )
    return replace(status, sources=sources)


def buckets_of(entry: LedgerEntry | None, transactional_id: str) -> tuple[BucketStatus, ...]:
    """The buckets of a query by its last entry, whose owners are not known yet; none if it is not in real time."""
    count = (entry and entry.buckets) or 0
    return tuple(
        BucketStatus(number=number, transactional_id=bucket_id(transactional_id, number)) for number in range(count)
    )


def entry_of(value: bytes) -> LedgerEntry | MovedLedger | UnreadableEntry:
    """A ledger record's value."""
    entry = copies.newest(value, {}, TopicPartition("", 0))
    assert entry is not None
    return entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Copies:
    """The ledger entry's two copies, the record and the pointer, each None if it is not there; see `entry_format`."""

    record: LedgerEntry | MovedLedger | UnreadableEntry | None
    pointer: LedgerEntry | MovedLedger | UnreadableEntry | None
    valid: LedgerEntry | MovedLedger | UnreadableEntry | None

    @property
    def agreement(self) -> str:
        """Whether both say the same, and what it means if they do not. Sentences."""
        match self.valid, self.record, self.pointer:
            case UnreadableEntry() as unreadable, _, _:
                return f"The query will be refused: {unreadable.description}."
            case MovedLedger() as moved, _, _:
                return f"The ledger is in topic {moved.topic} since commit {moved.serial}; look there."
            case _, None, None:
                return "There is no entry: nothing was committed under this transactional id."
            case _, _, None:
                return (
                    "The pointer has expired, or its group was deleted. Nothing is lost: the next start reads the "
                    "whole ledger topic."
                )
            case _, None, _:
                return (
                    "The record is gone: the ledger topic was deleted, or its records were. The pointer still counts, "
                    "but it has no source offsets, and it expires; the next commit writes both."
                )
            case LedgerEntry(), LedgerEntry() as record, LedgerEntry() as pointer if record.serial != pointer.serial:
                older = "pointer" if record.serial > pointer.serial else "record"
                return f"The {older} is older, so it was lost once; the other one counts."
        return "Record and pointer say the same."


def copies_of(
    record: bytes | None, committed: Mapping[TopicPartition, OffsetAndMetadata], at: TopicPartition
) -> Copies:
    """Both copies, and the one that counts, from the record and from everything in the group; see `copies.newest`."""
    pointer = committed.get(at)
    return Copies(
        record=None if record is None else entry_of(record),
        pointer=None if pointer is None else copies.newest(None, {at: pointer}, at),
        valid=copies.newest(record, committed, at),
    )
