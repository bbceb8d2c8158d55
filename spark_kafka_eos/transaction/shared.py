"""The driver's steps of a shared transaction: begin, let other processes append, commit or abort.

    begin(batch)      look: the owner of the transactional.id and the ledger decide: write, skip, LedgerRefused, or
                      ProducerFenced; only to write, InitProducerId if a new epoch is needed, then the ledger again
    identity          for every process that appends (appending.append)
    commit(batch)     adds the ledger's record, its pointer and the source offsets, then EndTxn(commit)
    abort()           a new epoch; the records of the old one are aborted and its stragglers are fenced

Not obvious:
- Look before you take. InitProducerId aborts the open transaction of whoever owns the id and fences it. A driver that
  comes back late, after another one took over, must end by itself, without the live one noticing (transaction.owner).
- The look waits for no open transaction: that of a crashed owner must not delay a restart until its timeout. So the
  ledger is read again after InitProducerId, when nothing can be committed any more.
- An abort is EndTxn(abort), then a new epoch. InitProducerId alone would also abort, but a fenced process that sends it
  aborts the newer producer's open transaction before it learns that it is fenced. With EndTxn(abort), it only learns
  that. And a delayed EndTxn cannot end a later transaction (KAFKA-17754), because that one has another epoch.
- TV2 (KIP-890): EndTxn returns the next epoch. While this process owns the transactional.id, a batch needs neither
  InitProducerId nor the ledger, because a new owner fences the epoch. TV1: InitProducerId for every batch, so that an
  epoch is never used for two batches.
- What the ledger's verdict is based on is confirmed before EndTxn (ledger.keeper). So are the topics' ids, and once
  more after it (transaction.outputs). What a topic that was deleted in between took along makes the batch incomplete:
  the ledger says so, and refuses the next start. The batch must not be written again, as other topics have it.
- A commit with an unknown outcome is settled by the coordinator if it shows what the commit left behind. Otherwise by
  InitProducerId, which waits until the coordinator has finished the transaction, and then by the ledger.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from spark_kafka_eos.appending.report import Appended, AppendedTopic
from spark_kafka_eos.errors import (
    BrokerError,
    BrokerUnreachable,
    CommitOutcomeUnknown,
    Committed,
    IllegalTransactionState,
    KafkaEosError,
    LedgerRefused,
    OutputLost,
    ProducerFenced,
    TransactionAborted,
)
from spark_kafka_eos.failpoints import failpoint
from spark_kafka_eos.kafka.logs import logger
from spark_kafka_eos.kafka.producer import ProducerEpoch, ProducerIdentity
from spark_kafka_eos.kafka.protocol import describe
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.codes import ErrorCode
from spark_kafka_eos.kafka.protocol.facts import TransactionFacts, Unavailable
from spark_kafka_eos.kafka.protocol.recorder import phase
from spark_kafka_eos.kafka.protocol.topics import deleted
from spark_kafka_eos.ledger import verdicts
from spark_kafka_eos.ledger.decide import Decide
from spark_kafka_eos.ledger.entry import LedgerEntry, Written
from spark_kafka_eos.ledger.keeper import CommittedEntry
from spark_kafka_eos.ledger.refusal import Refuse, diagnosis_command
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.options import SinkOptions
from spark_kafka_eos.transaction import outputs
from spark_kafka_eos.transaction.attempt import OPEN, Event, State
from spark_kafka_eos.transaction.hanging import HangingTransactions
from spark_kafka_eos.transaction.hold import HoldEvent, HoldState
from spark_kafka_eos.transaction.owner import Owner, OwnerFacts, OwnerLook, is_same
from spark_kafka_eos.transaction.recovery import Recovery

_log = logger(__name__)

# Of a second call in foreachBatch, whose rows can no longer be added.
WRITE_ONCE = (
    "This call's DataFrames are not written. Write all DataFrames of a batch in ONE "
    "`with writer.transaction(batch_df, batch_id)` block."
)


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
        planned_under: ProducerEpoch | None = None,
        unsure: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`decide` maps ledger entry, batch and committed offsets to a verdict. If it is None, there is no ledger, and
        every batch is written. `planned_under` is the owner when the write was planned, None if that is not known.
        `unsure`: requests of this process may have raised the epoch since its last commit. `clock` is for tests.
        """
        self.options, self.cluster = options, cluster
        self._decide, self._clock = decide, clock
        self._outputs: Mapping[str, AppendedTopic] = {}  # of the open transaction
        self._start(planned_under=planned_under, in_doubt=unsure)

    def _start(self, *, planned_under: ProducerEpoch | None = None, in_doubt: bool) -> None:
        options, cluster, has_ledger = self.options, self.cluster, self._decide is not None
        hanging = HangingTransactions(options, cluster)
        self.owner = Owner(
            options,
            cluster,
            has_ledger=has_ledger,
            planned_under=planned_under,
            in_doubt=in_doubt,
            note=hanging.note,
            clock=self._clock,
        )
        self._recovery = Recovery(options, cluster, self.owner, hanging, has_ledger=has_ledger)

    @property
    def identity(self) -> ProducerIdentity:
        """What appending processes need. Only valid between `begin` and `commit` or `abort`."""
        return self.owner.identity

    def begin(self, batch: MicroBatch) -> verdicts.Write | verdicts.Skip:
        """Decide on `batch`, and to write it, get a new epoch. Raises LedgerRefused if going on could lose or repeat
        data, ProducerFenced if another driver has taken over.
        """
        failpoint("begun", batch.batch_id)
        self.owner.require_not_lost()
        try:
            verdict = self._owned(batch)
        except BrokerError as error:
            if error.code != ErrorCode.UNSTABLE_OFFSET_COMMIT or self.owner.hold.identity is None:
                raise
            self._recovery.end_pending_offsets(error)
            verdict = self._owned(batch)
        if isinstance(verdict, verdicts.Write) and self.end_hanging():
            verdict = self._verdict(batch)
        match verdict:
            case Refuse() as refusal:
                raise self.refused(refusal)
            case verdicts.Repeat(reason=reason):
                raise IllegalTransactionState(
                    f"a second call for batch {batch.batch_id} of query {batch.query_id} in the same run: {reason}",
                    committed="everything",
                    action=WRITE_ONCE,
                )
            case verdicts.Skip():
                self._warn_if_resolved(verdict, batch)
                return verdict
            case verdicts.Write():
                self._warn_if_resolved(verdict, batch)
                failpoint("initialised", batch.batch_id)
                return verdict

    def _owned(self, batch: MicroBatch) -> verdicts.Verdict:
        """The verdict on `batch`; to write it, with the id in a new epoch."""
        verdict = self._verdict(batch) if self.owner.holds else None
        if isinstance(verdict, verdicts.Write):
            return verdict if self.owner.renew() == "known" else self._verdict(batch)
        # Nothing is held. Or, which is unusual, another process may have written in between: for example, a query was
        # restarted with the same writer.
        return self._take(batch)

    @staticmethod
    def _warn_if_resolved(verdict: verdicts.Write | verdicts.Skip, batch: MicroBatch) -> None:
        if verdict.reason.startswith("resolve="):
            _log.warning("batch %d of query %s: %s", batch.batch_id, batch.query_id, verdict.reason)

    def end_hanging(self) -> bool:
        """End what hangs of earlier transactions of this id; whether there was anything."""
        return self._recovery.end()

    def start_over(self) -> None:
        """After an error: unless this process knows who owns the id, forget what it knew. Then its requests may have
        raised the epoch.
        """
        hold, state = self.owner.hold, self.owner.attempt.state
        is_known = state in (State.UNINITIALISED, State.READY, State.COMMITTED) and not hold.in_doubt
        if hold.state is not HoldState.LOST and not is_known:
            self._start(in_doubt=True)

    def appending(self) -> None:
        """Record that the transaction may contain records from now on."""
        self._outputs = {}
        self.owner.attempt.apply(Event.APPEND)

    def append(self, write: Callable[[ProducerIdentity], Appended]) -> Appended:
        """Have `write` append to the transaction. Raises TransactionAborted if it lasts longer than its timeout."""
        self.appending()
        with self.owner.explaining():
            appended = write(self.identity)
        self._outputs = appended.topics
        return appended

    def commit(self, batch: MicroBatch, *, written: Written | None = None, incomplete: bool = False) -> None:
        """Commit everything that was appended, with the batch's source offsets and ledger entry, or nothing.

        Call it only if the barrier found that every append was acknowledged exactly once. `written` is what they add
        up to, None if unknown. `incomplete`: see LedgerEntry. Raises TransactionAborted if the transaction was aborted
        and the batch may be retried, CommitOutcomeUnknown if no broker answers, OutputLost if a topic was deleted while
        the rest was committed.
        """
        self._commit_all(batch, written, incomplete=incomplete)
        self.require_outputs(batch, written)

    def _commit_all(
        self, batch: MicroBatch, written: Written | None, *, incomplete: bool, table: int | None = None
    ) -> None:
        self.owner.attempt.apply(Event.ALL_APPENDED)
        failpoint("all appended", batch.batch_id)
        if self._decide is None and written is not None and written.records == 0:
            return  # nothing is open, so EndTxn would fail
        entry: LedgerEntry | None = None
        with self.sending_offsets(batch):
            if self._decide is None:
                self.owner.ledger.send_source_offsets(self.identity, batch)
            else:
                entry = self.owner.ledger.send(
                    self.identity, batch, incomplete=incomplete, written=written, table=table
                )
        self.commit_prepared(batch, entry)

    @contextlib.contextmanager
    def sending_offsets(self, batch: MicroBatch) -> Iterator[None]:
        with phase("offsets"), self.owner.explaining():
            yield
            outputs.require(self.cluster, self._appended_to())
        self.owner.attempt.apply(Event.OFFSETS_SENT)
        failpoint("offsets committed", batch.batch_id)

    def commit_prepared(self, batch: MicroBatch, entry: LedgerEntry | None) -> None:
        """Commit the transaction, which has everything that it needs."""
        self.owner.attempt.apply(Event.COMMIT)
        with phase("end"):
            self._end(batch, entry)
        failpoint("ended", batch.batch_id)

    def _end(self, batch: MicroBatch, entry: LedgerEntry | None) -> None:
        """Send EndTxn(commit), and settle its outcome if it is in doubt."""
        try:
            following = self.owner.end()
        except KafkaEosError as error:
            is_fenced = isinstance(error, ProducerFenced)
            is_silent = any(isinstance(cause, BrokerUnreachable) for cause in (error, error.__cause__))
            is_over = (is_fenced or not is_silent) and self.owner.timed_out()
            if isinstance(error, ProducerFenced) and not is_over:
                raise self.owner.fenced(error) from error
            # Even an error response does not mean that the commit failed: an earlier attempt may have been applied.
            why = self.owner.after_timeout(error) if is_over else error
            self._resolve_doubt(batch, entry, why, is_over=is_over)
        else:
            self.owner.committed(entry, following)

    # -- topics that are deleted meanwhile (transaction.outputs)

    def _appended_to(self) -> dict[str, uuid.UUID]:
        """The topics that the transaction was appended to, with the ids that they had before."""
        ids = {name: topic.id for name, topic in self._outputs.items()}
        return {**ids, **(self.owner.ledger.appended if self._decide is not None else {})}

    def require_outputs(self, batch: MicroBatch, written: Written | None) -> None:
        """Raise OutputLost if a topic is no longer the one that the committed batch was appended to. The ledger then
        has it as incomplete. If only the ledger's topic was deleted, it gets the entry once more.
        """
        try:
            gone = deleted(self.cluster, self._appended_to())
        except KafkaEosError as error:
            raise error.replaced(
                what=f"batch {batch.batch_id} was committed, but whether its topics are still there is not known: "
                f"{error.what}",
                committed="everything",
            ) from error
        if not gone:
            return
        topics = {name: topic for name, topic in self._outputs.items() if name in gone}
        lost = outputs.lost_records(topics)
        noted = self._decide is not None
        failure = self._note_again(batch, written, topics) if noted else None
        if not lost and failure is None:
            _log.warning("topic %s was deleted; the entry of batch %d is written again", gone[0], batch.batch_id)
            return
        which = f"batch {batch.batch_id} of query {batch.query_id}" if batch.query_id else "the batch write"
        action = "Write what is missing with a batch job, and delete no topic that a running query writes."
        if failure is not None:
            lost = lost or "the ledger's entry"
            action = (
                f"That could not be noted in the ledger ({failure.what}), so do not start the query or job again "
                f"before you have looked at what its output has of this batch. {action}"
            )
        elif noted:
            action = (
                "The ledger has the batch as incomplete: the next start is refused, and goes on with the word that its "
                f"message names. {action}"
            )
        else:
            action = f"If other topics have the batch, do not write the batch again: they would have it twice. {action}"
        raise OutputLost(
            f"{which} was committed, and while it was, topic {gone[0]!r} was deleted: lost are {lost}", action=action
        )

    def _note_again(
        self, batch: MicroBatch, written: Written | None, lost: Mapping[str, AppendedTopic]
    ) -> KafkaEosError | None:
        """Commit the entry of the committed batch once more, as incomplete if records in topics are `lost`; the error
        if that failed.
        """
        last = self.owner.ledger.entry
        written = replace(
            written or Written(records=0, bytes=0, milliseconds=0),
            lost={name: topic.records for name, topic in lost.items()},
        )
        table = last.table if isinstance(last, LedgerEntry) else None
        try:
            if not self.owner.holds or self.owner.renew() == "read":
                raise ProducerFenced("another driver may have taken over")
            self.owner.ledger.topic.ensure_again()
            self.appending()
            self._commit_all(batch, written, incomplete=bool(lost), table=table)
        except KafkaEosError as error:
            with contextlib.suppress(KafkaEosError):  # the first one says why
                self.abort()
            return error
        return None

    def note_incomplete(self, batch: MicroBatch) -> None:
        """Record in the ledger that the committed `batch` lacks DataFrames that came too late. From then on it is
        refused, until an operator resolves that.
        """
        self.owner.require_not_lost()
        if self.owner.holds:
            self.owner.renew()
        else:
            verdict = self._take(batch, anyway=True)
            if isinstance(verdict, Refuse):
                raise self.refused(verdict)
        self.end_hanging()
        self.appending()
        self.commit(batch, incomplete=True)

    def abort(self) -> None:
        """Abort the transaction: none of it becomes visible, and its epoch is invalid. Does nothing if none is open."""
        if self.owner.attempt.state in OPEN:
            self.owner.abort()

    # -- looking

    def _take(self, batch: MicroBatch, *, anyway: bool = False) -> verdicts.Verdict:
        """Look, and take the id if the verdict is to write, or `anyway`: the verdict once the id is ours. Raises
        ProducerFenced if this process must not take it.
        """
        for _ in range(describe.MOST_LOOKS):
            look = self.look(batch, to_take=anyway)
            if isinstance(look.verdict, Refuse) or not (anyway or isinstance(look.verdict, verdicts.Write)):
                return look.verdict
            ledger = self.owner.take(look)
            if ledger == "known":
                return look.verdict
            if ledger == "read":
                break
        else:
            self.owner.initialise()
        verdict = self._verdict(batch)
        if not isinstance(verdict, verdicts.Write):  # committed since the look, by a predecessor or a successor
            self.owner.require_held()
        return verdict

    def look(self, batch: MicroBatch, *, to_take: bool = False) -> OwnerLook:
        """What a process sees that holds no epoch. Raises ProducerFenced if it must not take the id, to write the batch
        or `to_take` it anyway.
        """
        facts, glance, verdict = self._looked(batch)
        if isinstance(verdict, Refuse) and isinstance(facts, Unavailable) and glance.pending:
            verdict = verdicts.Write(reason="only after InitProducerId it is known whether a predecessor has committed")
        if to_take or isinstance(verdict, verdicts.Write):
            self.owner.require_untaken(facts, glance, batch)
        # Where a record is pending although the transaction has ended, its marker may have been left out.
        settled = glance.agreed and not glance.pending
        if isinstance(facts, TransactionFacts) and facts.state in ("CompleteCommit", "CompleteAbort") and settled:
            return OwnerLook(verdict=verdict, facts=facts, read_under=facts.producer)
        return OwnerLook(verdict=verdict, facts=facts)

    def _looked(self, batch: MicroBatch) -> tuple[OwnerFacts, CommittedEntry, verdicts.Verdict]:
        """Who owns the id, what is committed, and the verdict on that.

        A commit may come between the answers, and then they do not fit together. What is written is decided on again,
        and what is committed stays so. But a refusal only counts if the owner did not change meanwhile.
        """
        facts, budget = self.owner.settled_facts(), self.cluster.budget()
        while True:
            glance, verdict = CommittedEntry(entry=None), self._verdict_without_ledger()
            if self._decide is not None:
                glance = self.owner.ledger.glance()
                verdict = self._verdict(batch)
            if not isinstance(verdict, Refuse):
                return facts, glance, verdict
            before, facts = facts, self.owner.settled_facts()
            if is_same(before, facts):
                return facts, glance, verdict
            if budget.spent:  # this process was paused, and what it knows is old: no reason to give up
                budget.restart()
            self.cluster.sleep(budget.delay(soon=True) or 0.0)

    def _verdict(self, batch: MicroBatch) -> verdicts.Verdict:
        if self._decide is None:
            return self._verdict_without_ledger()
        return self.owner.ledger.verdict(self._decide, batch)

    @staticmethod
    def _verdict_without_ledger() -> verdicts.Verdict:
        return verdicts.Write(reason="without txnAppId, every write is new")

    # -- a commit with an unknown outcome

    def _resolve_doubt(
        self, batch: MicroBatch, entry: LedgerEntry | None, error: KafkaEosError, *, is_over: bool
    ) -> None:
        """Find out the outcome of a commit that failed with `error`. `is_over`: the coordinator has aborted it."""
        self.owner.attempt.apply(Event.COMMIT_IN_DOUBT)
        try:
            facts = None if is_over else self.owner.settled_facts()
            if isinstance(facts, TransactionFacts) and (following := self.owner.after_commit(facts, error)) is not None:
                return self.owner.committed(entry, following)
            if isinstance(facts, TransactionFacts) and self.owner.is_given_up(facts):
                self.owner.hold.apply(HoldEvent.TIMED_OUT)
            elif not is_over and self.owner.coordinator.transaction_version < 2:
                # It would fence us with our identity, because the transaction may still be open.
                self.owner.hold.apply(HoldEvent.LET_GO)
            self.owner.initialise()
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
            case Refuse():
                raise self.refused(verdict, committed="unknown") from error
            case verdicts.Skip() if not isinstance(facts, Unavailable):
                # Applied only just now. A process that does not hold our new epoch would take it for another owner's.
                raise CommitOutcomeUnknown(
                    f"the commit of batch {batch.batch_id} failed ({error.what}), and was applied later: according to "
                    "the ledger, the batch is committed",
                    action="Start the query again: it goes on after this batch.",
                ) from error

    def refused(self, refusal: Refuse, committed: Committed = "nothing") -> LedgerRefused:
        remedy = refusal.remedy
        if refusal.resolutions:
            remedy += f"\n- `{self.diagnosis_command()}` shows both sides and the choices."
        return LedgerRefused(f"{refusal.reason}. {refusal.meaning}", action=remedy, committed=committed)

    def diagnosis_command(self) -> str:
        return diagnosis_command(self.options)
