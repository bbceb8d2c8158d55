"""The sink's commit: what Spark calls once all write tasks of a micro-batch or batch write have ended.

It runs in a process of its own, which needs neither Spark's session nor Arrow, and imports neither. The other processes
of the sink do not import this.

Spark keeps that process for the next micro-batch (it ends one that was idle for a minute), and with it the connections,
and what they have shown: leaders, coordinators, topic ids, versions, as TransactionalWriter keeps them. A broker that
is no longer the right one says so. Nothing is kept of what a verdict is based on: each micro-batch asks again who owns
the transactional.id, and what is committed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial

from pyspark.sql.datasource import WriterCommitMessage

from spark_kafka_eos.appending.append import BlockAppender
from spark_kafka_eos.appending.append_mode import Choice
from spark_kafka_eos.appending.report import CommitReport, EncodeReport
from spark_kafka_eos.appending.staging import Staging
from spark_kafka_eos.errors import KafkaEosError, StagingLost
from spark_kafka_eos.kafka.logs import logger
from spark_kafka_eos.kafka.producer import ProducerEpoch
from spark_kafka_eos.kafka.protocol import describe
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.ledger.decide import Decide, batch_write, decide_batch_write, decide_micro_batch, destination_of
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.observe.observers import observer
from spark_kafka_eos.options import ClientOptions, SinkOptions
from spark_kafka_eos.preflight.sources import refuse_loop, refuse_members
from spark_kafka_eos.spark.commit_log import show
from spark_kafka_eos.spark.staged_message import staged
from spark_kafka_eos.spark.worker import raising_when_ended
from spark_kafka_eos.transaction.commit import commit_batch, committer
from spark_kafka_eos.transaction.steps import described

_log = logger(__name__)

Messages = Sequence[WriterCommitMessage | None]
Connect = Callable[[ClientOptions], Cluster]

# Well below the 10 minutes after which brokers close an idle connection (`connections.max.idle.ms`).
_KEPT_SECONDS = 60.0
# With when it was used last. A process commits for each query that an idle one is wanted for.
_kept: dict[tuple[Connect, ClientOptions], tuple[Cluster, float]] = {}


@contextmanager
def kept_cluster(
    connect: Connect, client: ClientOptions, clock: Callable[[], float] = time.monotonic
) -> Iterator[Cluster]:
    """The cluster that this process used last with these options, unless that was long ago or ended in an error; else a
    new one.
    """
    for name, (unused, last) in list(_kept.items()):
        if clock() - last > _KEPT_SECONDS:
            del _kept[name]
            unused.close()
    cluster, _ = _kept.pop((connect, client), (None, 0.0))
    cluster = cluster or connect(client)
    try:
        yield cluster
    except BaseException:
        cluster.close()
        raise
    _kept[connect, client] = cluster, clock()


def commit_micro_batch(
    options: SinkOptions, connect: Connect, staging: Staging, messages: Messages, batch: MicroBatch
) -> CommitReport:
    """Commit a stream's micro-batch: its records, source offsets and ledger entry in one transaction."""
    collectors = {message.collector for message in staged(messages)} - {None}
    decide = decide_micro_batch(options)
    connected = partial(kept_cluster, connect, options.client)
    return _commit(options, connected, staging, messages, batch, decide, collector=next(iter(collectors), None))


def commit_batch_write(
    options: SinkOptions,
    connect: Connect,
    staging: Staging,
    messages: Messages,
    *,
    run: str,
    planned_under: ProducerEpoch | None,
) -> None:
    """Commit the whole write of a `run` or nothing. With `txnAppId`, skip it if the ledger shows it as committed. When
    it returns, readers see all of it.
    """
    app_id, version = options.txn_app_id, options.txn_version
    reports = [message.report for message in staged(messages)]
    topics = {block.partition.topic for report in reports for block in report.blocks}
    batch = batch_write(app_id, version, run=run, destination=destination_of(options, topics))
    decide = None if app_id is None else decide_batch_write(options)

    @contextmanager
    def connected() -> Iterator[Cluster]:
        with connect(options.client) as cluster:
            yield cluster
            if options.delivery_guarantee == "exactly-once":
                _await_markers(cluster, options.transactional_id)

    _commit(options, connected, staging, messages, batch, decide, planned_under=planned_under)


def _await_markers(cluster: Cluster, transactional_id: str) -> None:
    """Wait until the committed transaction has its marker in each partition: until then, a reader sees it in some and
    not in others, and the job's next step may read it. A stream does not wait: its next batch takes as long.
    """
    try:
        describe.settled(cluster, partial(described, cluster, transactional_id))
    except KafkaEosError as error:
        _log.warning("the write is committed, but readers may not see all of it yet: %s", error.what)


def _commit(
    options: SinkOptions,
    connected: Callable[[], AbstractContextManager[Cluster]],
    staging: Staging,
    messages: Messages,
    batch: MicroBatch,
    decide: Decide | None,
    *,
    collector: str | None = None,
    planned_under: ProducerEpoch | None = None,
) -> CommitReport:
    show(options.log_level, options.log_format)
    reports = [message.report for message in staged(messages)]
    if len(reports) != len(messages):
        raise StagingLost(
            f"{len(messages) - len(reports)} of {len(messages)} write tasks sent no commit message",
            action="Restart the query or job; it writes the whole batch again.",
        )
    batch = pinned(batch, reports)
    with raising_when_ended(), connected() as cluster:
        refuse_members(cluster, options, batch)
        refuse_loop(cluster, options, batch, {block.partition.topic for report in reports for block in report.blocks})
        return commit_batch(
            committer(options, cluster, decide, planned_under=planned_under),
            batch,
            BlockAppender(cluster, options, staging, lambda: reports, batch.batch_id),
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
