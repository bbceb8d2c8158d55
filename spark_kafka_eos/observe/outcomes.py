"""Sends the session's ProgressListener the outcome of a batch."""

from __future__ import annotations

import time

from spark_kafka_eos.appending.report import CommitReport
from spark_kafka_eos.observe.datagrams import send_outcome
from spark_kafka_eos.observe.tallies import BatchOutcome
from spark_kafka_eos.options import SinkOptions


def send_report(collector: str, options: SinkOptions, report: CommitReport) -> None:
    """An observer, given the collector's address and key (`observe.datagrams`)."""
    send_outcome(collector, outcome_of(report, options.transactional_id, time.time()))


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
