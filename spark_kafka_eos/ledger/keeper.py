"""The ledger of one transactional.id: read after InitProducerId, written in each batch's transaction.

A paused group coordinator answers with old offsets until it learns of its successor, and so does a paused leader. But
only the current ones accept appends. So before EndTxn, the brokers that accepted this batch's entry must confirm what
the verdict was based on.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from spark_kafka_eos.broker.cluster import Cluster
from spark_kafka_eos.broker.groups import GroupCoordinator
from spark_kafka_eos.broker.transactions import TransactionCoordinator
from spark_kafka_eos.errors import ConfigurationError, TransactionAborted, UnknownTopic
from spark_kafka_eos.ledger import entry as ledger
from spark_kafka_eos.ledger import verdicts
from spark_kafka_eos.ledger.decide import Decide, signer_of
from spark_kafka_eos.ledger.ends import sources_of
from spark_kafka_eos.ledger.entry import LedgerEntry, SourceProgress, Written
from spark_kafka_eos.ledger.topic import LastRecord, LedgerTopic, follow
from spark_kafka_eos.model import MicroBatch, OffsetAndMetadata, ProducerIdentity, TopicPartition
from spark_kafka_eos.options import SinkOptions

_log = logging.getLogger(__name__)

_Offsets = Mapping[TopicPartition, OffsetAndMetadata]


MISSING_SOURCE = (
    "If the source is on another cluster, set sourceClusters. If the topic was deleted, set failOnDataLoss=false on "
    "the sink, too: its offsets are then not committed."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Glance:
    """The last committed entry, and the producer id and epoch of its transaction, -1 if unknown. `pending`: the ledger
    has a later record whose transaction has not ended. `there`: the ledger topic exists.
    """

    entry: LedgerEntry | ledger.Unreadable | None
    there: bool = False
    pending: bool = False
    producer_id: int = -1
    epoch: int = -1


class LedgerKeeper:
    """Not thread-safe. Call `read` first; `verdict` and `send` use the entry that it found, or that of the last
    `keep`.
    """

    def __init__(self, options: SinkOptions, cluster: Cluster, coordinator: TransactionCoordinator) -> None:
        self._options, self._cluster, self._coordinator = options, cluster, coordinator
        self.topic = LedgerTopic(cluster, options.ledger_topic, options.transactional_id)
        self._signer = signer_of(options)
        self._ledger_group = GroupCoordinator(cluster, options.ledger_group)
        self._source_group = GroupCoordinator(cluster, options.group_id)
        self._entry: LedgerEntry | ledger.Unreadable | None = None
        self._position = 0  # where the next record of the ledger will be, or after it
        self._left: dict[TopicPartition, bool] = {}  # places that do not say where the ledger is; true: of records, too
        # What the verdict is based on and has not been confirmed: the group, how to ask again, and its first answer.
        self._told: list[tuple[str, Callable[[], object], object]] = []
        self._waits = True  # for pending offsets; not where they may be those of another one's open transaction

    # -- reading

    def read(self) -> None:
        """Read the last entry. Call it after InitProducerId: before, another entry could still be committed."""
        self._told.clear()
        self._waits = True
        self.topic.ensure()
        self._read_places()

    def _read_places(self) -> tuple[LastRecord, LedgerEntry | ledger.Unreadable | None]:
        """The last committed record, and the entry in record and pointer together."""
        committed = self._ledger_group.fetch_all(require_stable=self._waits)
        pointer = committed.get(self.topic.at)
        record = self.topic.read(None if pointer is None else pointer.offset)
        if pointer is None and record.value is not None and self._waits:
            # Of all offsets, brokers leave out one whose first commit is pending. Of one, they call it unstable, and
            # this waits for it.
            self._ledger_group.fetch_offsets([self.topic.at])
            committed = self._ledger_group.fetch_all()
        self._note_told(
            self._ledger_group, functools.partial(self._ledger_group.fetch_all, require_stable=False), committed
        )
        self._position = record.position
        self._entry = self._followed(record.value, committed, self._as_owner)
        return record, self._entry

    def look(self) -> LedgerEntry | ledger.Unreadable | None:
        """The last entry, for those who do not own the transactional.id: it waits for the outcome of an open
        transaction, and creates nothing. `verdict` then uses it.
        """
        committed = self._ledger_group.fetch_all()
        record = self.topic.read_settled()
        value = None if record is None else record.value
        self._entry = self._followed(value, committed, LedgerTopic.read_settled)
        return self._entry

    def glance(self, *, open_transaction: bool) -> Glance:
        """The last committed entry, for one who is about to take the transactional.id: it waits for no open transaction
        and creates nothing. `verdict` then uses the entry.

        `open_transaction`: one may be open, so its offsets are not waited for. `read` must follow InitProducerId,
        unless nobody can have committed in between.
        """
        self._told.clear()
        self._waits = not open_transaction
        if not self.topic.exists():
            committed = self._ledger_group.fetch_all(require_stable=self._waits)
            self._entry = self._followed(None, committed, self._as_owner)
            return Glance(entry=self._entry)
        record, entry = self._read_places()
        of_record = isinstance(entry, LedgerEntry) and self._is_in(record, entry)
        return Glance(
            entry=entry,
            there=True,
            pending=record.pending,
            producer_id=record.producer_id if of_record else -1,
            epoch=record.epoch if of_record else -1,
        )

    def _is_in(self, record: LastRecord, entry: LedgerEntry) -> bool:
        """Whether the entry is that of this record, and not of a later pointer or of another place."""
        found = None if record.value is None else ledger.newest(record.value, {}, self.topic.at, self._signer)
        return isinstance(found, LedgerEntry) and found.serial == entry.serial

    def _as_owner(self, kept: LedgerTopic) -> LastRecord | None:
        return kept.read(None) if self._cluster.exists(kept.at.topic, patience_ms=0) else None

    def _followed(
        self, record: bytes | None, committed: _Offsets, read: Callable[[LedgerTopic], LastRecord | None]
    ) -> LedgerEntry | ledger.Unreadable | None:
        """The valid entry, wherever it is."""
        at, signer = self.topic.at, self._signer
        found = ledger.newest(record, committed, at, signer)
        entry, passed = follow(self._cluster, self._options.transactional_id, found, at, read, signer)
        if record is not None and at in committed and ledger.is_lost(committed[at], signer):
            _log.warning("the offsets of group %s were reset; the ledger's record counts", self._options.ledger_group)
        self._left = ledger.misleading(committed, at, signer) | {place: True for place in passed if place != at}
        return entry

    def keep(self, entry: LedgerEntry) -> None:
        """Record that `entry` is committed."""
        self._entry, self._left = entry, {}

    def verdict(self, decide: Decide, batch: MicroBatch) -> verdicts.Verdict:
        """The verdict of `decide` on the last entry and, if that has no offsets of the sources, on the group's
        offsets.
        """
        own = self._cluster.cluster_id()
        clusters = self._clusters(batch)
        entry = self._entry
        committed: dict[TopicPartition, OffsetAndMetadata | None] = {}
        known = isinstance(entry, LedgerEntry) and (entry.query_id == batch.query_id or entry.sources is not None)
        if not known and (asked := _starts(batch, clusters, own)):
            ask = functools.partial(self._source_group.fetch_offsets, asked)
            committed = ask(require_stable=self._waits)
            self._note_told(self._source_group, functools.partial(ask, require_stable=False), committed)
        mine = ledger.source_mark(self._options.transactional_id)
        return decide(
            entry,
            batch,
            {tp: None if at is None else at.offset for tp, at in committed.items()} if committed else None,
            clusters=clusters,
            own=own,
            strangers=ledger.strangers(committed, self._options.transactional_id),
            ours=any(at is not None and at.metadata == mine for at in committed.values()),
        )

    def _note_told(self, group: GroupCoordinator, ask: Callable[[], object], told: object) -> None:
        self._told.append((group.group_id, ask, told))

    def _confirm_told(self) -> None:
        """Raise TransactionAborted if the verdict on this batch was based on the answer of an outdated coordinator."""
        for group, ask, told in self._told:
            now = ask()  # without waiting: the pending offsets are our own
            if now != told:
                raise TransactionAborted(
                    f"group {group!r} is at {_shown(now)}, not at {_shown(told)} as its coordinator answered before "
                    "the batch: that coordinator was outdated",
                    action="The ledger is read again before the batch is retried.",
                )

    # -- writing

    def send(
        self, identity: ProducerIdentity, batch: MicroBatch, *, incomplete: bool, written: Written | None = None
    ) -> LedgerEntry:
        """Add the ledger's record, its pointer and the source offsets to the open transaction; return the new entry.

        Raises TransactionAborted if the verdict on the batch was based on an outdated answer.
        """
        clusters = self._clusters(batch)
        entry = self._next_entry(batch, clusters, incomplete, written)
        pointers = {self.topic.at: ledger.encode_pointer(entry, self._position, self._signer)}
        pointers |= self._lead_on(identity, entry)
        value, now_ms = ledger.encode_record(entry, self._signer), int(time.time() * 1e3)
        with self.topic.append(self._coordinator, identity, value, timestamp_ms=now_ms) as record:
            self._send_offsets(identity, self._ledger_group, pointers)
            if offsets := self._source_offsets(batch, clusters):
                self._send_offsets(identity, self._source_group, offsets)
            self._confirm_told()
            acknowledged = record.acknowledged()
        if self._told and not self.topic.follows(self._position, acknowledged):
            raise TransactionAborted(
                f"topic {self.topic.at.topic!r} has a later entry than its leader answered before the batch: that "
                "leader was outdated",
                action="The ledger is read again before the batch is retried.",
            )
        self._told.clear()
        self._position = max(self._position, acknowledged.base_offset + 1)
        return entry

    def _lead_on(self, identity: ProducerIdentity, entry: LedgerEntry) -> dict[TopicPartition, OffsetAndMetadata]:
        """Have the places that the ledger has left say where it is, as part of the open transaction; their pointers."""
        there = self._cluster.existing({place.topic for place in self._left}) if self._left else ()
        moved = ledger.Moved(serial=entry.serial, topic=self.topic.at.topic)
        pointers: dict[TopicPartition, OffsetAndMetadata] = {}
        for place, has_records in sorted(self._left.items()):
            if place.topic not in there:
                continue  # with its topic, the group lost its offset, too
            if has_records:
                value, now_ms = ledger.encode_record(moved, self._signer), int(time.time() * 1e3)
                left = LedgerTopic(self._cluster, place.topic, self._options.transactional_id)
                with left.append(self._coordinator, identity, value, timestamp_ms=now_ms) as record:
                    record.acknowledged()
            pointers[place] = ledger.encode_pointer(moved, 0, self._signer)
        return pointers

    def send_source_offsets(self, identity: ProducerIdentity, batch: MicroBatch) -> None:
        """Add only the source offsets, for batches without a ledger entry."""
        if offsets := self._source_offsets(batch, self._clusters(batch)):
            self._send_offsets(identity, self._source_group, offsets)

    def _clusters(self, batch: MicroBatch) -> tuple[str, ...]:
        """The cluster id of each of the batch's sources."""
        sources = sources_of(batch)
        named, own = self._options.source_clusters, self._cluster.cluster_id()
        if len(named) <= 1:
            return ((named[0] if named else "") or own,) * len(sources)
        if len(named) != len(sources):
            raise ConfigurationError(
                "sourceClusters",
                f"lists {len(named)} clusters, but the query has {len(sources)} sources",
                action="Set one cluster for all sources, or one for each source, in their order.",
            )
        return tuple(name or own for name in named)

    def _next_entry(
        self, batch: MicroBatch, clusters: Sequence[str], incomplete: bool, written: Written | None
    ) -> LedgerEntry:
        last = self._entry
        return LedgerEntry(
            query_id=batch.query_id,
            batch_id=batch.batch_id,
            digest=batch.digest,
            serial=1 + (last.serial if isinstance(last, LedgerEntry) else 0),
            sources=tuple(
                None if source is None else SourceProgress(cluster=cluster, offsets=source.end)
                for cluster, source in zip(clusters, sources_of(batch), strict=True)
            ),
            run_id=batch.run_id,
            incomplete=incomplete,
            written=written,
        )

    def _source_offsets(self, batch: MicroBatch, clusters: Sequence[str]) -> _Offsets:
        """The offsets to commit to the source's group: only those of topics on the sink's cluster."""
        mark = ledger.source_mark(self._options.transactional_id)
        own = self._cluster.cluster_id()
        ends: dict[TopicPartition, int] = {}
        for cluster, source in zip(clusters, sources_of(batch), strict=True):
            for tp, offset in source.end.items() if source is not None and cluster == own else ():
                ends[tp] = min(offset, ends.get(tp, offset))
        return {tp: OffsetAndMetadata(offset=offset, metadata=mark) for tp, offset in ends.items()}

    def _send_offsets(self, identity: ProducerIdentity, group: GroupCoordinator, offsets: _Offsets) -> None:
        self._coordinator.add_offsets(identity, group.group_id)
        version = self._coordinator.transaction_version
        try:
            group.commit_in_transaction(identity, offsets, transaction_version=version)
        except UnknownTopic as error:
            there = set(self._cluster.existing({tp.topic for tp in offsets}))
            left = {tp: at for tp, at in offsets.items() if tp.topic in there}
            if len(left) == len(offsets):
                raise
            gone = ", ".join(sorted({tp.topic for tp in offsets.keys() - left.keys()}))
            if self._options.fail_on_data_loss:
                raise error.replaced(action=f"The sink's cluster has no topic {gone}. {MISSING_SOURCE}") from error
            _log.warning("the offsets of %s are not committed, because the topic no longer exists", gone)
            if left:
                group.commit_in_transaction(identity, left, transaction_version=version)


def _starts(batch: MicroBatch, clusters: Sequence[str], own: str) -> list[TopicPartition]:
    """The partitions that the batch reads from the sink's own cluster."""
    partitions = {
        tp
        for cluster, source in zip(clusters, sources_of(batch), strict=True)
        if source is not None and cluster == own
        for tp in source.start or {}
    }
    return sorted(partitions)


def _shown(told: object) -> str:
    assert isinstance(told, Mapping)
    return ", ".join(f"{tp}@{'none' if at is None else at.offset}" for tp, at in told.items()) or "nothing"
