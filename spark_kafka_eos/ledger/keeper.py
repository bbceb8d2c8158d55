"""The ledger of one transactional.id: read after InitProducerId, written in each batch's transaction.

Before EndTxn, the brokers that accepted this batch's entry must confirm what the verdict was based on: a paused leader
or coordinator (`answers`) answers with what is old until it learns of its successor, but accepts no append.
"""

from __future__ import annotations

import functools
import time
import uuid
from collections.abc import Callable, Collection, Mapping

from spark_kafka_eos.errors import TransactionAborted, UnknownTopic
from spark_kafka_eos.kafka.logs import logger
from spark_kafka_eos.kafka.partitions import OffsetAndMetadata, TopicPartition
from spark_kafka_eos.kafka.producer import NOBODY, ProducerEpoch, ProducerIdentity
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.groups import GroupCoordinator
from spark_kafka_eos.kafka.protocol.topics import deleted
from spark_kafka_eos.kafka.protocol.transactions import add_offsets
from spark_kafka_eos.kafka.words import first_three
from spark_kafka_eos.ledger import bucket_record, copies, entry_format, real_time, verdicts
from spark_kafka_eos.ledger import entry as ledger
from spark_kafka_eos.ledger.answers import BrokerAnswers
from spark_kafka_eos.ledger.bucket_reader import BucketReader, bucket_records_lost, impossible_record
from spark_kafka_eos.ledger.bucket_record import BucketRecord
from spark_kafka_eos.ledger.decide import Decide, signer_of
from spark_kafka_eos.ledger.ends import CommittedEnd, is_enough
from spark_kafka_eos.ledger.entry import BatchCounts, CommittedEntry, LedgerEntry
from spark_kafka_eos.ledger.next_entry import next_entry
from spark_kafka_eos.ledger.refusal import Refuse
from spark_kafka_eos.ledger.source_clusters import SourceClusters
from spark_kafka_eos.ledger.source_mark import marked_by, other_ids, source_mark
from spark_kafka_eos.ledger.topic import LastRecord, LedgerTopic, follow
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.options import SinkOptions
from spark_kafka_eos.options.sink import MISSING_SOURCE

_log = logger(__name__)

_Offsets = Mapping[TopicPartition, OffsetAndMetadata]
# For pending offsets after InitProducerId, which waits for all markers; some brokers apply them shortly after.
_PENDING_MS = 10_000


class LedgerKeeper:
    """Not thread-safe. Call `read` first; `verdict` and `send` use the entry that it found, or that of the last
    `remember_committed`.

    Its fields are answers of brokers, not states of the transaction: whether they count is decided by what calls it.
    """

    def __init__(self, options: SinkOptions, cluster: Cluster) -> None:
        self._options, self._cluster = options, cluster
        self.topic = LedgerTopic(cluster, options.ledger_topic, options.transactional_id)
        self._signer = signer_of(options)
        self._ledger_group = GroupCoordinator(cluster, options.ledger_group)
        self._source_group = GroupCoordinator(cluster, options.group_id)
        self._sources = SourceClusters(options, cluster)
        self._buckets = BucketReader(cluster, options.transactional_id, self._signer)
        self._entry: LedgerEntry | ledger.UnreadableEntry | None = None
        self._under = NOBODY  # the producer of the last entry's transaction
        self._topic_id: uuid.UUID | None = None  # of the ledger, when the entry was read
        self._position = 0  # where the next record of the ledger will be, or after it
        self.undecided: frozenset[int] = frozenset()  # producer ids of records that lack their marker
        self.appended: dict[str, uuid.UUID] = {}  # topics with records of the last `send`, with their ids before
        # Places that do not say where the ledger is; true: of records, too.
        self._stale_places: dict[TopicPartition, bool] = {}
        self._answers = BrokerAnswers()  # on which the verdict is based
        self._has_warned = False
        self._waits = True  # for pending offsets; not where they may be those of another one's open transaction

    # -- reading

    @property
    def entry(self) -> LedgerEntry | ledger.UnreadableEntry | None:
        """The last entry as it was read or committed here."""
        return self._entry

    @property
    def committed_under(self) -> ProducerEpoch:
        """The producer of the transaction that committed the last entry."""
        return self._under

    def read(self) -> None:
        """Read the last entry. Call it after InitProducerId: before, another entry could still be committed."""
        self._answers.clear()
        self._waits = True
        self.topic.ensure()
        self._topic_id = self._id_of_topic()
        self._read_places()

    def _read_places(self) -> tuple[LastRecord, LedgerEntry | ledger.UnreadableEntry | None, OffsetAndMetadata | None]:
        """The last committed record, the entry in record and pointer together, and the pointer."""
        committed = self._ledger_group.fetch_all(require_stable=self._waits, patience_ms=_PENDING_MS)
        pointer = committed.get(self.topic.at)
        lost = pointer is None or copies.is_lost(pointer, self._signer)  # if it was reset, its offset means nothing
        record = self.topic.read(None if pointer is None or lost else pointer.offset)
        if pointer is None and record.value is not None and self._waits:
            # Of all offsets, brokers leave out one whose first commit is pending. Of one, they call it unstable, and
            # this waits for it.
            self._ledger_group.fetch_offsets([self.topic.at], patience_ms=_PENDING_MS)
            committed = self._ledger_group.fetch_all(patience_ms=_PENDING_MS)
        ask_again = functools.partial(self._ledger_group.fetch_all, require_stable=False)
        self._answers.add(f"group {self._ledger_group.group_id!r}", ask_again, committed)
        self._position = record.position
        counting = copies.last_committed(record.records, committed, self.topic.at, self._signer)
        value = None if counting is None else counting.value
        self._entry = entry = self._followed(value, committed, self._as_owner)
        self.undecided = frozenset() if record.records is None else record.records.undecided
        self._under = NOBODY
        if counting is not None and isinstance(entry, LedgerEntry) and copies.has_entry(value, entry, self._signer):
            self._under = counting.producer
        return record, self._entry, committed.get(self.topic.at)

    def read_settled(self) -> LedgerEntry | ledger.UnreadableEntry | None:
        """The last entry, for those who do not own the transactional.id: it waits for the outcome of an open
        transaction, and creates nothing. `verdict` then uses it.
        """
        committed = self._ledger_group.fetch_all()
        self._entry = self._followed(self.topic.read_settled(), committed, LedgerTopic.read_settled)
        return self._entry

    def glance(self) -> CommittedEntry:
        """The last committed entry, for a process that is about to take the transactional.id: it does not wait for
        pending offsets, and creates nothing. `verdict` then uses the entry.

        `read` must follow InitProducerId, unless record and pointer agree and nobody can have committed in between.
        """
        self._answers.clear()
        self._waits = False
        if not self.topic.exists():
            committed = self._ledger_group.fetch_all(require_stable=False)
            self._entry = self._followed(None, committed, self._as_owner)
            return CommittedEntry(entry=self._entry)
        last, entry, pointer = self._read_places()
        # The entry may be that of a later pointer, or of another place.
        if (
            last.record is None
            or not isinstance(entry, LedgerEntry)
            or not copies.has_entry(last.value, entry, self._signer)
        ):
            return CommittedEntry(entry=entry, pending=last.pending)
        return CommittedEntry(
            entry=entry,
            # The commit may have to reach the pointer yet.
            agreed=copies.has_entry(pointer, entry, self._signer),
            pending=last.pending,
            producer=last.record.producer,
        )

    def _as_owner(self, kept: LedgerTopic) -> bytes | None:
        return kept.read(None).value if self._cluster.exists(kept.at.topic, patience_ms=0) else None

    def _followed(
        self, record: bytes | None, committed: _Offsets, read: Callable[[LedgerTopic], bytes | None]
    ) -> LedgerEntry | ledger.UnreadableEntry | None:
        """The valid entry, wherever it is."""
        at, signer = self.topic.at, self._signer
        latest = copies.newest(record, committed, at, signer)
        entry, passed = follow(self._cluster, self._options.transactional_id, latest, at, read, signer)
        if record is not None and at in committed and copies.is_lost(committed[at], signer):
            _log.warning("the offsets of group %s were reset; the ledger's record counts", self._options.ledger_group)
        self._warn_of(copies.of_others(committed, at, signer))
        self._stale_places = copies.misleading(committed, at, signer) | {place: True for place in passed if place != at}
        return entry

    def _warn_of(self, others: _Offsets) -> None:
        """Say, once, who else commits offsets to the ledger's group. They are left alone: they may be somebody's
        progress.
        """
        if not others or self._has_warned:
            return
        self._has_warned = True
        names = {tp: marked_by(at) for tp, at in sorted(others.items())}
        _log.warning(
            "group %s is the ledger's, but somebody else commits offsets to it: %s. They are left as they are. Give "
            "that query or consumer another group: once the ledger's own offset there expires, this query is refused",
            self._options.ledger_group,
            first_three(f"{tp} by transactional.id {name!r}" if name else str(tp) for tp, name in names.items()),
        )

    def remember_committed(self, entry: LedgerEntry, by: ProducerIdentity) -> None:
        """Record that `entry` is committed, in the transaction of `by`."""
        self._entry, self._under, self._stale_places = entry, by.producer, {}

    def verdict(self, decide: Decide, batch: MicroBatch) -> verdicts.Verdict:
        """The verdict of `decide` on the last entry and, if that has no offsets of the sources, on the group's
        offsets.
        """
        batch = self._sources.known(batch)
        own, clusters = self._cluster.cluster_id(), self._sources.of(batch)
        entry = self._entry
        committed: dict[TopicPartition, OffsetAndMetadata | None] = {}
        if not is_enough(entry, batch) and (asked := self._sources.starts_here(batch)):
            # After real time, they only say who has read: where it goes on, the ledger says.
            in_real_time = isinstance(entry, LedgerEntry) and entry.buckets is not None
            stable = self._waits and batch.buckets is None and not in_real_time
            committed = self.read_source_offsets(asked, require_stable=stable)
            if isinstance(entry, LedgerEntry) and entry.buckets is not None:
                topics = {tp.topic for tp in asked}
                committed = {**committed, **self._ends_of(range(entry.buckets), asked, topics, owner=False)}
        mine = source_mark(self._options.transactional_id)
        ours = {tp for tp, at in committed.items() if at is not None and at.metadata == mine}
        # A batch in real time would go on at them, wherever it starts.
        counting = ours if isinstance(entry, LedgerEntry) and batch.buckets is not None else committed.keys()
        verdict_if = functools.partial(
            decide,
            entry,
            batch,
            {tp: None if at is None or tp not in counting else at.offset for tp, at in committed.items()},
            clusters=clusters,
            own=own,
            other_ids=other_ids(committed, self._options.transactional_id),
            ours=bool(ours),
        )
        verdict = verdict_if()
        if isinstance(verdict, Refuse) and verdict_if(only_markers=True) != verdict:
            from spark_kafka_eos.ledger.between import has_records  # rarely needed, and loads NumPy

            gaps = CommittedEnd.of(entry, batch, clusters, own, None).gaps_on(own)
            if gaps is not None:
                verdict = verdict_if(only_markers=not has_records(self._cluster, gaps))
        if isinstance(verdict, verdicts.Skip) and isinstance(entry, LedgerEntry) and not batch.destination:
            ids = {name: topic_id for name, topic_id in entry.outputs.items() if topic_id is not None}
            verdict = verdict_if(deleted=deleted(self._cluster, ids))
        return verdict

    def read_source_offsets(
        self, partitions: Collection[TopicPartition], *, require_stable: bool = True, patience_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The offsets of the source's group, as `GroupCoordinator.fetch_offsets` reads them. `send` confirms them."""
        ask = functools.partial(self._source_group.fetch_offsets, partitions)
        committed = ask(require_stable=require_stable, patience_ms=patience_ms)
        where = f"group {self._source_group.group_id!r}"
        self._answers.add(where, functools.partial(ask, require_stable=False), committed)
        return committed

    def read_buckets(
        self, numbers: Collection[int], partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Where these partitions are read on in real time, of those of which the ledger says it: where their buckets
        began, or what these have committed since. Call it once the buckets are taken: then it is final. `send` confirms
        it.

        Raises LedgerRefused, and TransactionAborted if what was read of the ledger before is outdated.
        """
        return self._ends_of(numbers, partitions, {tp.topic for tp in partitions}, owner=True)

    def keep_ends(self, numbers: Collection[int], batch: MicroBatch) -> None:
        """Have the next entry say where partitions have ended that were begun in real time and that this batch does not
        read: the next records of their buckets don't. Call it once the buckets are taken.
        """
        left_out = real_time.left_out(self._entry, batch)
        if left_out and isinstance(self._entry, LedgerEntry) and self._entry.buckets is not None:
            ends = self._ends_of(numbers, left_out, (), owner=True)
            kept = BucketRecord(
                serial=self._entry.serial,
                offsets={tp: at.offset for tp, at in ends.items()},
                topic_ids={},
                epochs={tp: at.leader_epoch for tp, at in ends.items() if at.leader_epoch >= 0},
            )
            self._entry = real_time.with_ends(self._entry, kept)

    def _ends_of(
        self, numbers: Collection[int], partitions: Collection[TopicPartition], read: Collection[str], *, owner: bool
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Where these partitions have ended by the records of these buckets. `owner`: nobody else can commit, so none
        of these can be newer than the entry.
        """
        mark = source_mark(self._options.transactional_id)

        def records() -> dict[int, BucketRecord]:
            topics = [self.topic.at.topic, *(place.topic for place, has in self._stale_places.items() if has)]
            return self._buckets.read(numbers, topics)

        def by(found: Mapping[int, BucketRecord]) -> dict[TopicPartition, OffsetAndMetadata | None]:
            ends = self._latest(found, read)
            return {
                tp: OffsetAndMetadata(offset=ends.offsets[tp], metadata=mark, leader_epoch=ends.epochs.get(tp, -1))
                for tp in partitions
                if tp in ends.offsets
            }

        found = records()
        if owner:
            self._require_possible(found)
        offsets = by(found)
        self._answers.add(
            f"what buckets have committed in topic {self.topic.at.topic!r}", lambda: by(records()), offsets
        )
        return {tp: at for tp, at in offsets.items() if at is not None}

    def _require_possible(self, records: Mapping[int, BucketRecord]) -> None:
        """Raise LedgerRefused if a bucket's record is newer than the last entry allows; TransactionAborted if that was
        not the last one.
        """
        entry, number = self._entry, real_time.impossible(self._entry, records)
        if number is None:
            return
        self.read()
        before, last = (0 if each is None else each.serial for each in (entry, self._entry))
        if last != before:
            raise TransactionAborted(
                f"the ledger's last commit is number {last}, not {before} as its broker answered before: that broker "
                "was outdated",
                action="The ledger is read again before the batch is retried.",
            )
        raise impossible_record(self._options.transactional_id, number, records[number].serial, last)

    def _latest(self, found: Mapping[int, BucketRecord], read: Collection[str]) -> BucketRecord:
        """Where partitions have ended by these records and by the entry. Raises LedgerRefused if a topic of those that
        are `read` was created again since, or if the records are lost.
        """
        records = real_time.said(self._entry, self._cluster.cluster_id(), found)
        for record in records:
            self._buckets.require_same(record, read)
        if isinstance(self._entry, LedgerEntry) and (self._entry.buckets is not None or self._entry.left is not None):
            is_pointer = self._entry.sources is None and not self.undecided  # the record is lost, and theirs with it
            if is_pointer or self._topic_id not in (None, self._id_of_topic()):
                raise bucket_records_lost(self._options.transactional_id, self.topic.at.topic)
        return bucket_record.latest(records)

    def _id_of_topic(self) -> uuid.UUID | None:
        name = self.topic.at.topic
        return self._sources.topic_ids({name}).get(name)

    # -- writing

    def send(
        self,
        identity: ProducerIdentity,
        batch: MicroBatch,
        *,
        incomplete: bool,
        written: BatchCounts | None = None,
        table: int | None = None,
    ) -> LedgerEntry:
        """Add the ledger's record, its pointer and the source offsets to the open transaction; return the new entry.
        In real time, without source offsets: the tasks copy them. `table`: see LedgerEntry.

        Raises TransactionAborted if the verdict on the batch was based on an outdated answer.
        """
        batch = self._sources.known(batch)
        if batch.buckets is None and isinstance(self._entry, LedgerEntry) and self._entry.buckets is not None:
            self.keep_ends(range(self._entry.buckets), batch)
        entry = next_entry(
            self._entry,
            batch,
            self._sources.of(batch),
            incomplete=incomplete,
            written=written,
            table=table,
            transaction_version=identity.transaction_version,
            group=self._options.group_id,
        )
        pointers = {self.topic.at: entry_format.encode_pointer(entry, self._position, self._signer)}
        self.appended = self._sources.topic_ids({self.topic.at.topic})
        pointers |= self._write_redirects(identity, entry)
        value, now_ms = entry_format.encode_record(entry, self._signer), int(time.time() * 1e3)
        # One after the other: in TV2, each broker has the coordinator add its own partitions to the transaction, and
        # while it adds some, it refuses others (CONCURRENT_TRANSACTIONS). To wait for the record costs nothing with one
        # broker, and saves 4 to 9 ms of 12 to 16 with three.
        acknowledged = self.topic.append_entry(identity, value, timestamp_ms=now_ms)
        self._commit_offsets(identity, self._ledger_group, pointers)
        if batch.buckets is None:
            self.send_source_offsets(identity, batch)
        self._answers.confirm()
        if self._answers and not self.topic.follows(self._position, acknowledged):
            raise TransactionAborted(
                f"topic {self.topic.at.topic!r} has a later entry than its leader answered before the batch: that "
                "leader was outdated",
                action="The ledger is read again before the batch is retried.",
            )
        self._answers.clear()
        self._position = max(self._position, acknowledged.base_offset + 1)
        return entry

    def _write_redirects(
        self, identity: ProducerIdentity, entry: LedgerEntry
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Have the places that the ledger has left say where it is, as part of the open transaction; their pointers."""
        there = self._cluster.existing({place.topic for place in self._stale_places}) if self._stale_places else ()
        moved = ledger.MovedLedger(serial=entry.serial, topic=self.topic.at.topic)
        pointers: dict[TopicPartition, OffsetAndMetadata] = {}
        for place, has_records in sorted(self._stale_places.items()):
            if place.topic not in there:
                continue  # with its topic, the group lost its offset, too
            if has_records:
                self.appended |= self._sources.topic_ids({place.topic})
                value, now_ms = entry_format.encode_record(moved, self._signer), int(time.time() * 1e3)
                old_ledger = LedgerTopic(self._cluster, place.topic, self._options.transactional_id)
                old_ledger.append_entry(identity, value, timestamp_ms=now_ms)
            pointers[place] = entry_format.encode_pointer(moved, 0, self._signer)
        return pointers

    def send_source_offsets(self, identity: ProducerIdentity, batch: MicroBatch) -> None:
        """Add only the source offsets: without a ledger, or, in real time, beside `send`."""
        if offsets := self._source_offsets(batch):
            self._commit_offsets(identity, self._source_group, offsets)

    def _source_offsets(self, batch: MicroBatch) -> _Offsets:
        """The offsets to commit to the source's group: only those of topics on the sink's cluster."""
        mark = source_mark(self._options.transactional_id)
        ends = self._sources.ends_here(batch)
        return {tp: OffsetAndMetadata(offset=offset, metadata=mark) for tp, offset in ends.items()}

    def _commit_offsets(self, identity: ProducerIdentity, group: GroupCoordinator, offsets: _Offsets) -> None:
        add_offsets(self._cluster, identity, group.group_id)
        version = identity.transaction_version
        try:
            group.commit_in_transaction(identity, offsets, transaction_version=version)
        except UnknownTopic as error:
            topics = set(self._cluster.existing({tp.topic for tp in offsets}))
            existing = {tp: at for tp, at in offsets.items() if tp.topic in topics}
            if len(existing) == len(offsets):
                raise
            gone = ", ".join(sorted({tp.topic for tp in offsets.keys() - existing.keys()}))
            if self._options.fail_on_data_loss:
                raise error.replaced(action=f"The sink's cluster has no topic {gone}. {MISSING_SOURCE}") from error
            _log.warning("the offsets of %s are not committed, because the topic no longer exists", gone)
            if existing:
                group.commit_in_transaction(identity, existing, transaction_version=version)
