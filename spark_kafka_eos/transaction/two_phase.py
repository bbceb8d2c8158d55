"""A shared transaction in which a table takes part: both have the batch, or neither.

    begin(batch)      held() of the table, then the look of `shared`; `participants.decide` says what follows. Only to
                      write: a fence of the table, then InitProducerId
    commit(batch)     source offsets and ledger entry (prepared); the table commits rows and token; EndTxn(commit)
    abort()           only as long as the table cannot have the batch

Not obvious:
- The table's commit decides. Before it, the transaction may only be aborted, after it only committed. Any process can
  do that: the token names producer id and epoch.
- The fence comes before InitProducerId, which aborts whatever is open. After the fence, a driver that was here before
  can no longer commit to the table, so what is aborted is in neither. That driver has sent no EndTxn(commit) meanwhile:
  that would have followed its commit to the table, and the fence would have conflicted.
- held() comes first, the owner and the ledger after it. A live driver may commit in between: then the fence conflicts,
  or, before a refusal, the version has changed. Then the look begins again.
- Everything that may still end in an abort comes before the table's commit: the barrier, the ledger's confirmation, and
  the question whether the transaction's timeout has passed.
- If the coordinator aborts a prepared transaction after its timeout, and the table has the batch, the same rows are
  appended to Kafka again, in another transaction. In the same process they are the staged blocks, in another one they
  are computed again from the same source offsets; another number of records is refused.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from spark_kafka_eos.appending.report import Appended
from spark_kafka_eos.errors import (
    CommitOutcomeUnknown,
    KafkaEosError,
    ProducerFenced,
    TableFailed,
    TransactionAborted,
)
from spark_kafka_eos.failpoints import failpoint
from spark_kafka_eos.kafka.logs import logger
from spark_kafka_eos.kafka.producer import ProducerIdentity
from spark_kafka_eos.kafka.protocol import describe
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.facts import TransactionFacts
from spark_kafka_eos.kafka.protocol.recorder import phase
from spark_kafka_eos.kafka.protocol.transactions import end_transaction
from spark_kafka_eos.ledger import verdicts
from spark_kafka_eos.ledger.decide import Decide
from spark_kafka_eos.ledger.entry import BatchCounts, LedgerEntry
from spark_kafka_eos.ledger.refusal import Refuse
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.options import SinkOptions
from spark_kafka_eos.participants import refusal
from spark_kafka_eos.participants.decide import Again, Finish, Prepared, prepared
from spark_kafka_eos.participants.failure import shown
from spark_kafka_eos.participants.participant import Conflict, Participant
from spark_kafka_eos.participants.token import Token, token_of
from spark_kafka_eos.transaction.attempt import Event
from spark_kafka_eos.transaction.shared import SharedTransaction
from spark_kafka_eos.transaction.table import TableParticipant
from spark_kafka_eos.transaction.takeover import OwnerLook, refused

_log = logger(__name__)

_SETTLES = "Start the query again: it finds out, and completes the batch in both or in neither."


class TwoPhaseTransaction(SharedTransaction):
    """A SharedTransaction with `participant`, whose key is this query's own. Not thread-safe.

    Every method may also raise TableFailed.
    """

    DIAGNOSED_WITH = " --table MODULE:NAME"

    def __init__(
        self,
        options: SinkOptions,
        cluster: Cluster,
        decide: Decide,
        participant: Participant,
        *,
        unsure: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(options, cluster, decide, unsure=unsure, clock=clock)
        self._table = TableParticipant(options, participant)
        self._rows: Any = None
        self._again: Token | None = None  # the batch is in the table, and is appended again

    @property
    def participant(self) -> Participant:
        return self._table.participant

    def will_write(self, rows: Any) -> None:
        """What the next batch gives to the table, None for nothing."""
        self._rows = rows

    def begin(self, batch: MicroBatch) -> verdicts.Write | verdicts.Skip:
        self._again = None
        verdict = self._with_table(super().begin(batch), batch, "over")  # in our own epoch nothing is open yet
        if isinstance(verdict, Refuse):
            raise refused(verdict, self.diagnosis_command)
        assert isinstance(verdict, verdicts.Write | verdicts.Skip)
        if isinstance(verdict, Again):
            _log.warning("batch %d of query %s: %s", batch.batch_id, batch.query_id, verdict.reason)
            self._again = verdict.token
        return verdict

    def append(self, write: Callable[[ProducerIdentity], Appended]) -> Appended:
        with self._saying_what_the_table_has():
            return super().append(write)

    def commit(self, batch: MicroBatch, *, written: BatchCounts | None = None, incomplete: bool = False) -> None:
        """As SharedTransaction.commit, with the rows of `will_write` in the table. Raises ProducerFenced if another
        driver has written to the table, TransactionAborted if it did not commit, CommitOutcomeUnknown if it is unknown
        whether it did.
        """
        if incomplete:
            super().commit(batch, written=written, incomplete=True)
            return
        assert written is not None, "the table's token says what was written"
        with self._saying_what_the_table_has():
            if self._again is not None:
                self._require_same(self._again, written)
            self.steps.attempt.apply(Event.ALL_APPENDED)
            failpoint("all appended", batch.batch_id)
            version = self._table.last.version + (self._again is None)
            with self.sending_offsets(batch):
                entry = self.steps.ledger.send(self.identity, batch, incomplete=False, written=written, table=version)
            if self._again is not None:
                self.commit_prepared(batch, entry)
        if self._again is not None:
            self.require_outputs(batch, written)
            return
        with phase("table"):
            self._commit_table(batch, token_of(self.identity, entry, written))
        failpoint("table committed", batch.batch_id)
        with phase("end"):
            self._end_decided(batch, entry)
        failpoint("ended", batch.batch_id)
        self.require_outputs(batch, written)

    # -- looking

    def look(self, batch: MicroBatch, *, to_take: bool = False) -> OwnerLook:
        failed: KafkaEosError | None = None
        for _ in range(describe.MOST_LOOKS):
            self._table.last = self._table.ask()
            look = super().look(batch, to_take=to_take)
            verdict = self._with_table(look.verdict, batch, prepared(self._table.token, look.facts))
            if isinstance(verdict, Finish):
                if failed is not None:
                    raise failed
                failed = self._finish(verdict.token)
                continue
            if isinstance(verdict, Refuse) and self._table.ask() != self._table.last:
                continue
            if isinstance(verdict, verdicts.Write) or (to_take and not isinstance(verdict, Refuse)):
                try:
                    self._table.fence()
                except Conflict:
                    continue
                failpoint("table fenced", batch.batch_id)
            return replace(look, verdict=verdict)
        raise self.owner.taken_over(f": the table changed {describe.MOST_LOOKS} times while this driver looked")

    def _with_table(
        self, verdict: verdicts.Verdict, batch: MicroBatch, transaction: Prepared
    ) -> verdicts.Verdict | Finish:
        return self._table.verdict(verdict, batch, transaction, self.steps.ledger.entry)

    def _finish(self, token: Token) -> KafkaEosError | None:
        """Commit the transaction of `token`, of a process that is gone; the error if that failed. The next look shows
        what became of it.
        """
        _log.warning("the table has %s, and its Kafka transaction is open: it is committed", token)
        try:
            end_transaction(self.cluster, token.identity, commit=True)
        except KafkaEosError as error:
            what = f"the table has {token}, and its Kafka transaction could not be committed ({error.what})"
            return error.replaced(what=what, committed="table")
        return None

    # -- the table's commit

    def _commit_table(self, batch: MicroBatch, token: Token) -> None:
        """Commit the rows and `token`. Returns once the table has them, and raises if it never will."""
        if self.owner.ask_why():
            raise self.owner.timed_out(TransactionAborted("the table was not asked to commit"))
        self.steps.attempt.apply(Event.TABLE_COMMIT)
        try:
            self._table.commit(self._rows, token)
        except Exception as error:  # noqa: BLE001 - whatever it is, the table may have the batch
            self._settle(batch, token, error)
        self._table.committed(token)
        self.steps.attempt.apply(Event.TABLE_COMMITTED)

    def _settle(self, batch: MicroBatch, token: Token, error: Exception) -> None:
        """Return if the table has `token`, although its commit failed with `error`. Raises TransactionAborted if it
        never will, ProducerFenced if that is because of another driver.
        """
        why = f"the table's commit of batch {batch.batch_id} failed ({shown(error)})"
        version = self._table.last.version
        try:
            outcome = self._table.outcome(token)
        except Exception as second:
            raise CommitOutcomeUnknown(
                f"{why}, and its outcome could not be determined ({shown(second)})", action=_SETTLES
            ) from second
        if outcome == "committed":
            return
        self.steps.attempt.apply(Event.TABLE_REFUSED)
        if outcome == "fenced":
            raise TransactionAborted(why, action="The batch is written again.") from error
        self.steps.attempt.apply(Event.ABORT)
        with contextlib.suppress(KafkaEosError):  # under our own epoch: whoever came first has a newer one
            end_transaction(self.cluster, self.identity, commit=False)
        raise self.owner.taken_over(f": it has committed to the table after version {version}").replaced(
            committed="unknown"  # it may have finished this batch before
        ) from error

    # -- the end

    def _end_decided(self, batch: MicroBatch, entry: LedgerEntry) -> None:
        """Send EndTxn(commit) for a batch that the table has."""
        try:
            following = self.steps.commit()
        except KafkaEosError as error:
            following = self._after_decided(batch, error)
        self.steps.committed(entry, following)

    def _after_decided(self, batch: MicroBatch, error: KafkaEosError) -> ProducerIdentity:
        """What to go on with if the transaction was committed although its EndTxn failed with `error`; else raises."""
        try:
            facts = self.steps.settle()
        except KafkaEosError as second:
            raise self._undone(batch, f"{error.what}; {second.what}") from error
        if not isinstance(facts, TransactionFacts):
            raise self._undone(batch, error.what) from error
        try:
            following = self.owner.after_commit(facts, error)
        except ProducerFenced as fenced:
            raise fenced.replaced(committed="table") from error
        if following is not None:
            return following
        if not self.steps.is_given_up(facts):
            raise self._undone(batch, error.what) from error
        try:
            self._table.fence()
        except Conflict:
            raise self.owner.taken_over(": it has committed to the table after this batch").replaced(
                committed="table"
            ) from error
        except TableFailed as failed:
            raise failed.replaced(committed="table") from error
        self.steps.time_out()
        raise self.owner.timed_out(error).replaced(
            action="The table has the batch; the same rows are appended to Kafka again. Increase the timeout if this "
            "happens repeatedly.",
            committed="table",
        ) from error

    def _undone(self, batch: MicroBatch, why: str) -> CommitOutcomeUnknown:
        return CommitOutcomeUnknown(
            f"the table has batch {batch.batch_id}, and the commit of its Kafka transaction failed ({why})",
            action="Start the query again: it commits the transaction, or appends the same rows to Kafka again.",
        ).replaced(committed="table")

    # -- a batch that is appended again

    def _require_same(self, token: Token, written: BatchCounts) -> None:
        if written.records != token.records:
            command = self.diagnosis_command
            raise refused(refusal.other_rows(token, written.records), command, committed="table")

    @contextlib.contextmanager
    def _saying_what_the_table_has(self) -> Iterator[None]:
        """Let errors say that the table has the batch, if it is appended again."""
        try:
            yield
        except KafkaEosError as error:
            if self._again is not None and error.committed == "nothing":
                raise error.replaced(committed="table") from error
            raise
