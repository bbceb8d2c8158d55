"""Finds out whether a commit was applied whose EndTxn was not answered, or failed.

The coordinator shows what the commit left behind, if nothing came after it. Otherwise InitProducerId waits until the
transaction has ended, and then the ledger decides.
"""

from __future__ import annotations

from spark_kafka_eos.errors import (
    BrokerUnreachable,
    CommitOutcomeUnknown,
    KafkaEosError,
    ProducerFenced,
    TransactionAborted,
)
from spark_kafka_eos.kafka.protocol.facts import TransactionFacts, Unavailable
from spark_kafka_eos.ledger import verdicts
from spark_kafka_eos.ledger.entry import LedgerEntry
from spark_kafka_eos.ledger.refusal import Refuse
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.transaction.attempt import Event
from spark_kafka_eos.transaction.owner import Owner
from spark_kafka_eos.transaction.steps import TransactionSteps
from spark_kafka_eos.transaction.takeover import OwnerTakeover, refused


class CommitDoubt:
    """The doubts about the commits of one transactional id. `command` shows both sides of a refusal."""

    def __init__(self, steps: TransactionSteps, owner: Owner, takeover: OwnerTakeover, command: str) -> None:
        self._steps, self._owner, self._takeover, self._command = steps, owner, takeover, command

    def resolve(self, batch: MicroBatch, entry: LedgerEntry | None, error: KafkaEosError) -> None:
        """Return if the commit that failed with `error` was applied; else raise TransactionAborted, ProducerFenced,
        LedgerRefused, or CommitOutcomeUnknown.
        """
        owner = self._owner
        is_fenced = isinstance(error, ProducerFenced)
        is_silent = any(isinstance(cause, BrokerUnreachable) for cause in (error, error.__cause__))
        is_over = (is_fenced or not is_silent) and owner.ask_why()
        if isinstance(error, ProducerFenced) and not is_over:
            raise owner.fenced(error) from error
        # Even an error response does not mean that the commit failed: an earlier attempt may have been applied.
        self.doubt(batch, entry, owner.timed_out(error) if is_over else error, is_over=is_over)

    def doubt(self, batch: MicroBatch, entry: LedgerEntry | None, error: KafkaEosError, *, is_over: bool) -> None:
        """The same, of a commit that may have been applied. `is_over`: the coordinator has aborted the transaction."""
        self._steps.attempt.apply(Event.COMMIT_IN_DOUBT)
        failed = f"the commit of batch {batch.batch_id} failed ({error.what})"
        try:
            facts = None if is_over else self._steps.settle()
            if (
                isinstance(facts, TransactionFacts)
                and (following := self._owner.after_commit(facts, error)) is not None
            ):
                return self._steps.committed(entry, following)
            if isinstance(facts, TransactionFacts) and self._steps.is_given_up(facts):
                self._steps.time_out()
                is_over = True
            verdict = self._read_again(batch, is_over=is_over)
        except ProducerFenced:
            raise
        except KafkaEosError as second:
            raise CommitOutcomeUnknown(
                f"{failed}, and its outcome could not be determined ({second.what})", action=second.action
            ) from second
        if not self._steps.has_ledger:
            if is_over:
                raise TransactionAborted(
                    f"{failed}, and the transaction was aborted", action="The batch is written again."
                ) from error
            raise CommitOutcomeUnknown(
                f"the commit request failed ({error.what}), and without txnAppId there is no ledger entry to check",
                action="Check the topic before you run the job again; with txnAppId, a rerun is safe.",
            ) from error
        match verdict:
            case verdicts.Write():
                raise TransactionAborted(
                    f"{failed}; according to the ledger, the batch is not committed",
                    action="The batch is written again.",
                ) from error
            case Refuse():
                raise refused(verdict, self._command, committed="unknown") from error
            case verdicts.Skip() if not isinstance(facts, Unavailable):
                # Applied only just now. A process that does not hold our new epoch would take it for another owner's.
                raise CommitOutcomeUnknown(
                    f"{failed}, and was applied later: according to the ledger, the batch is committed",
                    action="Start the query again: it goes on after this batch.",
                ) from error

    def _read_again(self, batch: MicroBatch, *, is_over: bool) -> verdicts.Verdict:
        """The ledger's verdict, after a new epoch."""
        if not is_over and self._steps.transaction_version < 2:
            # It would fence us with our identity, because the transaction may still be open.
            self._steps.let_go()
        self._owner.initialise()
        return self._takeover.verdict(batch)
