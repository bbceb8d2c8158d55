"""Reports how a micro-batch ended to the driver's listener, from the process that commits it."""

from __future__ import annotations

import time

from spark_kafka_eos.broker.datagrams import tell_outcome
from spark_kafka_eos.core.outcome import BatchOutcome
from spark_kafka_eos.options import SinkOptions
from spark_kafka_eos.writing.report import CommitReport


def tell_report(collector: str, options: SinkOptions, report: CommitReport) -> None:
    """An observer, given the collector's address and key (`broker.datagrams`)."""
    tell_outcome(collector, outcome_of(report, options.transactional_id, time.time()))


def outcome_of(report: CommitReport, transactional_id: str, now: float) -> BatchOutcome:
    """What the listener needs of a report; `now` is in seconds since 1970."""
    return BatchOutcome(
        query_id=report.query_id,
        batch_id=report.batch_id,
        transactional_id=transactional_id,
        outcome=report.outcome,
        ended_at=now,
        error=report.error,
        epoch=report.epoch if report.epoch >= 0 else None,
        records=report.records,
        bytes=report.bytes,
        dead_letters=dict(report.dead_letters),
        aborted_attempts=len(report.redone),
        milliseconds=dict(report.milliseconds),
        retries=dict(report.retries),
    )
