"""Writes one micro-batch, from the ledger's verdict to the commit, with a limited number of attempts.

The caller appends the records: for each attempt it gets a new producer epoch, and it either reports that everything was
appended exactly once, or raises. After TransactionAborted, the same batch is written again under a new epoch.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, Protocol

from spark_kafka_eos.appending.append_mode import Choice
from spark_kafka_eos.appending.report import Appended, CommitReport
from spark_kafka_eos.errors import (
    AttemptsExhausted,
    ConfigurationError,
    LedgerRefused,
    ProducerFenced,
    StagingLost,
    TransactionAborted,
)
from spark_kafka_eos.kafka.logs import logger
from spark_kafka_eos.kafka.producer import ProducerEpoch, ProducerIdentity
from spark_kafka_eos.kafka.protocol.backoff import Clock
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.recorder import Recorder, phase, recording
from spark_kafka_eos.ledger import verdicts
from spark_kafka_eos.ledger.decide import Decide
from spark_kafka_eos.ledger.entry import BatchCounts
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.observe.observers import BATCHES, Observer, log_report
from spark_kafka_eos.options import SinkOptions
from spark_kafka_eos.transaction.shared import SharedTransaction

if TYPE_CHECKING:
    from spark_kafka_eos.participants.participant import Participant

_log = logger(BATCHES)


class Committer(Protocol):
    """Writes a batch's attempts: a shared transaction, or idempotent writes."""

    @property
    def identity(self) -> ProducerIdentity: ...

    def begin(self, batch: MicroBatch) -> verdicts.Write | verdicts.Skip: ...

    def append(self, write: Callable[[ProducerIdentity], Appended]) -> Appended: ...

    def commit(self, batch: MicroBatch, *, written: BatchCounts) -> None: ...

    def abort(self) -> None: ...

    def start_over(self) -> None: ...


def committer(
    options: SinkOptions,
    cluster: Cluster,
    decide: Decide | None,
    *,
    planned_under: ProducerEpoch | None = None,
    unsure: bool = False,
    participant: Participant | None = None,
) -> Committer:
    """The committer for the option `deliveryGuarantee`. `planned_under`, `unsure`: see SharedTransaction. `participant`
    is a table that takes part; then there must be a ledger.
    """
    if options.delivery_guarantee == "at-least-once":
        if participant is not None:
            raise ConfigurationError(
                "deliveryGuarantee",
                "at-least-once has no transaction in which a table can take part",
                action="Set deliveryGuarantee=exactly-once, or omit participant.",
            )
        from spark_kafka_eos.transaction.idempotent import AtLeastOnceProducer  # of few queries

        return AtLeastOnceProducer(options, cluster)
    if options.two_phase_commit and participant is None:
        raise ConfigurationError(
            "twoPhaseCommit",
            "is for batches in which a table takes part: without one, what a dead driver leaves open would hold "
            "readers back for ever",
            action="Give the transaction a participant, or omit twoPhaseCommit.",
        )
    return SharedTransaction(
        options, cluster, decide, participant=participant, planned_under=planned_under, unsure=unsure
    )


def commit_batch(
    transaction: Committer,
    batch: MicroBatch,
    write: Callable[[ProducerIdentity], Appended],
    *,
    max_attempts: int,
    choice: Choice,
    observe: Observer = log_report,
    clock: Clock = time.perf_counter,
) -> CommitReport:
    """Commit `batch` unless the ledger shows that it is committed; `write` is called once per attempt.

    `choice` is the append mode for the report, unless `write` reports another one. `observe` gets the report, also that
    of a batch that raises an error. `clock` is for tests.

    Raises LedgerRefused, ProducerFenced, CommitOutcomeUnknown, AttemptsExhausted and whatever `write` raises. Unless
    the error says otherwise, nothing was committed, and what was appended is aborted.
    """
    with recording(clock=clock) as recorder:
        attempts = _Attempts(transaction, batch, choice, recorder)
        try:
            outcome, appended = attempts.run(write, max_attempts)
        except BaseException as error:
            why = "refused" if isinstance(error, LedgerRefused) else "failed"
            observe(attempts.report(why, None, error=type(error).__name__))
            raise
        report = attempts.report(outcome, appended)
        observe(report)
        return report


class _Attempts:
    """The attempts to write one batch."""

    def __init__(self, transaction: Committer, batch: MicroBatch, choice: Choice, recorder: Recorder) -> None:
        self._transaction, self._batch, self._choice, self._recorder = transaction, batch, choice, recorder
        self._identity: ProducerIdentity | None = None
        self._redone: list[str] = []

    def run(
        self, write: Callable[[ProducerIdentity], Appended], max_attempts: int
    ) -> tuple[Literal["committed", "skipped"], Appended | None]:
        """The outcome, and what was appended."""
        transaction, batch = self._transaction, self._batch
        while True:
            with phase("begin"):
                verdict = transaction.begin(batch)
            if isinstance(verdict, verdicts.Skip):  # and no producer id was taken
                _log.info("batch %d of query %s: nothing to write: %s", batch.batch_id, batch.query_id, verdict.reason)
                return "skipped", None
            self._identity = transaction.identity
            try:
                appended = transaction.append(write)
                self._identity = transaction.identity
                transaction.commit(batch, written=self._written(appended))
            except TransactionAborted as error:
                self._abort(error, max_attempts)
            except BaseException as error:
                _abort_after(transaction, error)
                raise
            else:
                return "committed", appended

    def _written(self, appended: Appended) -> BatchCounts:
        """What the ledger entry says for people. The sink encodes before it begins, so the steps count, not the
        clock."""
        steps = {**self._recorder.spent("begin"), **appended.milliseconds}
        return BatchCounts(
            records=appended.records,
            bytes=appended.bytes,
            milliseconds=int(sum(steps.values())),
            dead_letters=sum(appended.dead_letters.values()),
            topic_ids={name: topic.id for name, topic in appended.topics.items()},
        )

    def _abort(self, error: TransactionAborted, max_attempts: int) -> None:
        """Abort the attempt that ended with `error`. Raises AttemptsExhausted if it was the last one."""
        batch = self._batch
        with phase("abort"):
            self._transaction.abort()
        self._redone.append(error.what)
        count = len(self._redone)
        _log.warning("batch %d of query %s, attempt %d: %s", batch.batch_id, batch.query_id, count, error.what)
        if count >= max_attempts:
            raise AttemptsExhausted(
                f"batch {batch.batch_id} was aborted {count} times, the last time because {error.what}",
                action="Fix the cause and restart the query; the option maxAttempts sets the number of attempts.",
                committed=error.committed or "nothing",
            ) from error

    def report(self, outcome: str, appended: Appended | None, error: str = "") -> CommitReport:
        """The report of these attempts."""
        choice = (appended and appended.choice) or self._choice
        steps = self._recorder.spent("begin", "offsets", "table", "end")
        begin = {"begin": steps.pop("begin")} if "begin" in steps else {}
        return CommitReport(
            query_id=self._batch.query_id,
            batch_id=self._batch.batch_id,
            outcome=outcome,
            producer_id=self._identity.producer_id if self._identity else -1,
            epoch=self._identity.epoch if self._identity else -1,
            append_mode=choice.mode,
            append_reason=choice.reason,
            partitions=appended.partitions if appended else 0,
            records=appended.records if appended else 0,
            bytes=appended.bytes if appended else 0,
            dead_letters=dict(appended.dead_letters) if appended else {},
            milliseconds=begin | (appended.milliseconds if appended else {}) | steps,
            redone=tuple(self._redone),
            error=error,
            trace=self._recorder.trace(),
        )


def _abort_after(transaction: Committer, error: BaseException) -> None:
    """Abort because of `error`. If this fails, log it, so that it does not hide `error`: except ProducerFenced, if
    staging files are missing, because the transactional.id's new owner may have removed them.
    """
    try:
        with phase("abort"):
            transaction.abort()
    except Exception as second:
        if isinstance(second, ProducerFenced) and isinstance(error, StagingLost):
            raise second from error
        _log.warning("cannot abort the transaction after %r; it stays open until its timeout: %s", error, second)
