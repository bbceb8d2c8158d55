"""Writes one micro-batch, from the ledger's verdict to the commit, with a limited number of attempts.

The caller appends the records: for each attempt it gets a new producer epoch, and it either reports that everything was
appended exactly once, or raises. After TransactionAborted, the same batch is written again under a new epoch.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from spark_kafka_eos.broker.cluster import Cluster
from spark_kafka_eos.core import recovery
from spark_kafka_eos.core.append_mode import Choice, Mode
from spark_kafka_eos.errors import AttemptsExhausted, TransactionAborted
from spark_kafka_eos.model import MicroBatch, ProducerIdentity, Written
from spark_kafka_eos.options import SinkOptions
from spark_kafka_eos.writing.idempotent import IdempotentWrites
from spark_kafka_eos.writing.ledger_keeper import Decide
from spark_kafka_eos.writing.report import Appended, CommitReport
from spark_kafka_eos.writing.transaction import SharedTransaction

_log = logging.getLogger(__name__)


class Committer(Protocol):
    """Writes a batch's attempts: a shared transaction, or idempotent writes."""

    milliseconds: dict[str, float]

    @property
    def identity(self) -> ProducerIdentity: ...

    def begin(self, batch: MicroBatch) -> recovery.Write | recovery.Skip: ...

    def appending(self) -> None: ...

    def commit(self, batch: MicroBatch, *, written: Written) -> None: ...

    def abort(self) -> None: ...


def committer(options: SinkOptions, cluster: Cluster, decide: Decide | None) -> Committer:
    """The committer for the option `deliveryGuarantee`."""
    if options.delivery_guarantee == "at-least-once":
        return IdempotentWrites(options, cluster)
    return SharedTransaction(options, cluster, decide)


def commit_batch(
    transaction: Committer,
    batch: MicroBatch,
    write: Callable[[ProducerIdentity], Appended],
    *,
    max_attempts: int,
    append_mode: Mode,
    append_reason: str = "",
) -> CommitReport:
    """Commit `batch` unless the ledger shows that it is committed; `write` is called once per attempt.

    `append_mode` and `append_reason` go into the report, unless `write` reports another mode.

    Raises LedgerRefused, ProducerFenced, CommitOutcomeUnknown, AttemptsExhausted and whatever `write` raises. Unless
    the error says otherwise, nothing was committed, and what was appended is aborted.
    """
    started = time.monotonic()
    redone: list[str] = []
    choice = Choice(mode=append_mode, reason=append_reason)
    while True:
        verdict = transaction.begin(batch)
        identity = transaction.identity
        if isinstance(verdict, recovery.Skip):
            _log.info("batch %d of query %s: nothing to write: %s", batch.batch_id, batch.query_id, verdict.reason)
            return _report(batch, "skipped", identity, choice, None, {}, redone)
        try:
            transaction.appending()
            appended = write(identity)
            took_ms = int((time.monotonic() - started) * 1e3)
            written = Written(records=appended.records, bytes=appended.bytes, milliseconds=took_ms)
            transaction.commit(batch, written=written)
        except TransactionAborted as error:
            transaction.abort()
            redone.append(error.what)
            _log.warning(
                "batch %d of query %s, attempt %d: %s", batch.batch_id, batch.query_id, len(redone), error.what
            )
            if len(redone) >= max_attempts:
                raise AttemptsExhausted(
                    f"batch {batch.batch_id} was aborted {len(redone)} times, the last time because {error.what}",
                    action="Fix the cause and restart the query; the option maxAttempts sets the number of attempts.",
                ) from error
        except BaseException as error:
            _abort_after(transaction, error)
            raise
        else:
            choice = appended.choice or choice
            report = _report(batch, "committed", identity, choice, appended, transaction.milliseconds, redone)
            _log.info("%s", report)
            return report


def _abort_after(transaction: Committer, error: BaseException) -> None:
    """Abort because of `error`. If this fails, log it, so that it does not hide `error`."""
    try:
        transaction.abort()
    except Exception as second:  # noqa: BLE001 - whatever it is, the first error is the one to raise
        _log.warning("cannot abort the transaction after %r; it stays open until its timeout: %s", error, second)


def _report(
    batch: MicroBatch,
    outcome: str,
    identity: ProducerIdentity,
    choice: Choice,
    appended: Appended | None,
    milliseconds: dict[str, float],
    redone: Sequence[str],
) -> CommitReport:
    return CommitReport(
        query_id=batch.query_id,
        batch_id=batch.batch_id,
        outcome=outcome,
        producer_id=identity.producer_id,
        epoch=identity.epoch,
        append_mode=choice.mode,
        append_reason=choice.reason,
        partitions=appended.partitions if appended else 0,
        records=appended.records if appended else 0,
        bytes=appended.bytes if appended else 0,
        milliseconds=(appended.milliseconds if appended else {}) | milliseconds,
        redone=tuple(redone),
    )
