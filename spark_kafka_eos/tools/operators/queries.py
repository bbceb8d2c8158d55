"""The queries of a cluster, as their ledgers describe them: read without any query's help."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from spark_kafka_eos.errors import (
    AuthorizationFailed,
    BrokerError,
    BrokerUnreachable,
    KafkaEosError,
    ToolFailed,
    UnknownTopic,
)
from spark_kafka_eos.kafka.partitions import OffsetAndMetadata, TopicPartition
from spark_kafka_eos.kafka.producer import ProducerEpoch
from spark_kafka_eos.kafka.protocol import describe
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.codes import ErrorCode
from spark_kafka_eos.kafka.protocol.facts import TransactionFacts, Unavailable
from spark_kafka_eos.kafka.protocol.groups import GroupCoordinator, group_ids
from spark_kafka_eos.kafka.protocol.topics import undescribed
from spark_kafka_eos.kafka.reserved_topics import OFFSETS_TOPIC
from spark_kafka_eos.ledger import bucket_record
from spark_kafka_eos.ledger.bucket_record import BucketRecord
from spark_kafka_eos.ledger.entry import LedgerEntry, MovedLedger
from spark_kafka_eos.ledger.entry_format import NotAnEntry, decode_committed
from spark_kafka_eos.ledger.records import LedgerRecord, LedgerRecords
from spark_kafka_eos.ledger.topic import LedgerReader, read_end
from spark_kafka_eos.options.reserved import LEDGER_TOPIC
from spark_kafka_eos.options.sink import LEDGER_GROUP, query_of
from spark_kafka_eos.tools.operators.abort import InLedger
from spark_kafka_eos.tools.operators.open_transactions import described, listed
from spark_kafka_eos.tools.operators.status import (
    Copies,
    PartitionLag,
    QueryStatus,
    RecordedEntry,
    SourceLag,
    buckets_of,
    copies_of,
    entry_of,
    in_real_time,
)
from spark_kafka_eos.tools.operators.unread import NO_ID, LogRange, first_times, log_ranges

_MOST_GROUPS = 100
_FEW = 3
_ANYBODY = f"kafka-eos-{uuid.uuid4()}"  # a group that nobody has
_UNLISTED = (
    "no coordinator lists the id: it has expired, its coordinator is down, or this principal may not describe it"
)


class QueryReader:
    """Reads the state of a cluster's queries; keep it to look again, because it then reads only what is new.

    `ledger_topics` are looked through for transactional.ids, and `only` is the one to look for. By default it is the
    default one, and where the group of `only` points to; `further` ones are looked through in any case. Where a record
    says that the ledger of its id has moved, that topic is, too, unless both ledger and id are named. `sources` are
    further clusters that queries read from, by any connection: their ids distinguish them. Of each id, the last `keep`
    commits are read. Not thread-safe.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        ledger_topics: Iterable[str] | None = None,
        further: Iterable[str] = (),
        only: str | None = None,
        sources: Sequence[Cluster] = (),
        keep: int = 1,
    ) -> None:
        self._cluster, self._sources, self._keep, self._only = cluster, sources, keep, only
        self._ledgers = {name: self._ledger(name) for name in (*(ledger_topics or (LEDGER_TOPIC,)), *further)}
        if ledger_topics is None and only is not None:
            with contextlib.suppress(AuthorizationFailed):  # the default one may be the right one
                self._follow(only)
        self.named = ledger_topics is not None
        self._follows_moves = only is None or not self.named
        self.missing: list[str] = []  # ledger topics that did not exist at the last `read`
        self.silent: dict[int, str] = {}  # brokers whose groups `find` could not list, and why
        self.hidden = False  # whether groups may be missing in what `find` listed
        self.unfollowed = False  # whether `find` could not look into the group of an id that is in a known ledger topic
        self.outputs: set[str] = set()  # topics that queries wrote, by the commits of any `read`

    @property
    def cluster(self) -> Cluster:
        return self._cluster

    @property
    def ledger_topics(self) -> set[str]:
        """Those that are looked through, as far as they are known."""
        return set(self._ledgers)

    @property
    def lacking(self) -> list[str]:
        """Those of `missing` that should be there: all but the default one, if nobody named it."""
        return [topic for topic in self.missing if self.named or topic != LEDGER_TOPIC]

    def read(self, *, lag: bool = True, times: bool = False, owners: bool = True) -> list[QueryStatus]:
        """The queries, sorted by transactional.id; none if there is no ledger topic. Of an id in several ledger topics,
        the last commit counts: nothing leads from one to the other if the pointer expired in between.

        `lag` asks for the ends of the source partitions, `times` also for the oldest unread records, `owners` asks the
        transaction coordinators. What of that cannot be read is unknown in the result. Raises AuthorizationFailed if
        the ledger topic may not be read, CorruptRecordBatch, BrokerError, BrokerUnreachable.
        """
        self._read(self._ledgers.values())
        queries = [
            (name, topic, records) for topic, ledger in self._ledgers.items() for name, records in ledger.by_id.items()
        ]
        statuses = [
            _status(name, topic, records)
            for name, topic, records in queries
            if records.pending or (records.committed and records.committed[-1].value is not None)
        ]
        statuses = [status for status in statuses if status.commits or status.pending]
        statuses = list(_by_last_commit(statuses))
        self.outputs.update(topic for status in statuses for topic in status.outputs)
        if lag:
            statuses = [
                in_real_time(status, self._records(status)) if status.buckets else status for status in statuses
            ]
            statuses = self._with_lag(statuses, times=times)
        return self._with_owners(statuses) if owners else statuses

    def find(self, *, most: int | None = _MOST_GROUPS) -> int:
        """Look for ledger topics that nobody named: the groups `<transactional.id>.ledger` point to them.

        Returns how many of these groups were not looked into: it asks at most `most`, first those whose id is in no
        known ledger topic, and not every one may be described, or has a coordinator that answers. The others, which
        lead on only if the ledger is in two topics, are not counted; `unfollowed` says that one of those that it asks
        could not be looked into. Those of the brokers in `silent` are unknown, and `hidden` says that a group may not
        be listed. Raises as `read` does.
        """
        self._read(self._ledgers.values())
        names, self.silent = group_ids(self._cluster)
        self.hidden = not _sees_every_group(self._cluster)
        ids = self.located()
        pointed = [name.removesuffix(LEDGER_GROUP) for name in names if name.endswith(LEDGER_GROUP)]
        known = [name for name in pointed if name in ids]
        self.unfollowed = False
        asked = missed = 0
        for name in pointed:
            if name in ids:  # known, or found meanwhile
                continue
            if asked == most:
                missed += 1
                continue
            asked += 1
            try:
                found = self._follow(name)
            except KafkaEosError:
                missed += 1
            else:
                self._read(found)
                ids = self.located()
        for name in known[: None if most is None else most - asked]:
            try:
                found = self._follow(name)
            except KafkaEosError as error:
                self.unfollowed = True
                if isinstance(error, BrokerUnreachable):  # the next one may be waited for, too
                    break
            else:
                self._read(found)
        return missed

    def located(self) -> set[str]:
        """The ids that have records in a ledger which they have not left, as of the last time that it was read."""
        return {
            name
            for ledger in self._ledgers.values()
            for name, records in ledger.by_id.items()
            if _moved_to(records) is None
        }

    def last_records(self) -> Iterator[LedgerRecord]:
        """The last committed record of each id as of the last `read`, those of buckets and of moved ledgers, too."""
        of_all = (records.last for ledger in self._ledgers.values() for records in ledger.by_id.values())
        yield from (record for record in of_all if record is not None)

    def writer(self, producer: ProducerEpoch) -> str | None:
        """The id under which this producer has a record whose transaction has not ended, as of the last `read`."""
        by_id = (item for ledger in self._ledgers.values() for item in ledger.by_id.items())
        found = (name for name, records in by_id if any(record.producer == producer for record in records.pending))
        return next(found, None)

    def pending(self, transactional_id: str) -> Iterator[RecordedEntry]:
        """What the ledgers have of this id's open transactions, as of the last `read`."""
        for ledger in self._ledgers.values():
            if transactional_id in ledger.by_id:
                yield from _commits(ledger.by_id[transactional_id].pending)

    def copies(self, transactional_id: str) -> Copies:
        """The two copies of this id's entry: the record as of the last `read`, and the pointer as of now."""
        ledgers = [reader for reader in self._ledgers.values() if transactional_id in reader.by_id]
        ledger = max(ledgers, key=lambda reader: _committed_at(reader.by_id[transactional_id]), default=None)
        records = ledger and ledger.by_id[transactional_id]
        value = records.committed[-1].value if records and records.committed else None
        committed = self._group(transactional_id).fetch_all(require_stable=False)
        places = [ledger.at] if ledger else [reader.at for reader in self._ledgers.values()]
        at = next((place for place in places if place in committed), places[0])
        return copies_of(value, committed, at)

    def _read(self, ledgers: Iterable[LedgerReader]) -> None:
        """Read what is new in these, and where ledgers have moved to from them."""
        due = list(ledgers)
        while due:
            there = {ledger.at.topic: ledger.read() for ledger in due}
            self.missing = [topic for topic in self.missing if topic not in there]
            self.missing += [topic for topic, exists in there.items() if not exists]
            moved = {_moved_to(records) for ledger in due for records in ledger.by_id.values()} - {None}
            new = (
                sorted(topic for topic in moved if topic and topic not in self._ledgers) if self._follows_moves else []
            )
            self._ledgers |= (ledgers_of_new := {topic: self._ledger(topic) for topic in new})
            due = list(ledgers_of_new.values())

    def _follow(self, transactional_id: str) -> list[LedgerReader]:
        """The ledgers that the group of this id points to and that were not known. Raises AuthorizationFailed."""
        committed = self._group(transactional_id).fetch_all(require_stable=False)
        topics = {tp.topic for tp, at in committed.items() if tp.partition == 0 and _is_pointer(at)}
        new = {topic: self._ledger(topic) for topic in topics - self._ledgers.keys()}
        self._ledgers |= new
        return [*new.values()]

    def _group(self, transactional_id: str) -> GroupCoordinator:
        return GroupCoordinator(self._cluster, transactional_id + LEDGER_GROUP)

    def _ledger(self, name: str) -> LedgerReader:
        return LedgerReader(self._cluster, name, keep=self._keep, only=self._only)

    def _records(self, status: QueryStatus) -> dict[int, BucketRecord] | str:
        """The records of a query's buckets, by their numbers; or why one is not known."""
        by_id = self._ledgers[status.ledger_topic].by_id
        of_buckets = {bucket.number: by_id.get(bucket.transactional_id) for bucket in status.buckets}
        values = {number: found.last.value or b"" for number, found in of_buckets.items() if found and found.last}
        try:
            return {number: bucket_record.decode(value) for number, value in values.items()}
        except NotAnEntry as error:
            return f"a record of its buckets cannot be read: {error}"

    def _with_lag(self, statuses: Sequence[QueryStatus], *, times: bool) -> list[QueryStatus]:
        by_cluster: dict[str, set[TopicPartition]] = {}
        for _, source in _sources(statuses):
            by_cluster.setdefault(source.cluster, set()).update(source.offsets)
        clusters, silent = _by_id((*self._sources, self._cluster)) if by_cluster else ({}, "")
        ranges = {
            name: _log_ranges(clusters.get(name), f"it is on another cluster, {name}{silent}", partitions)
            for name, partitions in by_cluster.items()
        }
        with_lag = [
            replace(
                status, sources=tuple(source and _lag(source, *ranges[source.cluster]) for source in status.sources)
            )
            for status in statuses
        ]
        return self._with_times(with_lag, clusters) if times else with_lag

    def _with_times(self, statuses: Sequence[QueryStatus], clusters: Mapping[str, Cluster]) -> list[QueryStatus]:
        timed = []
        for status in statuses:  # each by itself: several may read the same partition, and are at different offsets
            sources = [
                source and _timed(source, clusters[source.cluster]) if source and source.partitions else source
                for source in status.sources
            ]
            timed.append(replace(status, sources=tuple(sources)))
        return timed

    def _with_owners(self, statuses: Sequence[QueryStatus]) -> list[QueryStatus]:
        """Of few ids each coordinator is asked; of many, all brokers are asked for a list, in a few requests."""
        now_ms = int(time.time() * 1e3)
        owners: Mapping[str, TransactionFacts | Unavailable | None]
        names = {status.transactional_id for status in statuses}
        names |= {bucket.transactional_id for status in statuses for bucket in status.buckets}
        try:
            if len(names) <= _FEW:
                owners = {name: describe.transaction(self._cluster, name, now_ms=now_ms) for name in names}
            else:
                listings = [listing for listing in listed(self._cluster) if listing.transactional_id in names]
                unlisted: Mapping[str, Unavailable] = dict.fromkeys(names, Unavailable(reason=_UNLISTED))
                owners = {**unlisted, **described(self._cluster, listings, now_ms=now_ms)}
        except KafkaEosError as error:
            owners = dict.fromkeys(names, Unavailable(reason=error.what))
        return [
            replace(
                status,
                owner=owners[status.transactional_id],
                buckets=tuple(replace(bucket, owner=owners[bucket.transactional_id]) for bucket in status.buckets),
            )
            for status in statuses
        ]


def taking_part(cluster: Cluster, facts: TransactionFacts) -> LedgerEntry | None:
    """The ledger entry of this open transaction, if a table takes part in it: the table may have the batch.

    No pointer that counts leads yet to a ledger whose first batch is in this transaction: of the topics that its
    coordinator names, those with a pending pointer are looked into as well. Raises what `QueryReader.read` raises, and
    AuthorizationFailed if the group that leads to the ledger may not be read.
    """
    if facts.state != "Ongoing":
        return None
    reader = QueryReader(cluster, only=facts.transactional_id)
    reader.read(lag=False, owners=False)
    entry = _entry_of(reader.pending(facts.transactional_id), facts.producer)
    if entry is None:
        reader.copies(facts.transactional_id)  # raises if another ledger could have it
        entry = _entry_of(_pending_in_its_topics(cluster, facts), facts.producer)
    return None if entry is None or entry.table is None else entry


def _pending_in_its_topics(cluster: Cluster, facts: TransactionFacts) -> Iterator[RecordedEntry]:
    """What this open transaction has under its transactional.id in those of its topics that may be the ledger: no table
    has the batch before the pointer is sent, and in other topics there may be much to read.
    """
    name = facts.transactional_id
    for at in facts.partitions:
        may_be_ledger = at.partition == 0 and at.topic not in (OFFSETS_TOPIC, LEDGER_TOPIC)
        if may_be_ledger and _has_pending_pointer(cluster, name, [at]):
            with contextlib.suppress(UnknownTopic):  # deleted since
                log, _ = read_end(cluster, at, 0, only=name)
                yield from _commits(log.by_id[name].pending if name in log.by_id else ())


def committed_in(
    cluster: Cluster,
    transactional_id: str | None,
    producer_id: int,
    epoch: int,
    *,
    ledger_topics: Collection[str] = (),
) -> InLedger | None:
    """What a ledger has as the last commit of a query or a bucket, if that was in the transaction of this producer id
    and epoch; None if it was not.

    If its record in the ledger lacks the marker, too, the pointer counts. Without `transactional_id`, which nobody may
    know any more, all ledgers that can be found are read. `ledger_topics` are those that an operator names: where
    nothing is found of the id, or no id is known, only they tell that there is no other ledger. Raises as `taking_part`
    does, and ToolFailed if it is not known.
    """
    query = transactional_id and query_of(transactional_id)
    reader, producer = QueryReader(cluster, further=ledger_topics, only=query), ProducerEpoch(producer_id, epoch)
    unseen = reader.find(most=None) if query is None else 0
    reader.read(lag=False, owners=False)
    value = next((record.value for record in reader.last_records() if record.producer == producer), None)
    if value is not None:
        return _decoded(value)
    if query is None and (name := reader.writer(producer)) is not None:
        return committed_in(cluster, name, producer_id, epoch, ledger_topics=ledger_topics)
    named = [topic for topic in reader.lacking if query is not None or topic in ledger_topics]
    if named:
        raise _not_known(
            f"there is no topic {named[0]!r}, in which the ledger should be, or this principal may not describe it",
            "Name the query's ledgerTopic with --ledger-topic. If that was deleted, only the query can tell: start it.",
        )
    if query is None:
        if unseen or reader.unfollowed or reader.silent or reader.hidden:
            raise _not_known(
                f"no coordinator knows the transactional id of {producer}, and not every group `<transactional id>"
                f"{LEDGER_GROUP}`, by which ledgers are found, could be looked into",
                "Wait until every broker answers. This principal needs Describe on all groups, and on the topic "
                f"{OFFSETS_TOPIC}.",
            )
        if not ledger_topics:
            raise _not_known(
                f"no coordinator knows the transactional id of {producer}, and a ledger whose pointers have expired is "
                "only found by its name",
                "Name the ledgerTopic of every query that may have written there, with --ledger-topic; if none has one "
                f"of its own, {LEDGER_TOPIC}.",
            )
        return None
    pending = _entry_of(reader.pending(query), producer)
    pointer = reader.copies(query).pointer
    places = [TopicPartition(topic, 0) for topic in cluster.topic_names()]
    if pending is None and pointer is None and _has_pending_pointer(cluster, query, places):
        raise _not_known(
            f"the pointer to the ledger of {query!r} lacks its marker, too, and no topic that is known has a record of "
            f"{producer}",
            "Start the query: it knows its ledgerTopic, and ends what hangs.",
        )
    if query not in reader.located():
        if pointer is not None:
            raise _not_known(
                f"the ledger of {query!r} has no record, but its group has a pointer",
                "Start the query: it ends what hangs.",
            )
        if not ledger_topics:
            raise _not_known(
                f"no ledger that could be found has a record of {query!r}",
                "If this is the id of a query, name its ledgerTopic with --ledger-topic. If it is that of another "
                f"producer, or if no query has a ledgerTopic of its own, name {LEDGER_TOPIC}.",
            )
    is_committed = isinstance(pointer, LedgerEntry) and pending is not None and pointer.serial == pending.serial
    return pending if is_committed else None


def _not_known(why: str, action: str) -> ToolFailed:
    return ToolFailed(
        f"{why}: whether a query committed a batch in this transaction is not known",
        action=f"Nothing was changed. {action}",
    )


def _has_pending_pointer(cluster: Cluster, transactional_id: str, places: Iterable[TopicPartition]) -> bool:
    """Whether a transaction that has not ended in the group of this id has a pointer to a ledger at one of `places`."""
    try:
        GroupCoordinator(cluster, transactional_id + LEDGER_GROUP).fetch_offsets(places, patience_ms=0)
    except BrokerError as error:
        if error.code == ErrorCode.UNSTABLE_OFFSET_COMMIT:
            return True
        raise
    return False


def _sees_every_group(cluster: Cluster) -> bool:
    """Whether this principal may describe any group: ListGroups leaves out the others without an error. And whether it
    may describe the topic that shows if a coordinator is down: a broker that is down is in no list of brokers.
    """
    try:
        if undescribed(cluster, [OFFSETS_TOPIC]):
            return False
        GroupCoordinator(cluster, _ANYBODY).fetch_all(require_stable=False)
    except KafkaEosError:
        return False
    return True


def _decoded(value: bytes) -> InLedger:
    """A ledger record's value, of a query or a bucket."""
    return bucket_record.decode(value) if bucket_record.is_one(value) else entry_of(value)


def _entry_of(entries: Iterable[RecordedEntry], producer: ProducerEpoch) -> LedgerEntry | None:
    """The first entry that was written in the transaction of this producer."""
    for recorded in entries:
        if recorded.record.producer != producer:
            continue
        if isinstance(recorded.entry, LedgerEntry):
            return recorded.entry
    return None


def _is_pointer(committed: OffsetAndMetadata) -> bool:
    try:
        return decode_committed(committed).serial > 0  # older entries were kept at an output topic
    except NotAnEntry:
        return False


def _status(name: str, topic: str, records: LedgerRecords) -> QueryStatus:
    commits = () if _moved_to(records) is not None else tuple(_commits(records.committed))
    pending = next(_commits(records.pending[-1:]), None)
    status = QueryStatus(transactional_id=name, ledger_topic=topic, commits=commits, pending=pending)
    sources = (status.entry and status.entry.ends) or ()
    lags = tuple(
        None
        if source is None
        else SourceLag(
            cluster=source.cluster,
            offsets=source.offsets,
            topic_ids={} if source.origin is None else source.origin.topic_ids,
        )
        for source in sources
    )
    return replace(status, sources=lags, buckets=buckets_of(status.entry, name))


def _moved_to(records: LedgerRecords) -> str | None:
    """The topic to which the ledger of these records has moved, so that they no longer say what was committed last;
    None if it has not.
    """
    value = records.last and records.last.value
    entry = entry_of(value) if value and not bucket_record.is_one(value) else None
    return entry.topic if isinstance(entry, MovedLedger) else None


def _committed_at(records: LedgerRecords) -> int:
    """When these records' last commit was sent; -1 if there is none, or if they end with the move to another topic."""
    return -1 if records.last is None or _moved_to(records) is not None else records.last.timestamp_ms


def _by_last_commit(statuses: Iterable[QueryStatus]) -> Iterator[QueryStatus]:
    """One status of each id: of the ledger with its last commit, with what is open in any."""
    by_id: dict[str, list[QueryStatus]] = {}
    for status in statuses:
        by_id.setdefault(status.transactional_id, []).append(status)
    for _, of_id in sorted(by_id.items()):
        latest = max(of_id, key=lambda status: -1 if status.last is None else status.last.record.timestamp_ms)
        opened = [latest.pending, *(status.pending for status in of_id)]
        yield replace(latest, pending=next((pending for pending in opened if pending is not None), None))


def _commits(records: Iterable[LedgerRecord]) -> Iterator[RecordedEntry]:
    """The commits among the records, without those of buckets, and of a ledger that has moved to another topic."""
    for record in records:
        entry = None if record.value is None or bucket_record.is_one(record.value) else entry_of(record.value)
        if entry is not None and not isinstance(entry, MovedLedger):
            yield RecordedEntry(record=record, entry=entry)


def _by_id(clusters: Iterable[Cluster]) -> tuple[dict[str, Cluster], str]:
    """The clusters that answer, by their ids; and why the others do not, to be said of what is on none of these."""
    found: dict[str, Cluster] = {}
    reasons = []
    for cluster in clusters:
        try:
            found[cluster.cluster_id()] = cluster
        except KafkaEosError as error:
            reasons.append(f"; {error.what}")
    return found, "".join(reasons)


def _log_ranges(
    cluster: Cluster | None, elsewhere: str, partitions: Collection[TopicPartition]
) -> tuple[Mapping[TopicPartition, LogRange], Mapping[TopicPartition, str]]:
    if cluster is None:
        return {}, dict.fromkeys(partitions, elsewhere)
    try:
        return log_ranges(cluster, partitions)
    except KafkaEosError as error:
        return {}, dict.fromkeys(partitions, error.what)


def _lag(
    source: SourceLag, ranges: Mapping[TopicPartition, LogRange], unknown: Mapping[TopicPartition, str]
) -> SourceLag:
    others = {tp: why for tp, at in source.offsets.items() if tp in ranges and (why := _other(source, tp, ranges[tp]))}
    partitions = {
        tp: PartitionLag(committed=at, earliest=ranges[tp].earliest, log_ends=ranges[tp].log_ends)
        for tp, at in sorted(source.offsets.items())
        if tp in ranges and tp not in others
    }
    without_ends = {tp: unknown[tp] for tp in source.offsets if tp in unknown}
    return replace(source, partitions=partitions, unknown={**source.unknown, **without_ends, **others})


def _other(source: SourceLag, tp: TopicPartition, log: LogRange) -> str:
    """Why this log is not the one that the committed offset means; empty if it may be."""
    expected, end = source.topic_ids.get(tp.topic), log.log_ends.high_watermark
    if expected not in (None, NO_ID, log.topic_id) and log.topic_id != NO_ID:
        return f"topic {tp.topic} was created again, and the committed offsets are those of the one before"
    if source.offsets[tp] > end:
        return f"{tp} ends at {end}, before the committed offset: the topic was created again, or has lost records"
    return ""


def _timed(source: SourceLag, cluster: Cluster) -> SourceLag:
    unread = {tp: lag for tp, lag in source.partitions.items() if lag.unread}
    start = {tp: max(lag.committed, lag.earliest) for tp, lag in unread.items()}
    times = first_times(cluster, start, {tp: lag.log_ends.last_stable_offset for tp, lag in unread.items()})
    timed = {tp: replace(lag, oldest_unread_ms=times.get(tp)) for tp, lag in source.partitions.items()}
    return replace(source, partitions=timed)


def _sources(statuses: Iterable[QueryStatus]) -> Iterator[tuple[QueryStatus, SourceLag]]:
    for status in statuses:
        for source in status.sources:
            if source is not None:
                yield status, source
