"""A long micro-batch in real time: a Spark job for each task, which runs until the batch's time is over.

A job has one task, so that the driver notices at once when one fails, and starts its buckets again while the others run
on. Only the first attempt at a task does anything: a second one would have the same epochs as the first, which may
still run. It reports that, and the driver starts another task with new epochs.
"""

from __future__ import annotations

import contextlib
import functools
import pickle
import time
import uuid
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from pyspark import inheritable_thread_target
from pyspark.sql import DataFrame, SparkSession

from spark_kafka_eos.appending.blocks import EncodeSettings
from spark_kafka_eos.appending.encode_settings import encode_settings
from spark_kafka_eos.errors import ConfigurationError, KafkaEosError, TransactionAborted
from spark_kafka_eos.kafka.logs import logger
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.offsets import log_ends
from spark_kafka_eos.ledger.decide import signer_of
from spark_kafka_eos.ledger.real_time import decide_in_real_time
from spark_kafka_eos.ledger.source_mark import source_mark
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.observe.datagrams import Collector, send_interval
from spark_kafka_eos.observe.observers import BATCHES
from spark_kafka_eos.options import SinkOptions
from spark_kafka_eos.options.outputs import names
from spark_kafka_eos.preflight.run import examine, preflight
from spark_kafka_eos.preflight.sources import check_source_cluster, refuse_loop, refuse_members
from spark_kafka_eos.real_time.buckets import Bucket
from spark_kafka_eos.real_time.driver import RealTimeDriver
from spark_kafka_eos.real_time.intervals import (
    INTERVAL_SECONDS,
    IntervalsOf,
    QueryIntervals,
    TaskReport,
    every,
    line,
    quantiles,
)
from spark_kafka_eos.real_time.latencies import added
from spark_kafka_eos.real_time.supervisor import Supervisor, Threads, failure_of_attempt
from spark_kafka_eos.real_time.task import MakeRows, RealTimeTask, run
from spark_kafka_eos.spark.arrow_stream import RangeReader
from spark_kafka_eos.spark.encode_stage import REPORT, RowBatches, report_row, task_context
from spark_kafka_eos.spark.jvm import (
    RunningQuery,
    comes_from_spark,
    driver_addresses,
    is_classic,
    is_stopped,
    parallelism,
)
from spark_kafka_eos.spark.rows import arrow_rows, without_stale_ids
from spark_kafka_eos.spark.stopping import stop_recognized
from spark_kafka_eos.startup.frozen import freeze_gc
from spark_kafka_eos.startup.quickack import QuickAck
from spark_kafka_eos.transaction.shared import SharedTransaction

_log = logger(BATCHES)

_ANSWER_MS = 5_000  # for the lag of a line of the log


@dataclass(frozen=True)
class RealTimeStage(QuickAck):
    """For `mapInArrow(…, REPORT)` of one row: a pickled TaskReport."""

    task: RealTimeTask
    transform: MakeRows

    def __call__(self, batches: RowBatches) -> RowBatches:
        freeze_gc()
        is_first = task_context().attemptNumber() == 0
        if is_first:
            yield report_row(run(self.task, self.transform, send=send_interval))
        else:
            yield report_row(failure_of_attempt("this is another attempt"))


@dataclass(frozen=True)
class _SinkRows:
    """What the records that were read become, in the types that are encoded."""

    reader: RangeReader

    def __call__(self, read: RowBatches, settings: EncodeSettings) -> RowBatches:
        rows = arrow_rows(self.reader.rows(read, settings), dead_letters=settings.dead_letters is not None)
        return (without_stale_ids(batch, settings.schema_ids) for batch in rows)


class RealTimeWriter:
    """The batches of one query in real time, for foreachBatch. It pickles without its connections.

    `reader` makes rows of the sink from the records that it reads. A batch lasts for
    `seconds`, or until what is available is written, with the trigger availableNow. `buckets` is how many there are,
    None for as many as there were, and first as many as tasks run at once. `commit_interval` is in seconds, too.
    """

    def __init__(
        self,
        options: SinkOptions,
        reader: RangeReader,
        seconds: float,
        *,
        buckets: int | None,
        commit_interval: float | None,
    ) -> None:
        if options.delivery_guarantee != "exactly-once" or options.two_phase_commit:
            raise ConfigurationError("real_time", "needs deliveryGuarantee=exactly-once, without twoPhaseCommit")
        self._options, self._source, self._transform = options, reader.source, _SinkRows(reader)
        self._seconds, self._buckets, self._commit_interval = seconds, buckets, commit_interval
        self._connected: tuple[Cluster, RealTimeDriver] | None = None

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_connected": None}

    def __call__(self, ranges: DataFrame, batch_id: int) -> None:
        session = ranges.sparkSession
        if not is_classic(session):
            raise ConfigurationError("real_time", "needs a classic Spark session", action="Use micro-batches.")
        with stop_recognized(session):
            query = RunningQuery(ranges, self._options.checkpoint_location)
            batch = replace(query.micro_batch(batch_id), run_id=query.run_id)
            cluster, driver = self._connect()
            driver.check(batch)
            self._check(cluster, batch)
            with self._intervals(session, batch, query.collector()) as intervals:
                self._run(session, cluster, driver, batch, intervals, to_end=query.ends_with_what_is_available())

    def _connect(self) -> tuple[Cluster, RealTimeDriver]:
        if self._connected is None:
            cluster = Cluster(self._options.client)
            weakref.finalize(self, cluster.close)
            preflight(cluster, self._options, examine=functools.partial(examine, buckets=self._buckets or 1))
            transaction = SharedTransaction(self._options, cluster, decide_in_real_time(self._options))
            fails = self._source.fail_on_data_loss
            driver = RealTimeDriver(self._options, cluster, transaction, fail_on_data_loss=fails)
            self._connected = cluster, driver
        return self._connected

    def _check(self, cluster: Cluster, batch: MicroBatch) -> None:
        named = (self._options.topic, *names(self._options.output_topics))
        check_source_cluster(cluster, self._options, batch)
        refuse_members(cluster, self._options, batch)
        refuse_loop(cluster, self._options, batch, [topic for topic in named if topic is not None])

    @contextlib.contextmanager
    def _intervals(
        self, session: SparkSession, batch: MicroBatch, listener: str | None
    ) -> Iterator[IntervalsOf | None]:
        """Log what the tasks report while they run, and pass it on to the session's listener, if there is one."""
        bind, host = driver_addresses(session)
        with contextlib.ExitStack() as stack:
            asking = stack.enter_context(Cluster(self._source.client.answering_within(_ANSWER_MS)))
            intervals = QueryIntervals(lambda positions: log_ends(asking, positions), time.monotonic)
            try:
                collector = stack.enter_context(
                    contextlib.closing(Collector(bind=bind, host=host, interval=intervals.add))
                )
            except OSError as error:
                _log.warning("no figures of tasks while they run: cannot open a UDP port of %s: %s", bind, error)
                yield None
                return

            def tell() -> None:
                collector.drain()
                tally = intervals.next()
                if tally is None:
                    return
                if tally.records_read:
                    _log.info("%s", line(tally))
                if listener is not None:
                    send_interval(listener, tally)

            stack.enter_context(every(INTERVAL_SECONDS, tell))
            yield IntervalsOf(
                query_id=batch.query_id,
                batch_id=batch.batch_id,
                transactional_id=self._options.transactional_id,
                address_and_key=collector.address_and_key,
            )

    def _run(
        self,
        session: SparkSession,
        cluster: Cluster,
        driver: RealTimeDriver,
        batch: MicroBatch,
        intervals: IntervalsOf | None,
        *,
        to_end: bool,
    ) -> None:
        tasks = parallelism(session)
        first = max(1, min(tasks, len(batch.end)))
        settings = encode_settings(
            self._options, self._options.topic, cluster, query_id=batch.query_id, batch_id=batch.batch_id
        )

        def start(numbers: Collection[int] | None) -> Sequence[Bucket]:
            return driver.start(batch, self._buckets, numbers, first=first, to_end=to_end)

        def run_task(buckets: Sequence[Bucket], seconds: float) -> TaskReport:
            stage = RealTimeStage(self._task(buckets, settings, seconds, intervals), self._transform)
            try:
                (row,) = session.range(0, 1, 1, 1).mapInArrow(stage, REPORT).collect()
            except Exception as error:
                if is_stopped(session) or not comes_from_spark(error):
                    raise
                return failure_of_attempt(str(error).strip().partition("\n")[0])
            report: TaskReport = pickle.loads(row.report)
            return report

        with _cancelable(session) as cancel:
            supervisor = Supervisor(
                start,
                run_task,
                cancel,
                tasks=tasks,
                seconds=self._seconds,
                most_failures=self._options.max_attempts,
                skips_lost=not self._source.fail_on_data_loss,
                threads=Threads(inheritable_thread_target(session)),
            )
            try:
                _log_reports(batch, supervisor.run())
            except BaseException as error:
                try:
                    driver.end()
                except KafkaEosError as second:
                    _log.warning("what the tasks had open ends after its timeout, or with the next start: %s", second)
                if is_stopped(session):
                    raise TransactionAborted("the query was stopped", committed="earlier") from error
                if isinstance(error, KafkaEosError):  # a transaction is that of a bucket, not of the batch
                    error.committed = "earlier"
                raise

    def _task(
        self,
        buckets: Sequence[Bucket],
        settings: EncodeSettings,
        seconds: float,
        intervals: IntervalsOf | None,
    ) -> RealTimeTask:
        return RealTimeTask(
            buckets=tuple(buckets),
            source=self._source,
            client=self._options.client,
            settings=settings,
            group_id=self._options.group_id,
            mark=source_mark(self._options.transactional_id),
            seconds=seconds,
            commit_interval=self._commit_interval,
            signer=signer_of(self._options),
            intervals=intervals,
        )


@contextlib.contextmanager
def _cancelable(session: SparkSession) -> Iterator[Callable[[], None]]:
    """What cancels the jobs that are begun in this context, by any thread that inherits from this one."""
    tag = f"kafka-eos-real-time-{uuid.uuid4().hex}"
    context = session.sparkContext
    context.addJobTag(tag)
    try:
        yield lambda: context.cancelJobsWithTag(tag)
    finally:
        context.removeJobTag(tag)


def _log_reports(batch: MicroBatch, reports: Sequence[TaskReport]) -> None:
    latencies, commits = added(report.latencies for report in reports), added(report.commits for report in reports)
    _log.info(
        "batch %d of query %s in real time: records=%d written=%d bytes=%d transactions=%d dead_letters=%d "
        "%s %s restarts=%d",
        batch.batch_id,
        batch.query_id,
        sum(report.records_read for report in reports),
        sum(report.records for report in reports),
        sum(report.bytes for report in reports),
        sum(report.transactions for report in reports),
        sum(report.dead_letters.total() for report in reports),
        quantiles("latency", latencies),
        quantiles("commit", commits),
        sum(report.error is not None for report in reports),
    )
