"""The steps of a shared transaction, as the driver takes them: begin, let others append, commit or abort.

    begin(batch)      InitProducerId where a new epoch is needed, then the ledger: write, skip or LedgerRefused
    identity          handed to every process that appends (writing.append)
    commit(batch)     the ledger's record, its pointer and the source offsets into the transaction, then EndTxn(commit)
    abort()           a new epoch; what the old one appended is aborted and its stragglers are fenced

Not obvious:
- An abort is EndTxn(abort), then a new epoch. InitProducerId alone would abort too, but not harmlessly: sent by an
  owner that was overtaken, it aborts what the newer one has open before it says so. EndTxn(abort) only tells it to
  stop. And a late one can't end a later transaction (KAFKA-17754), since that has another epoch.
- TV2 (KIP-890): EndTxn returns the next epoch, so a batch needs neither InitProducerId nor a look at the ledger while
  this process owns the transactional.id: whoever takes it over fences the epoch. TV1: InitProducerId for every batch,
  so that an epoch never serves two batches.
- TV1, where brokers do not verify (before Kafka 3.6, or transaction.partition.verification.enable=false): the markers
  of EndTxn(abort) carry the epoch that is given up, and InitProducerId writes none. So a straggler's append with that
  epoch would be taken until the next epoch reaches its partition, and end with it. Hence the fence: under the old
  epoch every partition that may be touched joins the transaction, and InitProducerId of a newcomer aborts it, with
  markers of the next epoch in all of them. Whoever was overtaken is told so by the first of these requests.
- A group's coordinator that was paused tells what it had until it hears of its successor, and so does a leader. But
  only the real ones append: so what a verdict was founded on is confirmed, before EndTxn, by those who took this
  batch's entry.
- A commit whose outcome is unknown is settled by InitProducerId, which waits for the coordinator to finish the
  transaction, and then the ledger, which tells. In TV1 that would take the id from whoever owns it by now, so the
  coordinator is asked first who that is.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from spark_kafka_eos.broker import describe
from spark_kafka_eos.broker.cluster import Cluster
from spark_kafka_eos.broker.groups import GroupCoordinator
from spark_kafka_eos.broker.ledger_topic import LedgerTopic
from spark_kafka_eos.broker.transactions import TransactionCoordinator
from spark_kafka_eos.core import ledger, recovery
from spark_kafka_eos.core.preflight import TransactionFacts, Unread
from spark_kafka_eos.core.transaction import Event, State, Transaction
from spark_kafka_eos.errors import (
    CommitOutcomeUnknown,
    Committed,
    ConfigurationError,
    KafkaEosError,
    LedgerRefused,
    ProducerFenced,
    TransactionAborted,
    UnknownTopic,
)
from spark_kafka_eos.failpoints import failpoint
from spark_kafka_eos.model import (
    LedgerEntry,
    MicroBatch,
    OffsetAndMetadata,
    ProducerIdentity,
    SourceProgress,
    TopicPartition,
)
from spark_kafka_eos.options import SinkOptions

_log = logging.getLogger(__name__)

_OPEN = (State.APPENDING, State.APPENDED, State.OFFSETS_SENT)
_MAY_BE_OPEN = (*_OPEN, State.COMMITTING, State.UNKNOWN)
_GIVEN_UP = ("PrepareAbort", "CompleteAbort")
_LAST_EPOCH = 2**15 - 1  # of a producer id, for fencing only
_VERIFICATION = "transaction.partition.verification.enable"

_Offsets = Mapping[TopicPartition, OffsetAndMetadata]


class Decide(Protocol):
    """The verdict on a batch: `recovery.decide` and its like, with an operator's options filled in."""

    def __call__(
        self,
        entry: LedgerEntry | ledger.Unreadable | None,
        batch: MicroBatch,
        committed: recovery.CommittedOffsets | None = None,
        *,
        clusters: Sequence[str] = (),
        own: str = "",
        strangers: Sequence[str] = (),
        ours: bool = False,
    ) -> recovery.Verdict: ...


def decide_micro_batch(options: SinkOptions) -> Decide:
    """The verdict on a streaming query's micro-batches."""
    return functools.partial(recovery.decide, take_over=options.take_over_query, resolve=options.resolve)


def decide_batch_write(options: SinkOptions) -> Decide:
    """The verdict on a batch write of `txnAppId`, which has no offsets to look at."""

    def decide(
        entry: LedgerEntry | ledger.Unreadable | None, batch: MicroBatch, *_: object, **__: object
    ) -> recovery.Verdict:
        return recovery.decide_batch_write(entry, batch, resolve=options.resolve)

    return decide


class SharedTransaction:
    """One transactional.id, owned by this process from `begin` on; not safe for threads.

    Every method may raise ProducerFenced (a newer owner exists: stop), BrokerUnreachable and BrokerError.
    """

    def __init__(
        self,
        options: SinkOptions,
        cluster: Cluster,
        decide: Decide | None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`decide` maps ledger entry, batch and committed offsets to a verdict; None: no ledger, every batch is
        written. `clock` is there for tests."""
        self._options = options
        self._cluster = cluster
        self._decide = decide
        self._clock = clock
        self._appending_since = clock()
        self._transaction = Transaction()
        self._coordinator = TransactionCoordinator(cluster, options.transactional_id, options.transaction_timeout_ms)
        self._ledger = LedgerTopic(cluster, options.ledger_topic, options.transactional_id)
        self._ledger_group = GroupCoordinator(cluster, options.ledger_group)
        self._source_group = GroupCoordinator(cluster, options.group_id)
        self._identity: ProducerIdentity | None = None
        self._given_up = False  # by the coordinator: the epoch is dead, and EndTxn would be answered "fenced"
        self._verifies: bool | None = None  # once it was asked for
        self._entry: LedgerEntry | ledger.Unreadable | None = None
        self._position = 0  # where the next record of the ledger will be, or behind it
        # What the verdict is founded on and nobody confirmed yet: how to ask again, and what was told.
        self._told: list[tuple[str, Callable[[], object], object]] = []
        self.milliseconds: dict[str, float] = {}

    @property
    def identity(self) -> ProducerIdentity:
        """What the appending processes need; only between `begin` and `commit` or `abort`."""
        assert self._identity is not None, "begin() comes first"
        return self._identity

    def begin(self, batch: MicroBatch) -> recovery.Write | recovery.Skip:
        """Own a fresh epoch and decide on `batch`. Raises LedgerRefused where going on could lose or repeat data."""
        failpoint("begun", batch.batch_id)
        known = self._transaction.state is State.READY
        if not known:
            self._initialise()
        found = self._verdict(batch)
        if known and not isinstance(found, recovery.Write):
            # Not the normal course, as when a query is started again with the same writer: others may have been here.
            self._initialise()
            found = self._verdict(batch)
        match found:
            case recovery.Refuse() as refusal:
                raise _refused(refusal)
            case verdict:
                if verdict.reason.startswith("resolve="):
                    _log.warning("batch %d of query %s: %s", batch.batch_id, batch.query_id, verdict.reason)
                failpoint("initialised", batch.batch_id)
                return verdict

    def appending(self) -> None:
        """Note that records may enter the transaction from here on."""
        self._transaction.apply(Event.APPEND)
        self._appending_since = self._clock()

    def commit(self, batch: MicroBatch, *, records: int | None = None, incomplete: bool = False) -> None:
        """Make everything appended visible, with the batch's source offsets and ledger entry, or nothing of it.

        To be called only when the barrier found every append acknowledged exactly once: `records` in all, None where
        that is not known. `incomplete`: see LedgerEntry. Raises TransactionAborted where the transaction is void and
        the batch may be tried again, CommitOutcomeUnknown where nobody answers.
        """
        self._transaction.apply(Event.ALL_APPENDED)
        failpoint("all appended", batch.batch_id)
        started = time.perf_counter()
        if self._decide is None and records == 0:
            return  # nothing is open, and EndTxn would say so
        entry = self._next_entry(batch, incomplete)
        try:
            self._send_entry(entry, batch)
        except ProducerFenced as error:
            raise self._fenced(error) from error
        self._transaction.apply(Event.OFFSETS_SENT)
        failpoint("offsets committed", batch.batch_id)
        ending = time.perf_counter()
        self._transaction.apply(Event.COMMIT)
        try:
            following = self._coordinator.end(self.identity, commit=True)
        except ProducerFenced as error:
            if not self._timed_out():
                raise self._fenced(error) from error
            self._settle(batch, error)
        except KafkaEosError as error:
            # Answered or not: an error does not say that the commit did not happen (an earlier try of it may have been
            # applied).
            self._settle(batch, error)
        else:
            self._transaction.apply(Event.COMMIT_ANSWERED)
            self._entry = entry
            if following != self._identity:
                self._identity = following
                self._transaction.apply(Event.NEXT_EPOCH)
        self.milliseconds = {
            "offsets": (ending - started) * 1e3,
            "end": (time.perf_counter() - ending) * 1e3,
        }
        failpoint("ended", batch.batch_id)

    def note_incomplete(self, batch: MicroBatch) -> None:
        """Say in the ledger that `batch`, which is committed, lacks frames that came too late: it is refused from then
        on, until an operator settles it."""
        self.begin(batch)
        self.appending()
        self.commit(batch, incomplete=True)

    def abort(self) -> None:
        """Give the transaction up: nothing of it becomes visible and its epoch is dead. Does nothing if none is
        open."""
        if self._transaction.state not in _OPEN:
            return
        if self._given_up:
            self._identity = None
        elif not self._needs_fence():  # the fence aborts, too
            try:
                self._identity = self._coordinator.end(self.identity, commit=False)
            except ProducerFenced as error:
                if not self._timed_out():
                    raise self._fenced(error) from error
                self._identity = None
            except TransactionAborted:
                _log.info("the coordinator has given the transaction up already")
        self._initialise()

    # -- owning the transactional.id

    def _initialise(self) -> None:
        if self._transaction.state is State.FENCED:
            # Not even InitProducerId: it would abort what the newer owner has open.
            raise ProducerFenced(f"a newer owner of {self._options.transactional_id!r} exists", action="Stop this one.")
        try:
            if (self._identity is None or self._transaction.state in _OPEN) and self._needs_fence():
                self._fence()
            self._identity = self._coordinator.init_producer_id(self._identity)
        except ProducerFenced as error:
            raise self._fenced(error) from error
        self._given_up = False
        self._transaction.apply(Event.INITIALISED)
        self._told.clear()
        if self._decide is not None:
            self._entry = self._read_ledger()
        self._transaction.apply(Event.LEDGER_READ)

    def _needs_fence(self) -> bool:
        """Whether a straggler of an epoch that is over could still append."""
        return self._coordinator.transaction_version < 2 and not self._verified()

    def _verified(self) -> bool:
        """Whether brokers take appends only into partitions that the coordinator knows to be in the transaction."""
        if self._verifies is None:
            found = describe.coordinator_settings(self._cluster, self._options.transactional_id, (_VERIFICATION,))
            self._verifies = not isinstance(found, Unread) and found[_VERIFICATION] == "true"
        return self._verifies

    def _facts(self) -> TransactionFacts | Unread | None:
        return describe.transaction(self._cluster, self._options.transactional_id, now_ms=int(time.time() * 1e3))

    def _fence(self) -> None:
        """Let the last epoch's transaction span every partition that it may have been in; InitProducerId as a newcomer
        then aborts it, and shuts that epoch out of all of them."""
        facts = self._facts()
        if not isinstance(facts, TransactionFacts) or facts.producer_id < 0 or facts.epoch >= _LAST_EPOCH:
            # Nobody has used the id, or not for so long that nothing can be on its way. Or an abort has just shut out
            # the last epoch that a producer id has for transactions; nothing may be added under the one behind it.
            self._identity = None
            return
        last = ProducerIdentity(
            transactional_id=self._options.transactional_id, producer_id=facts.producer_id, epoch=facts.epoch
        )
        held = self._identity or last
        if (held.producer_id, held.epoch) != (last.producer_id, last.epoch) and not self._timed_out():
            raise self._overtaken(facts)
        topics = {*self._options.output_topics, *([self._options.topic] if self._options.topic else [])}
        if not topics and facts.state != "CompleteCommit":
            raise ConfigurationError(
                "outputTopics",
                f"is needed after an aborted transaction of {self._options.transactional_id!r}: these brokers may "
                "still take a late record of it into any topic",
                action="Name every topic that is written in outputTopics; or let the brokers verify partitions "
                f"({_VERIFICATION}=true, Kafka 3.6 or later).",
            )
        touched = [TopicPartition(name, n) for name in sorted(topics) for n in self._cluster.topic(name).partitions]
        if self._decide is not None:
            self._ledger.ensure()
            touched.append(self._ledger.at)
        try:
            self._coordinator.add_partitions(last, touched)
            if self._decide is not None:
                for group in {self._options.ledger_group, self._options.group_id}:
                    self._coordinator.add_offsets(last, group)
        except ProducerFenced:
            if self._identity is not None:
                raise
            _log.info("another newcomer was here first")
        self._identity = None

    def _overtaken(self, facts: TransactionFacts, why: str = "") -> ProducerFenced:
        return ProducerFenced(
            f"{self._options.transactional_id!r} belongs to producer {facts.producer_id}, epoch {facts.epoch} by now"
            f"{why}",
            action="Stop one of the two owners of this transactional.id; each query needs one of its own.",
        )

    def _timed_out(self) -> bool:
        """Whether it was the coordinator that gave our transaction up, for its timeout, and nobody took the id since.

        It fences the epoch then, and says no more (KAFKA-20785).
        """
        identity, took = self.identity, (self._clock() - self._appending_since) * 1e3
        if self._transaction.state not in _MAY_BE_OPEN or took < self._options.transaction_timeout_ms:
            return False
        with contextlib.suppress(KafkaEosError):  # then it is what the error says
            facts = self._facts()
            self._given_up = (
                isinstance(facts, TransactionFacts)
                and facts.state in _GIVEN_UP
                and (facts.producer_id, facts.epoch) == (identity.producer_id, identity.epoch + 1)
            )
        return self._given_up

    def _fenced(self, error: ProducerFenced) -> KafkaEosError:
        """What to raise for `error`: itself, or TransactionAborted where nobody but the coordinator fenced us."""
        if self._transaction.state in _OPEN and self._timed_out():
            return TransactionAborted(
                f"the coordinator gave the transaction up after kafka.transaction.timeout.ms "
                f"({self._options.transaction_timeout_ms}): {error.what}",
                action="The batch is written again; raise that timeout if it happens again.",
            )
        # Where the last transaction is over, the error speaks of the batch after it.
        is_over = self._transaction.state is State.COMMITTED
        error.committed = "nothing" if is_over else self._transaction.committed
        timeout, took = self._options.transaction_timeout_ms, self._clock() - self._appending_since
        if self._transaction.state in _MAY_BE_OPEN and took * 1e3 > timeout:
            # The coordinator fences whom it has given up, too, and does not say which it was.
            error.action = (
                f"This try took {took:.0f} s, longer than kafka.transaction.timeout.ms ({timeout}): if there is no "
                f"other owner, start the query again, with a longer timeout if need be. {error.action}".rstrip()
            )
        self._transaction.apply(Event.FENCED)
        return error

    # -- the ledger

    def _read_ledger(self) -> LedgerEntry | ledger.Unreadable | None:
        self._ledger.ensure()
        committed = self._ledger_group.fetch_all()
        self._note_told(
            self._ledger_group, functools.partial(self._ledger_group.fetch_all, require_stable=False), committed
        )
        pointer = committed.get(self._ledger.at)
        record = self._ledger.read(None if pointer is None else pointer.offset)
        self._position = record.position
        return ledger.newest(record.value, committed, self._ledger.at)

    def _note_told(self, group: GroupCoordinator, ask: Callable[[], object], told: object) -> None:
        self._told.append((group.group_id, ask, told))

    def _confirm_told(self) -> None:
        """Raise TransactionAborted if the verdict on this batch was founded on an outdated coordinator's word."""
        for group, ask, told in self._told:
            found = ask()  # without waiting: what is pending there is our own
            if found != told:
                raise TransactionAborted(
                    f"group {group!r} stands at {_shown(found)} and not at {_shown(told)}, as its coordinator "
                    "said before the batch: that one was outdated",
                    action="The batch is decided upon again.",
                )

    def _verdict(self, batch: MicroBatch) -> recovery.Verdict:
        if self._decide is None:
            return recovery.Write(reason="without txnAppId every write is a new one")
        own = self._cluster.cluster_id()
        clusters = self._clusters(batch)
        entry = self._entry
        committed: dict[TopicPartition, OffsetAndMetadata | None] = {}
        known = isinstance(entry, LedgerEntry) and (entry.query_id == batch.query_id or entry.sources is not None)
        if not known and (asked := _starts(batch, clusters, own)):
            ask = functools.partial(self._source_group.fetch_offsets, asked)
            committed = ask(require_stable=True)
            self._note_told(self._source_group, functools.partial(ask, require_stable=False), committed)
        mine = ledger.source_mark(self._options.transactional_id)
        return self._decide(
            entry,
            batch,
            {tp: None if at is None else at.offset for tp, at in committed.items()} if committed else None,
            clusters=clusters,
            own=own,
            strangers=ledger.strangers(committed, self._options.transactional_id),
            ours=any(at is not None and at.metadata == mine for at in committed.values()),
        )

    def _clusters(self, batch: MicroBatch) -> tuple[str, ...]:
        """The cluster id of each of the batch's sources."""
        sources = recovery.sources_of(batch)
        named, own = self._options.source_clusters, self._cluster.cluster_id()
        if len(named) <= 1:
            return ((named[0] if named else "") or own,) * len(sources)
        if len(named) != len(sources):
            raise ConfigurationError(
                "sourceClusters",
                f"names {len(named)} clusters, the query has {len(sources)} sources",
                action="Name one cluster for all, or one for each source in their order.",
            )
        return tuple(name or own for name in named)

    def _next_entry(self, batch: MicroBatch, incomplete: bool) -> LedgerEntry:
        last = self._entry
        return LedgerEntry(
            query_id=batch.query_id,
            batch_id=batch.batch_id,
            digest=batch.digest,
            serial=1 + (last.serial if isinstance(last, LedgerEntry) else 0),
            sources=tuple(
                None if source is None else SourceProgress(cluster=cluster, offsets=source.end)
                for cluster, source in zip(self._clusters(batch), recovery.sources_of(batch), strict=True)
            ),
            incomplete=incomplete,
        )

    def _send_entry(self, entry: LedgerEntry, batch: MicroBatch) -> None:
        """The ledger's record, its pointer and the source offsets, into the open transaction."""
        offsets = self._source_offsets(batch)
        if self._decide is None:
            if offsets:
                self._send_offsets(self._source_group, offsets)
            return
        pointer = {self._ledger.at: ledger.encode_pointer(entry, self._position)}
        value = ledger.encode_record(entry)
        with self._ledger.append(
            self._coordinator, self.identity, value, timestamp_ms=int(time.time() * 1e3)
        ) as record:
            self._send_offsets(self._ledger_group, pointer)
            if offsets:
                self._send_offsets(self._source_group, offsets)
            self._confirm_told()
            acknowledged = record.acknowledged()
        if self._told and not self._ledger.follows(self._position, acknowledged):
            raise TransactionAborted(
                f"topic {self._ledger.at.topic!r} has a later entry than its leader said before the batch: that one "
                "was outdated",
                action="The batch is decided upon again.",
            )
        self._told.clear()
        self._position = max(self._position, acknowledged.base_offset + 1)

    def _source_offsets(self, batch: MicroBatch) -> _Offsets:
        """What goes to the source's group: the offsets of the sink's own cluster, of whose topics alone it may have
        any."""
        mark = ledger.source_mark(self._options.transactional_id)
        own = self._cluster.cluster_id()
        ends: dict[TopicPartition, int] = {}
        for cluster, source in zip(self._clusters(batch), recovery.sources_of(batch), strict=True):
            for tp, offset in source.end.items() if source is not None and cluster == own else ():
                ends[tp] = min(offset, ends.get(tp, offset))
        return {tp: OffsetAndMetadata(offset=offset, metadata=mark) for tp, offset in ends.items()}

    def _send_offsets(self, group: GroupCoordinator, offsets: _Offsets) -> None:
        self._coordinator.add_offsets(self.identity, group.group_id)
        version = self._coordinator.transaction_version
        try:
            group.commit_in_transaction(self.identity, offsets, transaction_version=version)
        except UnknownTopic as error:
            left = {tp: at for tp, at in offsets.items() if self._exists(tp.topic)}
            if len(left) == len(offsets):
                raise
            gone = ", ".join(sorted({tp.topic for tp in offsets.keys() - left.keys()}))
            if self._options.fail_on_data_loss:
                error.action = (
                    f"The sink's cluster has no topic {gone}. If the source is another cluster, say which: "
                    "sourceClusters. If the topic was deleted, set failOnDataLoss=false on the sink, too: its offsets "
                    "are then left out."
                )
                raise
            _log.warning("the offsets of %s are left out, for the topic does not exist any more", gone)
            if left:
                group.commit_in_transaction(self.identity, left, transaction_version=version)

    def _exists(self, topic: str) -> bool:
        try:
            self._cluster.refresh([topic])
        except UnknownTopic:
            return False
        return True

    # -- a commit in doubt

    def _settle(self, batch: MicroBatch, error: KafkaEosError) -> None:
        """Find out what became of a commit that met `error`."""
        self._transaction.apply(Event.COMMIT_IN_DOUBT)
        try:
            if self._given_up:
                self._identity = None
            elif self._coordinator.transaction_version < 2:
                # TV1 would fence us for the transaction that may still be open. As a newcomer we are not, but would
                # take the id from a living successor.
                self._look_before_taking(error)
                self._identity = None
            self._initialise()
            verdict = self._verdict(batch)
        except ProducerFenced:
            raise
        except KafkaEosError as second:
            raise CommitOutcomeUnknown(
                f"the commit of batch {batch.batch_id} failed ({error.what}), and what became of it could not be found "
                f"out ({second.what})",
                action=second.action,
            ) from second
        if self._decide is None:
            raise CommitOutcomeUnknown(
                f"the commit was not answered ({error.what}), and without txnAppId no ledger entry tells",
                action="Look into the topic before you run the job again; with txnAppId a rerun is safe.",
            ) from error
        match verdict:
            case recovery.Write():
                raise TransactionAborted(
                    f"the commit of batch {batch.batch_id} failed ({error.what}); the ledger shows that it did not "
                    "happen",
                    action="The batch is written again.",
                ) from error
            case recovery.Refuse():
                raise _refused(verdict, committed="unknown") from error

    def _look_before_taking(self, error: KafkaEosError) -> None:
        """Raise ProducerFenced if somebody else owns the transactional.id by now."""
        facts, identity = self._facts(), self.identity
        if not isinstance(facts, TransactionFacts) or self._timed_out():
            return
        if (facts.producer_id, facts.epoch) != (identity.producer_id, identity.epoch):
            fenced = self._overtaken(facts, f" ({error.what})")
            fenced.committed = "unknown"
            self._transaction.apply(Event.FENCED)
            raise fenced


def _starts(batch: MicroBatch, clusters: Sequence[str], own: str) -> list[TopicPartition]:
    """The partitions of the sink's own cluster that the batch reads."""
    found = {
        tp
        for cluster, source in zip(clusters, recovery.sources_of(batch), strict=True)
        if source is not None and cluster == own
        for tp in source.start or {}
    }
    return sorted(found)


def _shown(told: object) -> str:
    assert isinstance(told, Mapping)
    return ", ".join(f"{tp}@{'none' if at is None else at.offset}" for tp, at in told.items()) or "nothing"


def _refused(verdict: recovery.Refuse, committed: Committed = "nothing") -> LedgerRefused:
    return LedgerRefused(f"{verdict.reason}. {verdict.meaning}", action=verdict.action, committed=committed)
