"""Writes one micro-batch, from the ledger's verdict to the commit, with a limited number of tries.

The caller appends the records: for each try it gets a new producer epoch, and it either reports that everything was
appended exactly once, or raises. After TransactionAborted, the same batch is written again under a new epoch.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from spark_kafka_eos.broker.cluster import Cluster
from spark_kafka_eos.core import recovery
from spark_kafka_eos.core.append_mode import Choice, Mode
from spark_kafka_eos.errors import TransactionAborted, TriesExhausted
from spark_kafka_eos.model import MicroBatch, ProducerIdentity, TopicPartition
from spark_kafka_eos.options import SinkOptions
from spark_kafka_eos.writing.append import append, records_by_partition
from spark_kafka_eos.writing.idempotent import IdempotentWrites
from spark_kafka_eos.writing.ledger_keeper import Decide
from spark_kafka_eos.writing.report import CommitReport
from spark_kafka_eos.writing.staging import StageReport, Staging, TooLargeToTravel
from spark_kafka_eos.writing.transaction import SharedTransaction

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """What one try appended to the transaction; every record was acknowledged exactly once.

    `choice` is the append mode, if it differs from the one chosen before.
    """

    partitions: int
    records: int
    bytes: int
    milliseconds: dict[str, float] = field(default_factory=dict)
    choice: Choice | None = None


class Committer(Protocol):
    """Writes a batch's tries: a shared transaction, or idempotent writes."""

    milliseconds: dict[str, float]

    @property
    def identity(self) -> ProducerIdentity: ...

    def begin(self, batch: MicroBatch) -> recovery.Write | recovery.Skip: ...

    def appending(self) -> None: ...

    def commit(self, batch: MicroBatch, *, records: int) -> None: ...

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
    max_tries: int,
    append_mode: Mode,
    append_reason: str = "",
) -> CommitReport:
    """Commit `batch` unless the ledger shows that it is committed; `write` is called once per try.

    `append_mode` and `append_reason` go into the report, unless `write` reports another mode.

    Raises LedgerRefused, ProducerFenced, CommitOutcomeUnknown, TriesExhausted and whatever `write` raises. Unless the
    error says otherwise, nothing was committed, and what was appended is aborted.
    """
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
            transaction.commit(batch, records=appended.records)
        except TransactionAborted as error:
            transaction.abort()
            redone.append(error.what)
            _log.warning("batch %d of query %s, try %d: %s", batch.batch_id, batch.query_id, len(redone), error.what)
            if len(redone) >= max_tries:
                raise TriesExhausted(
                    f"batch {batch.batch_id} was aborted {len(redone)} times, the last time because {error.what}",
                    action="Fix the cause and restart the query; the option maxTries sets the number of attempts.",
                ) from error
        except BaseException as error:
            _abort_after(transaction, error)
            raise
        else:
            choice = appended.choice or choice
            report = _report(batch, "committed", identity, choice, appended, transaction.milliseconds, redone)
            _log.info("%s", report)
            return report


class StagedWrite:
    """Appends the blocks that encode tasks staged, in `appendMode=driver` and in the sink. A retry stamps the same
    blocks.

    Raises a row's error, or TooLargeToTravel, before anything is appended.
    """

    def __init__(
        self,
        cluster: Cluster,
        options: SinkOptions,
        staging: Staging,
        reports: Callable[[], Sequence[StageReport]],
        batch_id: int,
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._staging = staging
        self._stage = reports
        self._reports: Sequence[StageReport] | None = None
        self._batch_id = batch_id

    def __call__(self, identity: ProducerIdentity) -> Appended:
        if self._reports is None:
            self._reports = self._stage()
        reports = self._reports
        for report in reports:
            if report.error is not None:
                raise report.error
        if any(report.too_large for report in reports):
            raise TooLargeToTravel
        blocks = [block for report in reports for block in report.blocks]
        expected: dict[TopicPartition, int] = {}
        for block in blocks:
            expected[block.partition] = expected.get(block.partition, 0) + block.records
        started = time.perf_counter()
        acks = append(
            self._cluster,
            identity,
            ((block.partition, block.records, data) for block, data in self._staging.read(reports)),
            partitions={block.partition for block in blocks},
            transaction_timeout_ms=self._options.transaction_timeout_ms,
            batch_id=self._batch_id,
        )
        if records_by_partition(acks) != expected:
            raise TransactionAborted(
                f"{sum(ack.records for ack in acks)} records were acknowledged, but {sum(expected.values())} were "
                "staged"
            )
        return Appended(
            partitions=len(expected),
            records=sum(expected.values()),
            bytes=sum(ack.bytes for ack in acks),
            milliseconds={
                "encode": max((report.milliseconds for report in reports), default=0.0),
                "append": (time.perf_counter() - started) * 1e3,
            },
        )


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
