"""The driver of a query in real time: it gives each bucket an epoch and a start, and only then its tasks begin.

    begin         look whose the query's transactional id is, and take it or still have it     transaction.shared
    take          InitProducerId of each bucket: aborts, fences, waits for what is being committed
    read          where the buckets ended, from the ledger, which nobody can change any more
    commit        a transaction of the query's own id, with these offsets and an entry in the ledger
    start         tasks, each with the epochs and offsets of its buckets

The order is what makes it safe, together with KIP-98 (spec/RealTime.tla):
- Tasks take nothing. So one that comes back late, or a second attempt, can't take a bucket from the live one.
- The transaction after the buckets were taken is the proof that the query was still this driver's. Whoever takes it
  later takes the buckets after that, so what these tasks have is over then. A driver that was overtaken before fails
  here, and starts no task.
- A bucket that must be started again, because its task failed, goes the same way alone; the others run on.
- When the number of buckets changes, all ids that had any are taken.
- Between two batches of a run nothing is taken or read, if all tasks of the first one have ended properly: the next
  ones go on in the same epochs, where these have ended, as if the same tasks ran on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from spark_kafka_eos.appending.report import Appended
from spark_kafka_eos.errors import (
    AttemptsExhausted,
    BrokerError,
    ConfigurationError,
    DataLoss,
    LedgerRefused,
    ProducerFenced,
    TransactionAborted,
)
from spark_kafka_eos.failpoints import failpoint
from spark_kafka_eos.kafka.logs import logger
from spark_kafka_eos.kafka.partitions import NO_END, OffsetAndMetadata, OffsetRange, Offsets, TopicPartition
from spark_kafka_eos.kafka.producer import ProducerIdentity
from spark_kafka_eos.kafka.protocol import offsets
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.codes import ErrorCode
from spark_kafka_eos.kafka.protocol.epochs import log_ends
from spark_kafka_eos.kafka.protocol.groups import GroupCoordinator
from spark_kafka_eos.kafka.protocol.topics import deleted
from spark_kafka_eos.ledger.entry import BatchCounts, LedgerEntry, UnreadableEntry
from spark_kafka_eos.ledger.real_time import is_new, left_out
from spark_kafka_eos.ledger.source_clusters import SourceClusters
from spark_kafka_eos.ledger.source_mark import marked_by, source_mark
from spark_kafka_eos.micro_batch import MicroBatch, SourceRange
from spark_kafka_eos.options import SinkOptions
from spark_kafka_eos.real_time.buckets import Bucket, bucket_of, by_bucket
from spark_kafka_eos.source_offset import Origin
from spark_kafka_eos.transaction.buckets import Buckets
from spark_kafka_eos.transaction.shared import SharedTransaction

_log = logger(__name__)

_PENDING_MS = 5_000  # for markers that are on their way
# Spark plans a batch that has not ended again as it was, whatever the options select now.
_NEW_CHECKPOINT = (
    "leave the topic out of the source's options and start the query with a new checkpointLocation: in real time, all "
    "else goes on where it has ended."
)
_NOTHING = BatchCounts(records=0, bytes=0, milliseconds=0)


class RealTimeDriver:
    """The owner of one query's buckets. Not thread-safe. `fail_on_data_loss` is the source's."""

    def __init__(
        self, options: SinkOptions, cluster: Cluster, transaction: SharedTransaction, *, fail_on_data_loss: bool
    ) -> None:
        self._options, self._cluster, self._transaction = options, cluster, transaction
        self._fail_on_data_loss = fail_on_data_loss
        self._buckets = Buckets(cluster, options)
        self._chosen = 0  # how many buckets there are
        self._count = 0  # of those that were taken; more, if there were more before
        self._parts: Mapping[int, Sequence[TopicPartition]] = {}  # of each bucket
        self._deleted: frozenset[str] = frozenset()  # topics that the batch is read without
        self._ended: tuple[str | None, Mapping[int, Bucket]] = None, {}  # by the last tasks of a run

    def check(self, batch: MicroBatch) -> None:
        """Raise ConfigurationError if the query can't run in real time, and DataLoss if topics of the batch were
        deleted since it was planned. What was deleted for good, and may be lost, `start` leaves out of it.
        """
        if self._transaction.steps.needs_fence():
            unseen = self._transaction.steps.unseen_verification()
            if unseen is not None and unseen.grant:  # else the brokers have no such setting
                raise ConfigurationError(
                    "real_time",
                    "in the protocol before KIP-890 it needs brokers that verify that a transaction is open when it is "
                    f"appended to, and whether they do could not be read: {unseen.reason}",
                    action=f"Grant {unseen.grant} to this principal.",
                )
            raise ConfigurationError(
                "real_time",
                "the brokers do not verify that a transaction is open when it is appended to, so that late requests of "
                "a bucket that was taken would be accepted",
                action="Use Kafka 3.6 or later, with transaction.partition.verification.enable=true.",
            )
        own = self._cluster.cluster_id()
        if any(cluster != own for cluster in SourceClusters(self._options, self._cluster).of(batch)):
            raise ConfigurationError(
                "real_time",
                "the source is on another cluster than the sink: its offsets can't be part of the transactions",
                action="Use micro-batches between two clusters.",
            )
        self._deleted = self._deleted_since(batch)

    def _deleted_since(self, batch: MicroBatch) -> frozenset[str]:
        """The topics of this batch that were deleted since it was planned, and may be."""
        origins = [source.origin for source in batch.sources if source is not None and source.origin is not None]
        ids = {name: topic_id for origin in origins for name, topic_id in origin.topic_ids.items()}
        names = deleted(self._cluster, {tp.topic: ids[tp.topic] for tp in batch.end if tp.topic in ids})
        if again := self._cluster.existing(names, patience_ms=0) if names else []:
            raise DataLoss(
                f"topic {again[0]!r} was deleted and created again: its id was {ids[again[0]]} and is "
                f"{self._cluster.topic(again[0]).id}",
                action=f"To go on without it, {_NEW_CHECKPOINT} To read the new one, from its beginning, use another "
                "query with another kafka.transactional.id.",
            )
        if names and self._fail_on_data_loss:
            raise DataLoss(
                f"topic {names[0]!r} was deleted, and batch {batch.batch_id} was planned before that",
                action="To go on without it, restart once with failOnDataLoss=false, then remove that option. Or "
                f"{_NEW_CHECKPOINT}",
            )
        for name in names:
            _log.warning("topic %s was deleted, and the query goes on without it (failOnDataLoss is false)", name)
        return frozenset(names)

    def start(
        self,
        batch: MicroBatch,
        count: int | None,
        numbers: Collection[int] | None = None,
        *,
        to_end: bool = False,
    ) -> list[Bucket]:
        """The buckets of `batch` that have partitions, or those with these `numbers`, and where they are read on: in
        new epochs, or in those of the batch before in the same run, if that has `ended`. `count` is how many buckets
        there are, None for as many as there were, and in a first run one. `to_end`: read them up to where the batch
        ends.

        Raises LedgerRefused, ProducerFenced, DataLoss, AttemptsExhausted, and what the requests raise.
        """
        if numbers is not None and not self._transaction.steps.holds:
            # Taken anew, the query's id proves nothing of the buckets that run on.
            raise ProducerFenced(
                "this driver no longer knows whether the query is its own, so it starts no bucket again"
            )
        batch = _without(batch, self._deleted)
        last_commit = None if numbers is None else _serial(self._transaction.steps.ledger.entry)
        for _ in range(self._options.max_attempts):
            try:
                return self._start(batch, count, numbers, last_commit, to_end=to_end)
            except TransactionAborted as error:
                _log.warning("batch %d of query %s: %s", batch.batch_id, batch.query_id, error.what)
                self._transaction.abort()
                last = error
        raise AttemptsExhausted(
            f"batch {batch.batch_id} could not begin in real time, the last time because {last.what}",
            action="Fix the cause and restart the query.",
            committed="nothing",
        ) from last

    def _start(
        self,
        batch: MicroBatch,
        count: int | None,
        numbers: Collection[int] | None,
        last_commit: int | None,
        *,
        to_end: bool,
    ) -> list[Bucket]:
        """`last_commit` is the serial of the entry that has started the buckets that run on, None if there are none."""
        transaction = self._transaction
        known = transaction.steps.ledger.entry if transaction.steps.holds else None
        transaction.begin(replace(batch, buckets=count or 0))
        entry = transaction.steps.ledger.entry
        if last_commit not in (None, _serial(entry)):
            # It took the query's id in an earlier attempt that failed, and all buckets. So this one took only the id.
            raise transaction.owner.taken_over(" while this one started a bucket again").replaced(
                action="This driver has ended, and the tasks of the other one go on unharmed. But this one has taken "
                "the id from it before it could know: it ends with its next micro-batch. Then start the query again, "
                "once."
            )
        last = entry.buckets if isinstance(entry, LedgerEntry) else None
        chosen = count or last or 1
        self._parts = parts = by_bucket(batch.end, chosen)
        taken = range(max(chosen, last or 0)) if numbers is None else numbers
        self._chosen, self._count = chosen, max(chosen, last or 0)
        (run_id, ended), self._ended = self._ended, (None, {})
        is_same = numbers is None and run_id == batch.run_id and entry is known and chosen == last
        if is_same and _go_on(ended, parts, batch):
            buckets = list(ended.values())
        else:
            transaction.owner.ask_if_held()  # a late driver must not interrupt the tasks of the live one
            self._buckets.take(taken)
            failpoint("buckets taken")
            buckets = self._read(batch, entry, {number: parts[number] for number in taken if number in parts})
        # The group gets these offsets from the tasks. In TV1, a late copy of this transaction's request could reach it
        # after theirs, as long as the marker is on its way there.
        started = self._commit(batch, buckets, None if numbers is None else tuple(numbers))
        return [replace(bucket, ranges=_up_to(batch.end if to_end else {}, bucket.ranges)) for bucket in started]

    def _commit(
        self, batch: MicroBatch, buckets: Sequence[Bucket], numbers: tuple[int, ...] | None, *, copied: bool = False
    ) -> list[Bucket]:
        """Commit to the ledger where these buckets are read on, which proves that the query is this driver's, and
        return them as they are started by that. They are those with these `numbers`, None for all. `copied`: to the
        group, too.
        """
        # A range without a start: these are not the offsets of records that were read, but where reading goes on.
        ranges = [at for bucket in buckets for at in bucket.ranges]
        positions = {at.partition: at.start for at in ranges}
        source = SourceRange(start=None, end=positions, origin=self._origin(batch, ranges))
        going_on = replace(batch, buckets=self._chosen, started=numbers, sources=(source,))

        def append(identity: ProducerIdentity) -> Appended:
            if copied:
                self._transaction.steps.ledger.send_source_offsets(identity, going_on)
            return Appended(partitions=0, records=0, bytes=0)

        self._transaction.append(append)
        self._transaction.commit(going_on, written=_NOTHING)
        entry = self._transaction.steps.ledger.entry
        assert isinstance(entry, LedgerEntry)
        return [replace(bucket, serial=entry.serial) for bucket in buckets]

    def _origin(self, batch: MicroBatch, ranges: Iterable[OffsetRange]) -> Origin:
        """Which records the starts of these ranges mean: the leader epochs are those of the records before them, not
        those of when the batch was planned.
        """
        origin = batch.sources[0].origin if batch.sources[0] is not None else None
        if origin is None:
            ids = {at.partition.topic: at.topic_id for at in ranges if at.topic_id is not None}
            origin = Origin(cluster=self._cluster.cluster_id(), topic_ids=ids)
        return replace(origin, leader_epochs={at.partition: at.last_epoch for at in ranges if at.last_epoch >= 0})

    def _read(
        self,
        batch: MicroBatch,
        entry: LedgerEntry | UnreadableEntry | None,
        parts: Mapping[int, Sequence[TopicPartition]],
    ) -> list[Bucket]:
        """The buckets that were taken and have these partitions, with where they are read on."""
        partitions = [tp for part in parts.values() for tp in part]
        positions = self._positions(batch, partitions, entry)
        self._cluster.look_up({tp.topic for tp in partitions})
        return [
            Bucket(
                number=number,
                identity=self._buckets.identities[number],
                ranges=tuple(self._range(tp, positions[tp]) for tp in part),
            )
            for number, part in parts.items()
        ]

    def _range(self, tp: TopicPartition, at: OffsetAndMetadata) -> OffsetRange:
        return OffsetRange(
            partition=tp,
            start=at.offset,
            end=NO_END,
            topic_id=self._cluster.topic(tp.topic).id,
            leader_epoch=self._cluster.leader_epoch(tp),
            last_epoch=at.leader_epoch,
        )

    def _positions(
        self,
        batch: MicroBatch,
        partitions: Collection[TopicPartition],
        entry: LedgerEntry | UnreadableEntry | None,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Where these partitions are read on: where the ledger says. Of what it does not say, where this query's
        transactions have ended by the group, if the ledger has an entry of any; else where the batch starts, in a first
        run, and at its beginning what is new.
        """
        ledger = self._transaction.steps.ledger
        last = entry.buckets if isinstance(entry, LedgerEntry) else None

        def numbers(partitions: Iterable[TopicPartition]) -> set[int]:
            """The buckets that may have a record of these: one without partitions has none."""
            return {bucket_of(tp, count) for tp in partitions for count in (self._chosen, last) if count}

        ledger.keep_ends(numbers(left_out(entry, batch)), batch)
        positions = dict(ledger.read_buckets(numbers(partitions), partitions))
        rest = [tp for tp in partitions if tp not in positions]
        committed = self._committed(rest) if rest else {}
        if isinstance(entry, LedgerEntry):  # else the group was somebody's before
            mine = source_mark(self._options.transactional_id)
            positions |= {tp: at for tp, at in committed.items() if at is not None and at.metadata == mine}
        earliest = offsets.earliest(self._cluster, partitions)
        known, is_first = dict(batch.start or {}), _is_first(entry, batch, self._options.take_over_query)
        for tp in partitions:
            if tp in positions:
                continue
            is_added = isinstance(entry, LedgerEntry) and entry.query_id != batch.query_id and is_new(entry, batch, tp)
            if tp in known and not is_first and not is_added:
                positions[tp] = self._set_by_operator(tp, committed[tp])
            else:
                positions[tp] = OffsetAndMetadata(offset=known[tp] if tp in known else earliest[tp])
        return self._without_lost(positions, earliest)

    def _set_by_operator(self, tp: TopicPartition, at: OffsetAndMetadata | None) -> OffsetAndMetadata:
        """Where the group is in a partition that this query has read, but nothing of the query says how far: it was set
        there as this error advises. Raises LedgerRefused if it was not.
        """
        if at is None or marked_by(at) is not None:
            raise LedgerRefused(
                f"neither the ledger nor group {self._options.group_id!r} has an offset of {tp}, which this query has "
                "read before. Nothing was written",
                action="Find out how far the query came, for example from the output, and set that offset with "
                "kafka-consumer-groups --reset-offsets.",
            )
        _log.warning("%s is read on at offset %d, to which somebody has set the group", tp, at.offset)
        return at

    def _committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The group's offsets. What the query itself has left pending there is aborted first: if it had been committed,
        the ledger would have it.
        """
        if self._is_pending(partitions):
            self._transaction.abort_source_offsets()
        return self._transaction.steps.ledger.read_source_offsets(partitions)

    def _is_pending(self, partitions: Collection[TopicPartition]) -> bool:
        """Whether the group has offsets that lack their marker for long: those of open transactions were ended."""
        try:
            GroupCoordinator(self._cluster, self._options.group_id).fetch_offsets(partitions, patience_ms=_PENDING_MS)
        except BrokerError as error:
            if error.code != ErrorCode.UNSTABLE_OFFSET_COMMIT:
                raise
            return True
        return False

    def _without_lost(
        self, positions: Mapping[TopicPartition, OffsetAndMetadata], earliest: Offsets
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """These positions; where records were deleted, or replaced in a log that was truncated, those of what is there
        instead. Raises DataLoss unless that is wanted.
        """
        ends = log_ends(self._cluster, {tp: at.leader_epoch for tp, at in positions.items() if at.leader_epoch >= 0})
        there = {tp: max(min(at.offset, ends.get(tp, at.offset)), earliest[tp]) for tp, at in positions.items()}
        lost = {
            tp: f"{tp}: the query is at offset {at.offset}, but "
            + (
                f"the records before {there[tp]} were deleted"
                if there[tp] > at.offset
                else f"the log was truncated to {there[tp]} (unclean leader election?), and has other records there now"
            )
            for tp, at in sorted(positions.items())
            if there[tp] != at.offset
        }
        if lost and self._fail_on_data_loss:
            raise DataLoss(
                next(iter(lost.values())),
                action="To go on with what is there, restart once with failOnDataLoss=false, then remove it.",
            )
        for what in lost.values():
            _log.warning("data was lost, and the query goes on with what is there (failOnDataLoss is false): %s", what)
        return {**positions, **{tp: OffsetAndMetadata(offset=there[tp]) for tp in lost}}

    def ended(self, batch: MicroBatch, buckets: Iterable[Bucket]) -> None:
        """Note that the tasks of `batch` have ended these buckets, which none of them goes on with."""
        self._ended = batch.run_id, {bucket.number: bucket for bucket in buckets}
        self._buckets.identities |= {bucket.number: bucket.identity for bucket in self._ended[1].values()}

    def end(self, batch: MicroBatch) -> None:
        """Take the buckets of `batch` once more, so that nothing stays open of tasks that were cut off, and commit
        where they have ended. Only while the query is this driver's: raises ProducerFenced if it may be another one's,
        and what `start` raises.
        """
        transaction = self._transaction
        if transaction.steps.hold.identity is None:  # then there is nothing to ask after
            raise ProducerFenced("this driver no longer knows whether the query is its own, so it takes no bucket")
        transaction.owner.ask_if_held()
        self._ended = None, {}
        self._buckets.take(range(self._count))
        if not (transaction.steps.holds and self._parts):
            return
        try:
            transaction.begin(replace(batch, buckets=self._chosen))
            buckets = self._read(batch, transaction.steps.ledger.entry, self._parts)
            self._commit(batch, buckets, None, copied=True)
        except TransactionAborted:
            transaction.abort()
            raise


def _go_on(buckets: Mapping[int, Bucket], parts: Mapping[int, Sequence[TopicPartition]], batch: MicroBatch) -> bool:
    """Whether these buckets have just the partitions `parts`, of the topics that `batch` reads, not of earlier ones
    with their names.
    """
    origin = batch.sources[0].origin if batch.sources[0] is not None else None
    ids = {} if origin is None else origin.topic_ids
    had = {number: {at.partition for at in bucket.ranges} for number, bucket in buckets.items()}
    topics = {at.partition.topic: at.topic_id for bucket in buckets.values() for at in bucket.ranges}
    return had == {number: set(part) for number, part in parts.items()} and all(
        ids.get(name, topic_id) == topic_id for name, topic_id in topics.items()
    )


def _without(batch: MicroBatch, topics: Collection[str]) -> MicroBatch:
    """The batch without these topics."""
    if not topics:
        return batch

    def kept(offsets: Offsets) -> Offsets:
        return {tp: at for tp, at in offsets.items() if tp.topic not in topics}

    sources = (
        source and replace(source, start=source.start and kept(source.start), end=kept(source.end))
        for source in batch.sources
    )
    return replace(batch, sources=tuple(sources))


def _serial(entry: LedgerEntry | UnreadableEntry | None) -> int:
    return 0 if entry is None else entry.serial


def _up_to(ends: Offsets, ranges: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
    return tuple(replace(at, end=max(at.start, ends.get(at.partition, NO_END))) for at in ranges)


def _is_first(entry: LedgerEntry | UnreadableEntry | None, batch: MicroBatch, take_over: str | None) -> bool:
    """Whether nothing was committed of what the batch reads."""
    if not isinstance(entry, LedgerEntry):
        return True
    return entry.query_id != batch.query_id and entry.query_id == take_over
