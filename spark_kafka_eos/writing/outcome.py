"""Reports how a micro-batch ended to the driver's listener, from the process that commits it."""

from __future__ import annotations

import time
from collections.abc import Callable

from spark_kafka_eos.broker.datagrams import tell_outcome
from spark_kafka_eos.core.outcome import BatchOutcome
from spark_kafka_eos.errors import AttemptsExhausted, LedgerRefused
from spark_kafka_eos.model import MicroBatch
from spark_kafka_eos.options import SinkOptions
from spark_kafka_eos.writing.report import CommitReport


def telling(
    collector: str | None, options: SinkOptions, batch: MicroBatch, commit: Callable[[], CommitReport]
) -> CommitReport:
    """`commit()`, and report how it ended to the collector's address, if there is one (`broker.datagrams`)."""
    if collector is None:
        return commit()
    try:
        report = commit()
    except Exception as error:
        tell_outcome(collector, failed(options, batch, error, time.time()))
        raise
    tell_outcome(collector, ended(options, report, time.time()))
    return report


def ended(options: SinkOptions, report: CommitReport, now: float) -> BatchOutcome:
    """The outcome of a batch that was committed or skipped."""
    return BatchOutcome(
        query_id=report.query_id,
        batch_id=report.batch_id,
        transactional_id=options.transactional_id,
        outcome="skipped" if report.outcome == "skipped" else "committed",
        ended_at=now,
        epoch=report.epoch,
        records=report.records,
        bytes=report.bytes,
        redone=len(report.redone),
        milliseconds=report.milliseconds,
    )


def failed(options: SinkOptions, batch: MicroBatch, error: Exception, now: float) -> BatchOutcome:
    """The outcome of a batch that ended with `error`."""
    return BatchOutcome(
        query_id=batch.query_id,
        batch_id=batch.batch_id,
        transactional_id=options.transactional_id,
        outcome="refused" if isinstance(error, LedgerRefused) else "failed",
        ended_at=now,
        error=type(error).__name__,
        redone=options.max_attempts - 1 if isinstance(error, AttemptsExhausted) else 0,
    )
