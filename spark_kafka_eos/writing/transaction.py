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
- TV1, where brokers do not verify which partitions are in a transaction: the fence (writing.fence) comes before a new
  epoch. Whoever was overtaken is told so by the first of its requests.
- What the ledger's verdict was founded on is confirmed before EndTxn (writing.ledger_keeper).
- A commit whose outcome is unknown is settled by InitProducerId, which waits for the coordinator to finish the
  transaction, and then the ledger, which tells. In TV1 that would take the id from whoever owns it by now, so the
  coordinator is asked first who that is.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import time
from collections.abc import Callable

from spark_kafka_eos.broker import describe
from spark_kafka_eos.broker.cluster import Cluster
from spark_kafka_eos.broker.transactions import TransactionCoordinator
from spark_kafka_eos.core import ledger, recovery
from spark_kafka_eos.core.preflight import TransactionFacts, Unread
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
from spark_kafka_eos.model import LedgerEntry, MicroBatch, ProducerIdentity
from spark_kafka_eos.options import SinkOptions
from spark_kafka_eos.writing.fence import Fence
from spark_kafka_eos.writing.ledger_keeper import Decide, LedgerKeeper

_log = logging.getLogger(__name__)

_OPEN = (State.APPENDING, State.APPENDED, State.OFFSETS_SENT)
_MAY_BE_OPEN = (*_OPEN, State.COMMITTING, State.UNKNOWN)
_GIVEN_UP = ("PrepareAbort", "CompleteAbort")


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
        self._ledger = LedgerKeeper(options, cluster, self._coordinator)
        self._fence = Fence(options, cluster, self._coordinator, None if decide is None else self._ledger.topic)
        self._identity: ProducerIdentity | None = None
        self._given_up = False  # by the coordinator: the epoch is dead, and EndTxn would be answered "fenced"
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
        entry: LedgerEntry | None = None
        try:
            if self._decide is None:
                self._ledger.send_source_offsets(self.identity, batch)
            else:
                entry = self._ledger.send(self.identity, batch, incomplete=incomplete)
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
            self._resolve_doubt(batch, error)
        except KafkaEosError as error:
            # Answered or not: an error does not say that the commit did not happen (an earlier try of it may have been
            # applied).
            self._resolve_doubt(batch, error)
        else:
            self._transaction.apply(Event.COMMIT_ANSWERED)
            if entry is not None:
                self._ledger.keep(entry)
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
        elif not self._fence.needed():  # it aborts, too
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
            if (self._identity is None or self._transaction.state in _OPEN) and self._fence.needed():
                self._shut_stragglers_out()
            self._identity = self._coordinator.init_producer_id(self._identity)
        except ProducerFenced as error:
            raise self._fenced(error) from error
        self._given_up = False
        self._transaction.apply(Event.INITIALISED)
        if self._decide is not None:
            self._ledger.read()
        self._transaction.apply(Event.LEDGER_READ)

    def _facts(self) -> TransactionFacts | Unread | None:
        return describe.transaction(self._cluster, self._options.transactional_id, now_ms=int(time.time() * 1e3))

    def _shut_stragglers_out(self) -> None:
        """Raise the fence; the InitProducerId that follows is a newcomer's."""
        facts = self._facts()
        last = self._fence.last_owner(facts)
        if last is not None and isinstance(facts, TransactionFacts):
            held = self._identity or last
            if (held.producer_id, held.epoch) != (last.producer_id, last.epoch) and not self._timed_out():
                raise self._overtaken(facts)
            try:
                self._fence.span(last, was_committed=facts.state == "CompleteCommit")
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
        said = error.replaced(committed="nothing" if is_over else self._transaction.committed)
        timeout, took = self._options.transaction_timeout_ms, self._clock() - self._appending_since
        if self._transaction.state in _MAY_BE_OPEN and took * 1e3 > timeout:
            # The coordinator fences whom it has given up, too, and does not say which it was.
            action = (
                f"This try took {took:.0f} s, longer than kafka.transaction.timeout.ms ({timeout}): if there is no "
                f"other owner, start the query again, with a longer timeout if need be. {error.action}".rstrip()
            )
            said = said.replaced(action=action)
        self._transaction.apply(Event.FENCED)
        return said

    def _verdict(self, batch: MicroBatch) -> recovery.Verdict:
        if self._decide is None:
            return recovery.Write(reason="without txnAppId every write is a new one")
        return self._ledger.verdict(self._decide, batch)

    # -- a commit in doubt

    def _resolve_doubt(self, batch: MicroBatch, error: KafkaEosError) -> None:
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
            self._transaction.apply(Event.FENCED)
            raise self._overtaken(facts, f" ({error.what})").replaced(committed="unknown")


def _refused(verdict: recovery.Refuse, committed: Committed = "nothing") -> LedgerRefused:
    return LedgerRefused(f"{verdict.reason}. {verdict.meaning}", action=verdict.action, committed=committed)
