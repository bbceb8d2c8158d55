"""The steps of a shared transaction, as the driver takes them: begin, let others append, commit or abort.

    begin(batch)      InitProducerId where a new epoch is needed, then the ledger: write, skip or LedgerRefused
    identity          handed to every process that appends (eos.appending)
    commit(batch)     source offsets and ledger entry into the transaction, then EndTxn(commit)
    abort()           a new epoch; what the old one appended is aborted and its stragglers are fenced

Not obvious:
- An abort is EndTxn(abort), then a new epoch. InitProducerId alone would abort too, but not harmlessly: sent by an
  owner that was overtaken, it aborts what the newer one has open before it says so. EndTxn(abort) only tells it to
  stop. And a late one can't end a later transaction (KAFKA-17754), since that has another epoch.
- TV2 (KIP-890): EndTxn returns the next epoch, so a batch needs neither InitProducerId nor a look at the ledger while
  this process owns the transactional.id: whoever takes it over fences the epoch. TV1: InitProducerId for every batch,
  so that an epoch never serves two batches.
- A group's coordinator that was paused tells what it had until it hears of its successor. But only the real one takes
  offsets into a transaction: so what was founded on a group's offsets is confirmed, before EndTxn, by the broker that
  took this batch's.
- A commit whose outcome is unknown is settled by InitProducerId, which waits for the coordinator to finish the
  transaction, and then the ledger, which tells.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Iterable, Mapping

from spark_kafka_eos.broker.cluster import Cluster
from spark_kafka_eos.broker.groups import GroupCoordinator
from spark_kafka_eos.broker.transactions import TransactionCoordinator
from spark_kafka_eos.core import ledger, recovery
from spark_kafka_eos.core.transaction import Event, State, Transaction
from spark_kafka_eos.errors import (
    CommitOutcomeUnknown,
    Committed,
    KafkaEosError,
    LedgerRefused,
    ProducerFenced,
    TransactionAborted,
)
from spark_kafka_eos.failpoints import failpoint
from spark_kafka_eos.model import (
    LedgerEntry,
    MicroBatch,
    OffsetAndMetadata,
    ProducerIdentity,
    TopicPartition,
)
from spark_kafka_eos.options import SinkOptions

_log = logging.getLogger(__name__)

_OPEN = (State.APPENDING, State.APPENDED, State.OFFSETS_SENT)
_MAY_BE_OPEN = (*_OPEN, State.COMMITTING, State.UNKNOWN)

_Told = Mapping[TopicPartition, OffsetAndMetadata | None]
Decide = Callable[[LedgerEntry | None, MicroBatch, recovery.CommittedOffsets | None], recovery.Verdict]


def decide_micro_batch(options: SinkOptions) -> Decide:
    """The verdict on a streaming query's micro-batches."""
    return functools.partial(recovery.decide, take_over=options.take_over_query)


def decide_batch_write(
    entry: LedgerEntry | None, batch: MicroBatch, committed: recovery.CommittedOffsets | None
) -> recovery.Verdict:
    """The verdict on a batch write of `txnAppId`, which has no offsets to look at."""
    del committed
    return recovery.decide_batch_write(entry, batch)


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
        self._ledger_group = GroupCoordinator(cluster, options.ledger_group)
        self._source_group = GroupCoordinator(cluster, options.group_id)
        self._ledger_at = TopicPartition(options.ledger_topic, 0)
        self._identity: ProducerIdentity | None = None
        self._entry: LedgerEntry | None = None
        self._told: list[tuple[GroupCoordinator, _Told]] = []  # what verdicts are founded on and nobody confirmed yet
        self.milliseconds: dict[str, float] = {}

    @property
    def identity(self) -> ProducerIdentity:
        """What the appending processes need; only between `begin` and `commit` or `abort`."""
        assert self._identity is not None, "begin() comes first"
        return self._identity

    def begin(self, batch: MicroBatch) -> recovery.Write | recovery.Skip:
        """Own a fresh epoch and decide on `batch`. Raises LedgerRefused where going on could lose or repeat data."""
        failpoint("begun", batch.batch_id)
        if self._transaction.state is not State.READY:
            self._initialise()
        match self._verdict(batch):
            case recovery.Refuse() as refusal:
                raise _refused(refusal)
            case verdict:
                failpoint("initialised", batch.batch_id)
                return verdict

    def appending(self) -> None:
        """Note that records may enter the transaction from here on."""
        self._transaction.apply(Event.APPEND)
        self._appending_since = self._clock()

    def commit(self, batch: MicroBatch) -> None:
        """Make everything appended visible, with the batch's source offsets and ledger entry, or nothing of it.

        To be called only when the barrier found every append acknowledged exactly once. Raises TransactionAborted where
        the transaction is void and the batch may be tried again, CommitOutcomeUnknown where nobody answers.
        """
        self._transaction.apply(Event.ALL_APPENDED)
        failpoint("all appended", batch.batch_id)
        started = time.perf_counter()
        entry = LedgerEntry(query_id=batch.query_id, batch_id=batch.batch_id, digest=batch.digest)
        mark = ledger.source_mark(self._options.transactional_id)
        offsets = {tp: OffsetAndMetadata(offset=offset, metadata=mark) for tp, offset in batch.end.items()}
        try:
            if self._decide is not None:
                self._send_offsets(self._ledger_group, {self._ledger_at: ledger.encode(entry)})
            if offsets:
                self._send_offsets(self._source_group, offsets)
            self._confirm_told()
        except ProducerFenced as error:
            raise self._fenced(error) from error
        self._transaction.apply(Event.OFFSETS_SENT)
        failpoint("offsets committed", batch.batch_id)
        ending = time.perf_counter()
        self._transaction.apply(Event.COMMIT)
        try:
            following = self._coordinator.end(self.identity, commit=True)
        except ProducerFenced as error:
            raise self._fenced(error) from error
        except KafkaEosError as error:
            # Answered or not: an error does not say that the commit did not happen (an earlier try of it may have been
            # applied).
            self._transaction.apply(Event.COMMIT_IN_DOUBT)
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

    def abort(self) -> None:
        """Give the transaction up: nothing of it becomes visible and its epoch is dead. Does nothing if none is
        open."""
        if self._transaction.state not in _OPEN:
            return
        try:
            self._identity = self._coordinator.end(self.identity, commit=False)
        except ProducerFenced as error:
            raise self._fenced(error) from error
        except TransactionAborted:
            _log.info("the coordinator has given the transaction up already")
        self._initialise()

    def _initialise(self) -> None:
        if self._transaction.state is State.FENCED:
            # Not even InitProducerId: it would abort what the newer owner has open.
            raise ProducerFenced(f"a newer owner of {self._options.transactional_id!r} exists", action="Stop this one.")
        try:
            self._identity = self._coordinator.init_producer_id(self._identity)
        except ProducerFenced as error:
            raise self._fenced(error) from error
        self._transaction.apply(Event.INITIALISED)
        self._told.clear()
        if self._decide is not None:
            self._entry = self._read_ledger()
        self._transaction.apply(Event.LEDGER_READ)

    def _fenced(self, error: ProducerFenced) -> ProducerFenced:
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

    def _read_ledger(self) -> LedgerEntry | None:
        found = self._ask(self._ledger_group, [self._ledger_at])[self._ledger_at]
        return None if found is None else ledger.decode(found)

    def _ask(self, group: GroupCoordinator, partitions: Iterable[TopicPartition]) -> _Told:
        told = group.fetch_offsets(partitions, require_stable=True)
        self._told.append((group, told))
        return told

    def _confirm_told(self) -> None:
        """Raise TransactionAborted if the verdict on this batch was founded on an outdated coordinator's word."""
        for group, told in self._told:
            found = group.fetch_offsets(told, require_stable=False)  # what is pending there is our own
            if found != told:
                raise TransactionAborted(
                    f"group {group.group_id!r} stands at {_shown(found)} and not at {_shown(told)}, as its coordinator "
                    "said before the batch: that one was outdated",
                    action="The batch is decided upon again.",
                )
        self._told.clear()

    def _verdict(self, batch: MicroBatch) -> recovery.Verdict:
        if self._decide is None:
            return recovery.Write(reason="without txnAppId every write is a new one")
        committed: Mapping[TopicPartition, int | None] | None = None
        if batch.start and (self._entry is None or self._entry.query_id != batch.query_id):
            found = self._ask(self._source_group, sorted(batch.start))
            committed = {tp: None if at is None else at.offset for tp, at in found.items()}
        return self._decide(self._entry, batch, committed)

    def _send_offsets(self, group: GroupCoordinator, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self._coordinator.add_offsets(self.identity, group.group_id)
        version = self._coordinator.transaction_version
        group.commit_in_transaction(self.identity, offsets, transaction_version=version)

    def _settle(self, batch: MicroBatch, error: KafkaEosError) -> None:
        """Find out what became of a commit that met `error`."""
        if self._coordinator.transaction_version < 2:
            # TV1 would fence us for the transaction that may still be open. As a newcomer we are not, and the ledger
            # tells us if we are overtaken.
            self._identity = None
        try:
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


def _shown(told: _Told) -> str:
    return ", ".join(f"{tp}@{'none' if at is None else at.offset}" for tp, at in told.items())


def _refused(verdict: recovery.Refuse, committed: Committed = "nothing") -> LedgerRefused:
    return LedgerRefused(f"{verdict.reason}. {verdict.meaning}", action=verdict.action, committed=committed)
