"""The sink's commit: what Spark calls once all write tasks of a micro-batch or batch write have ended.

It runs in a process of its own, which needs neither Spark's session nor Arrow, and imports neither. The other processes
of the sink do not import this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from pyspark.sql.datasource import WriterCommitMessage

from spark_kafka_eos.appending.append import StagedWrite
from spark_kafka_eos.appending.append_mode import Choice
from spark_kafka_eos.appending.report import CommitReport, EncodeReport
from spark_kafka_eos.appending.staging import Staging
from spark_kafka_eos.errors import StagingLost
from spark_kafka_eos.ledger.decide import Decide, batch_write, decide_batch_write, decide_micro_batch, destination_of
from spark_kafka_eos.model import MicroBatch
from spark_kafka_eos.observe.observers import observer
from spark_kafka_eos.options import ClientOptions, SinkOptions
from spark_kafka_eos.preflight.loop import refuse_loop
from spark_kafka_eos.protocol.cluster import Cluster
from spark_kafka_eos.spark.commit_log import show
from spark_kafka_eos.spark.staged_message import staged
from spark_kafka_eos.spark.worker import raising_when_ended
from spark_kafka_eos.transaction.commit import commit_batch, committer
from spark_kafka_eos.transaction.ownership import Owner

Messages = Sequence[WriterCommitMessage | None]
Connect = Callable[[ClientOptions], Cluster]


def commit_micro_batch(
    options: SinkOptions, connect: Connect, staging: Staging, messages: Messages, batch: MicroBatch
) -> CommitReport:
    """Commit a stream's micro-batch: its records, source offsets and ledger entry in one transaction."""
    refuse_loop(options, batch)
    collectors = {message.collector for message in staged(messages)} - {None}
    decide = decide_micro_batch(options)
    return _commit(options, connect, staging, messages, batch, decide, collector=next(iter(collectors), None))


def commit_batch_write(
    options: SinkOptions,
    connect: Connect,
    staging: Staging,
    messages: Messages,
    *,
    run: str,
    planned_under: Owner | None,
) -> None:
    """Commit the whole write of a `run` or nothing. With `txnAppId`, skip it if the ledger shows it as committed."""
    app_id, version = options.txn_app_id, options.txn_version
    reports = [message.report for message in staged(messages)]
    topics = {block.partition.topic for report in reports for block in report.blocks}
    batch = batch_write(app_id, version, run=run, destination=destination_of(options, topics))
    decide = None if app_id is None else decide_batch_write(options)
    _commit(options, connect, staging, messages, batch, decide, planned_under=planned_under)


def _commit(
    options: SinkOptions,
    connect: Connect,
    staging: Staging,
    messages: Messages,
    batch: MicroBatch,
    decide: Decide | None,
    *,
    collector: str | None = None,
    planned_under: Owner | None = None,
) -> CommitReport:
    show(options.log_level, options.log_format)
    reports = [message.report for message in staged(messages)]
    if len(reports) != len(messages):
        raise StagingLost(
            f"{len(messages) - len(reports)} of {len(messages)} write tasks sent no commit message",
            action="Restart the query or job; it writes the whole batch again.",
        )
    batch = pinned(batch, reports)
    with raising_when_ended(), connect(options.client) as cluster:
        return commit_batch(
            committer(options, cluster, decide, planned_under=planned_under),
            batch,
            StagedWrite(cluster, options, staging, lambda: reports, batch.batch_id),
            max_attempts=options.max_attempts,
            choice=Choice(mode="driver", reason="as the sink always does"),
            observe=observer(options, collector),
        )


def pinned(batch: MicroBatch, reports: Sequence[EncodeReport]) -> MicroBatch:
    """`batch`, starting at its end if it is a query's first one, its start is unknown and it writes nothing. Then only
    its end matters.
    """
    if batch.batch_id or batch.start is not None or any(report.blocks for report in reports):
        return batch
    return replace(batch, sources=tuple(source and replace(source, start=source.end) for source in batch.sources))
