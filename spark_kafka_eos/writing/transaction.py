"""The driver's steps of a shared transaction: begin, let other processes append, commit or abort.

    begin(batch)      InitProducerId if a new epoch is needed, then the ledger: write, skip or LedgerRefused
    identity          for every process that appends (writing.append)
    commit(batch)     adds the ledger's record, its pointer and the source offsets, then EndTxn(commit)
    abort()           a new epoch; the records of the old one are aborted and its stragglers are fenced

Not obvious:
- An abort is EndTxn(abort), then a new epoch. InitProducerId alone would also abort, but a fenced process that sends it
  aborts the newer producer's open transaction before it learns that it is fenced. With EndTxn(abort), it only learns
  that. And a delayed EndTxn cannot end a later transaction (KAFKA-17754), because that one has another epoch.
- TV2 (KIP-890): EndTxn returns the next epoch. While this process owns the transactional.id, a batch needs neither
  InitProducerId nor the ledger, because a new owner fences the epoch. TV1: InitProducerId for every batch, so that an
  epoch is never used for two batches.
- TV1 with brokers that do not verify which partitions are in a transaction: the fence (writing.fence) precedes a new
  epoch. A process that was fenced gets an error from the first of its requests.
- What the ledger's verdict is based on is confirmed before EndTxn (ledger.keeper).
- A commit with an unknown outcome is settled by InitProducerId, which waits until the coordinator has finished the
  transaction, and then by the ledger. In TV1, InitProducerId would take the transactional.id from a newer producer, so
  the coordinator is asked for the owner first.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator

from spark_kafka_eos.broker import describe
from spark_kafka_eos.broker.cluster import Cluster
from spark_kafka_eos.broker.recorder import phase
from spark_kafka_eos.broker.transactions import TransactionCoordinator
from spark_kafka_eos.core.preflight import Unread
from spark_kafka_eos.core.transaction import Event, State, Transaction
from spark_kafka_eos.core.transactions import TransactionFacts
from spark_kafka_eos.errors import (
    BrokerUnreachable,
    CommitOutcomeUnknown,
    Committed,
    KafkaEosError,
    LedgerRefused,
    ProducerFenced,
    TransactionAborted,
)
from spark_kafka_eos.failpoints import failpoint
from spark_kafka_eos.ledger import verdicts
from spark_kafka_eos.ledger.decide import Decide
from spark_kafka_eos.ledger.entry import LedgerEntry, Written
from spark_kafka_eos.ledger.keeper import LedgerKeeper
from spark_kafka_eos.model import MicroBatch, ProducerIdentity
from spark_kafka_eos.options import SinkOptions
from spark_kafka_eos.writing.fence import Fence
from spark_kafka_eos.writing.report import Appended

_log = logging.getLogger(__name__)

_OPEN = (State.APPENDING, State.APPENDED, State.OFFSETS_SENT)
_MAY_BE_OPEN = (*_OPEN, State.COMMITTING, State.UNKNOWN)
_GIVEN_UP = ("PrepareAbort", "CompleteAbort")


class SharedTransaction:
    """One transactional.id, which this process owns from `begin` on. Not thread-safe.

    Every method may raise ProducerFenced (a newer producer exists: stop), BrokerUnreachable and BrokerError.
    """

    def __init__(
        self,
        options: SinkOptions,
        cluster: Cluster,
        decide: Decide | None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`decide` maps ledger entry, batch and committed offsets to a verdict. If it is None, there is no ledger, and
        every batch is written. `clock` is for tests.
        """
        self._options = options
        self._cluster = cluster
        self._decide = decide
        self._clock = clock
        self._appending_since = clock()
        self._transaction = Transaction()
        self._coordinator = TransactionCoordinator(cluster, options.transactional_id, options.transaction_timeout_ms)
        self._ledger = LedgerKeeper(options, cluster, self._coordinator)
        ledger_topic = None if decide is None else self._ledger.topic
        self._fence = Fence(options, cluster, self._coordinator, ledger_topic)
        self._identity: ProducerIdentity | None = None
        self._given_up = False  # the coordinator aborted: the epoch is invalid, and EndTxn would fail with "fenced"

    @property
    def identity(self) -> ProducerIdentity:
        """What appending processes need. Only valid between `begin` and `commit` or `abort`."""
        assert self._identity is not None, "begin() comes first"
        return self._identity

    def begin(self, batch: MicroBatch) -> verdicts.Write | verdicts.Skip:
        """Get a new epoch and decide on `batch`. Raises LedgerRefused if going on could lose or repeat data."""
        failpoint("begun", batch.batch_id)
        known = self._transaction.state is State.READY
        if not known:
            self._initialise()
        verdict = self._verdict(batch)
        if known and not isinstance(verdict, verdicts.Write):
            # Unusual, for example a query restarted with the same writer: another process may have written in between.
            self._initialise()
            verdict = self._verdict(batch)
        match verdict:
            case verdicts.Refuse() as refusal:
                raise self._refused(refusal)
            case _:
                if verdict.reason.startswith("resolve="):
                    _log.warning("batch %d of query %s: %s", batch.batch_id, batch.query_id, verdict.reason)
                failpoint("initialised", batch.batch_id)
                return verdict

    def appending(self) -> None:
        """Record that the transaction may contain records from now on."""
        self._transaction.apply(Event.APPEND)
        self._appending_since = self._clock()

    def append(self, write: Callable[[ProducerIdentity], Appended]) -> Appended:
        """Have `write` append to the transaction. Raises TransactionAborted if it lasts longer than its timeout."""
        self.appending()
        with self._explaining():
            return write(self.identity)

    def commit(self, batch: MicroBatch, *, written: Written | None = None, incomplete: bool = False) -> None:
        """Commit everything that was appended, with the batch's source offsets and ledger entry, or nothing.

        Call it only if the barrier found that every append was acknowledged exactly once. `written` is what they add
        up to, None if unknown. `incomplete`: see LedgerEntry. Raises TransactionAborted if the transaction was aborted
        and the batch may be retried, CommitOutcomeUnknown if no broker answers.
        """
        self._transaction.apply(Event.ALL_APPENDED)
        failpoint("all appended", batch.batch_id)
        if self._decide is None and written is not None and written.records == 0:
            return  # nothing is open, so EndTxn would fail
        entry: LedgerEntry | None = None
        with phase("offsets"), self._explaining():
            if self._decide is None:
                self._ledger.send_source_offsets(self.identity, batch)
            else:
                entry = self._ledger.send(self.identity, batch, incomplete=incomplete, written=written)
        self._transaction.apply(Event.OFFSETS_SENT)
        failpoint("offsets committed", batch.batch_id)
        self._transaction.apply(Event.COMMIT)
        with phase("end"):
            self._end(batch, entry)
        failpoint("ended", batch.batch_id)

    def _end(self, batch: MicroBatch, entry: LedgerEntry | None) -> None:
        """Send EndTxn(commit), and settle its outcome if it is in doubt."""
        try:
            following = self._coordinator.end(self.identity, commit=True)
        except ProducerFenced as error:
            if not self._timed_out():
                raise self._fenced(error) from error
            self._resolve_doubt(batch, self._after_timeout(error))
        except KafkaEosError as error:
            # Even an error response does not mean that the commit failed: an earlier attempt may have been applied.
            silent = isinstance(error.__cause__ or error, BrokerUnreachable)
            self._resolve_doubt(batch, self._after_timeout(error) if not silent and self._timed_out() else error)
        else:
            self._transaction.apply(Event.COMMIT_ANSWERED)
            if entry is not None:
                self._ledger.keep(entry)
            if following != self._identity:
                self._identity = following
                self._transaction.apply(Event.NEXT_EPOCH)

    def note_incomplete(self, batch: MicroBatch) -> None:
        """Record in the ledger that the committed `batch` lacks DataFrames that came too late. From then on it is
        refused, until an operator resolves that.
        """
        self.begin(batch)
        self.appending()
        self.commit(batch, incomplete=True)

    def abort(self) -> None:
        """Abort the transaction: none of it becomes visible, and its epoch is invalid. Does nothing if none is open."""
        if self._transaction.state not in _OPEN:
            return
        if self._given_up:
            self._identity = None
        elif not self._fence.needed():  # the fence also aborts
            try:
                self._identity = self._coordinator.end(self.identity, commit=False)
            except ProducerFenced as error:
                if not self._timed_out():
                    raise self._fenced(error) from error
                self._identity = None
            except TransactionAborted:
                _log.info("the coordinator has already aborted the transaction")
        self._initialise()

    # -- owning the transactional.id

    def _initialise(self) -> None:
        if self._transaction.state is State.FENCED:
            # Do not even send InitProducerId: it would abort the open transaction of the newer producer.
            raise ProducerFenced(
                f"a newer producer took over transactional.id {self._options.transactional_id!r}",
                action="Stop this query.",
            )
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
        """Apply the fence. The next InitProducerId is that of a new producer."""
        facts = self._facts()
        if isinstance(facts, TransactionFacts) and (last := self._fence.last_owner(facts)) is not None:
            held = self._identity or last
            if (held.producer_id, held.epoch) != (last.producer_id, last.epoch) and not self._timed_out():
                raise self._overtaken(facts)
            try:
                self._fence.span(last, was_committed=facts.state == "CompleteCommit")
            except ProducerFenced:
                if self._identity is not None:
                    raise
                _log.info("another new producer has fenced the old epoch already")
        self._identity = None

    def _overtaken(self, facts: TransactionFacts, why: str = "") -> ProducerFenced:
        return ProducerFenced(
            f"transactional.id {self._options.transactional_id!r} now belongs to producer {facts.producer_id}, epoch "
            f"{facts.epoch}{why}",
            action="Stop one of the two queries with this transactional.id; each query needs its own.",
        )

    def _timed_out(self) -> bool:
        """Whether the coordinator aborted our transaction because of its timeout, and no other producer took over
        since.

        The coordinator then fences the epoch, and the error does not say why (KAFKA-20785).
        """
        identity, took = self.identity, (self._clock() - self._appending_since) * 1e3
        if self._transaction.state not in _MAY_BE_OPEN or took < self._options.transaction_timeout_ms:
            return False
        with contextlib.suppress(KafkaEosError):  # then the original error stands
            facts = self._facts()
            self._given_up = (
                isinstance(facts, TransactionFacts)
                and facts.state in _GIVEN_UP
                and (facts.producer_id, facts.epoch) == (identity.producer_id, identity.epoch + 1)
            )
        return self._given_up

    @contextlib.contextmanager
    def _explaining(self) -> Iterator[None]:
        """Ask why the open transaction is over, if a broker says that it is. It does not say why."""
        try:
            yield
        except ProducerFenced as error:
            raise self._fenced(error) from error
        except TransactionAborted as error:
            if self._timed_out():
                raise self._after_timeout(error) from error
            raise

    def _after_timeout(self, error: KafkaEosError) -> TransactionAborted:
        """What to raise or say for `error` if it came because of the timeout: the same wherever it is noticed."""
        return TransactionAborted(
            f"the coordinator aborted the transaction after kafka.transaction.timeout.ms "
            f"({self._options.transaction_timeout_ms}): {error.what}",
            action="The batch is written again; increase the timeout if this happens repeatedly.",
        )

    def _fenced(self, error: ProducerFenced) -> KafkaEosError:
        """What to raise for `error`: itself, or TransactionAborted if only the coordinator fenced us."""
        if self._transaction.state in _OPEN and self._timed_out():
            return self._after_timeout(error)
        # If the last transaction has ended, the error refers to the next batch.
        is_over = self._transaction.state is State.COMMITTED
        said = error.replaced(committed="nothing" if is_over else self._transaction.committed)
        timeout, took = self._options.transaction_timeout_ms, self._clock() - self._appending_since
        if self._transaction.state in _MAY_BE_OPEN and took * 1e3 > timeout:
            # The coordinator also fences after a timeout, and the error does not tell the two apart.
            action = (
                f"This attempt took {took:.0f} s, longer than kafka.transaction.timeout.ms ({timeout}): if no other "
                f"query uses this transactional.id, restart the query, if necessary with a longer timeout. "
                f"{error.action}".rstrip()
            )
            said = said.replaced(action=action)
        self._transaction.apply(Event.FENCED)
        return said

    def _verdict(self, batch: MicroBatch) -> verdicts.Verdict:
        if self._decide is None:
            return verdicts.Write(reason="without txnAppId, every write is new")
        return self._ledger.verdict(self._decide, batch)

    # -- a commit with an unknown outcome

    def _resolve_doubt(self, batch: MicroBatch, error: KafkaEosError) -> None:
        """Find out the outcome of a commit that failed with `error`."""
        self._transaction.apply(Event.COMMIT_IN_DOUBT)
        try:
            if self._given_up:
                self._identity = None
            elif self._coordinator.transaction_version < 2:
                # TV1 would fence us because the transaction may still be open. It does not fence a new producer, which
                # would, however, take the id from a live successor.
                self._look_before_taking(error)
                self._identity = None
            self._initialise()
            verdict = self._verdict(batch)
        except ProducerFenced:
            raise
        except KafkaEosError as second:
            raise CommitOutcomeUnknown(
                f"the commit of batch {batch.batch_id} failed ({error.what}), and its outcome could not be determined "
                f"({second.what})",
                action=second.action,
            ) from second
        if self._decide is None:
            raise CommitOutcomeUnknown(
                f"the commit request failed ({error.what}), and without txnAppId there is no ledger entry to check",
                action="Check the topic before you run the job again; with txnAppId, a rerun is safe.",
            ) from error
        match verdict:
            case verdicts.Write():
                raise TransactionAborted(
                    f"the commit of batch {batch.batch_id} failed ({error.what}); according to the ledger, the batch "
                    "is not committed",
                    action="The batch is written again.",
                ) from error
            case verdicts.Refuse():
                raise self._refused(verdict, committed="unknown") from error

    def _refused(self, refusal: verdicts.Refuse, committed: Committed = "nothing") -> LedgerRefused:
        remedy = refusal.remedy
        if refusal.ways:
            remedy += f" `kafka-eos query resolve {self._options.transactional_id}` shows both sides and the choices."
        return LedgerRefused(f"{refusal.reason}. {refusal.meaning}", action=remedy, committed=committed)

    def _look_before_taking(self, error: KafkaEosError) -> None:
        """Raise ProducerFenced if another producer owns the transactional.id now."""
        facts, identity = self._facts(), self.identity
        if not isinstance(facts, TransactionFacts) or self._timed_out():
            return
        if (facts.producer_id, facts.epoch) != (identity.producer_id, identity.epoch):
            self._transaction.apply(Event.FENCED)
            raise self._overtaken(facts, f" ({error.what})").replaced(committed="unknown")
