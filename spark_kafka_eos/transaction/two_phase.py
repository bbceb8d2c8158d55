"""A table's steps in a shared transaction in which it takes part: both have the batch, or neither.

    begin(batch)      held() of the table, then the look of `takeover`; `participants.decide` says what follows. Only to
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
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

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
from spark_kafka_eos.ledger.entry import BatchCounts, LedgerEntry
from spark_kafka_eos.ledger.refusal import Refuse
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.options import SinkOptions
from spark_kafka_eos.participants import refusal
from spark_kafka_eos.participants.decide import Again, Finish, Prepared, is_ahead, prepared
from spark_kafka_eos.participants.failure import error_to_text
from spark_kafka_eos.participants.participant import Conflict, Participant
from spark_kafka_eos.participants.token import Token, token_of
from spark_kafka_eos.transaction.attempt import Event
from spark_kafka_eos.transaction.owner import Owner
from spark_kafka_eos.transaction.steps import TransactionSteps
from spark_kafka_eos.transaction.table import TableParticipant
from spark_kafka_eos.transaction.takeover import OwnerLook, OwnerTakeover, refused

_log = logger(__name__)

_SETTLES = "Start the query again: it finds out, and completes the batch in both or in neither."


class ParticipantSteps:
    """The steps of `participant`, whose key is this query's own, in the shared transactions of one transactional id:
    `command` shows both sides of a refusal. Not thread-safe.

    Every method may raise TableFailed.
    """

    def __init__(
        self,
        options: SinkOptions,
        cluster: Cluster,
        participant: Participant,
        steps: TransactionSteps,
        owner: Owner,
        takeover: OwnerTakeover,
        command: str,
    ) -> None:
        self._cluster, self._steps, self._owner, self._takeover = cluster, steps, owner, takeover
        self._table = TableParticipant(options, participant)
        self._command = command
        self._batch: MicroBatch | None = None  # the one that has begun
        self._again: Token | None = None  # the batch is in the table, and is appended again

    @property
    def has_batch(self) -> bool:
        """Whether the table has the batch of `begin` already, so that it is only appended again."""
        return self._again is not None

    # -- looking

    def look(self, batch: MicroBatch, *, to_take: bool) -> OwnerLook:
        """As OwnerTakeover.look, with the table's verdict; a table that is to be written is fenced."""
        failed: KafkaEosError | None = None
        for _ in range(describe.MOST_LOOKS):
            self._table.last = self._table.ask()
            look = self._takeover.look(batch, to_take=to_take)
            verdict = self._verdict(look.verdict, batch, prepared(self._table.token, look.facts))
            if isinstance(verdict, Finish):
                if failed is not None:
                    raise failed
                failed = self._finish(verdict.token, batch)
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
        raise self._owner.taken_over(f": the table changed {describe.MOST_LOOKS} times while this driver looked")

    def begin(self, batch: MicroBatch, verdict: verdicts.Write | verdicts.Skip) -> verdicts.Write | verdicts.Skip:
        """The verdict of both on the batch, on which the ledger's is this `verdict`. Raises LedgerRefused."""
        decided = self._verdict(verdict, batch, "over")  # in our own epoch nothing is open yet
        if isinstance(decided, Refuse):
            raise refused(decided, self._command)
        assert isinstance(decided, verdicts.Write | verdicts.Skip)
        self._again = decided.token if isinstance(decided, Again) else None
        if self._again is not None:
            _log.warning("batch %d of query %s: %s", batch.batch_id, batch.query_id, decided.reason)
        return decided

    def _verdict(
        self, verdict: verdicts.Verdict, batch: MicroBatch, transaction: Prepared
    ) -> verdicts.Verdict | Finish:
        entry = self._steps.ledger.entry
        return self._table.verdict(verdict, batch, transaction, entry, self._cluster.cluster_id())

    def _finish(self, token: Token, batch: MicroBatch) -> KafkaEosError | None:
        """Commit the transaction of `token`, of a process that is gone; the error of `batch` if that failed. The next
        look shows what became of it.
        """
        _log.warning("the table has %s, and its Kafka transaction is open: it is committed", token)
        try:
            end_transaction(self._cluster, token.identity, commit=True)
        except KafkaEosError as error:
            what = f"the table has {token}, and its Kafka transaction could not be committed ({error.what})"
            return error.replaced(what=what, committed="table" if token.names(batch) else None)
        return None

    # -- the table's commit

    def version_with(self, written: BatchCounts | None) -> int:
        """The version of the table that has the batch, or will have it. Raises LedgerRefused if it has other rows than
        what was `written`.
        """
        if self._again is None:
            return self._table.last.version + 1
        assert written is not None, "the token says what was written"
        if written.records != self._again.records:
            raise refused(refusal.other_rows(self._again, written.records), self._command, committed="table")
        return self._table.last.version

    def commit(self, batch: MicroBatch, entry: LedgerEntry | None, written: BatchCounts | None, rows: Any) -> None:
        """Commit the rows and the batch's token. Returns once the table has them. Raises TransactionAborted if it never
        will, ProducerFenced if that is because of another driver, CommitOutcomeUnknown if that cannot be determined.
        """
        assert entry is not None
        assert written is not None
        token = token_of(self._steps.identity, entry, written, self._cluster.cluster_id())
        with phase("table"):
            if self._owner.ask_why():
                raise self._owner.timed_out(TransactionAborted("the table was not asked to commit"))
            self._steps.attempt.apply(Event.TABLE_COMMIT)
            try:
                self._table.commit(rows, token)
            except Exception as error:  # noqa: BLE001 - whatever it is, the table may have the batch
                self._settle(batch, token, error)
            self._table.committed(token)
            self._steps.attempt.apply(Event.TABLE_COMMITTED)
        failpoint("table committed", batch.batch_id)

    def _settle(self, batch: MicroBatch, token: Token, error: Exception) -> None:
        """Return if the table has `token`, although its commit failed with `error`. Raises TransactionAborted if it
        never will, ProducerFenced if that is because of another driver, TableFailed if the table cannot take part.
        """
        why = f"the table's commit of batch {batch.batch_id} failed ({error_to_text(error)})"
        version = self._table.last.version
        try:
            outcome = self._table.outcome(token)
        except Exception as second:
            if not (isinstance(error, Conflict) or _sent_nothing(error)) or not _sent_nothing(second):
                raise CommitOutcomeUnknown(
                    f"{why}, and its outcome could not be determined ({error_to_text(second)})", action=_SETTLES
                ) from second
            self._end_refused()
            raise second from error
        if outcome == "committed":
            return
        if outcome == "fenced":
            self._steps.attempt.apply(Event.TABLE_REFUSED)
            raise TransactionAborted(why, action="The batch is written again.") from error
        self._end_refused()
        raise self._owner.taken_over(f": it has committed to the table after version {version}").replaced(
            committed="unknown"  # it may have finished this batch before
        ) from error

    def _end_refused(self) -> None:
        """Abort the transaction, whose batch the table never gets."""
        self._steps.attempt.apply(Event.TABLE_REFUSED)
        self._steps.attempt.apply(Event.ABORT)
        with contextlib.suppress(KafkaEosError):  # under our own epoch: whoever came first has a newer one
            end_transaction(self._cluster, self._steps.identity, commit=False)

    # -- the end

    def resolve(self, batch: MicroBatch, entry: LedgerEntry | None, error: KafkaEosError) -> None:
        """As CommitDoubt.resolve, of a batch that the table has: return if it was committed although EndTxn failed with
        `error`; else raise TransactionAborted, ProducerFenced, CommitOutcomeUnknown, or TableFailed.
        """
        self._steps.committed(entry, self._after_decided(batch, error))

    def _after_decided(self, batch: MicroBatch, error: KafkaEosError) -> ProducerIdentity:
        """What to go on with if the transaction was committed; else raises."""
        try:
            facts = self._steps.settle()
        except KafkaEosError as second:
            raise self._undone(batch, f"{error.what}; {second.what}") from error
        if not isinstance(facts, TransactionFacts):
            raise self._undone(batch, error.what) from error
        try:
            following = self._owner.after_commit(facts, error)
        except ProducerFenced as fenced:
            raise fenced.replaced(committed="table") from error
        if following is not None:
            return following
        if not self._steps.is_given_up(facts):
            raise self._undone(batch, error.what) from error
        try:
            self._table.fence()
        except Conflict:
            self._table.require_kept()
            raise self._owner.taken_over(": it has committed to the table after this batch").replaced(
                committed="table"
            ) from error
        except TableFailed as failed:
            raise failed.replaced(committed="table") from error
        self._steps.time_out()
        raise self._owner.timed_out(error).replaced(
            action="The table has the batch; the same rows are appended to Kafka again. Increase the timeout if this "
            "happens repeatedly.",
            committed="table",
        ) from error

    def _undone(self, batch: MicroBatch, why: str) -> CommitOutcomeUnknown:
        return CommitOutcomeUnknown(
            f"the table has batch {batch.batch_id}, and the commit of its Kafka transaction failed ({why})",
            action="Start the query again: it commits the transaction, or appends the same rows to Kafka again.",
        ).replaced(committed="table")

    # -- what errors say

    @contextlib.contextmanager
    def explaining(self, batch: MicroBatch | None = None) -> Iterator[None]:
        """Let errors say that the table has the batch if Kafka, as far as this process knows, has not: of `batch`,
        which begins, or of the one that has begun.
        """
        self._batch = batch or self._batch
        try:
            yield
        except KafkaEosError as error:
            if error.committed == "nothing" and self._only_the_table_has_it():
                raise error.replaced(committed="table") from error
            raise

    def _only_the_table_has_it(self) -> bool:
        token = self._table.token
        return (
            token is not None
            and self._batch is not None
            and token.names(self._batch)
            and is_ahead(token, self._steps.ledger.entry)
        )


def _sent_nothing(error: Exception) -> bool:
    """Whether the participant says with this error that nothing of the commit is in the table, nor will be."""
    return isinstance(error, TableFailed) and error.committed == "nothing"
