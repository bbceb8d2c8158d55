"""A long micro-batch in real time: a Spark job for each task, which runs until the batch's time is over.

A job has one task, so that the driver notices at once when one fails, and starts its buckets again while the others run
on. Only the first attempt at a task does anything: a second one would have the same epochs as the first, which may
still run. It reports that, and the driver starts another task with new epochs.

The function of a batch returns a little before its tasks end. So Spark's work between two batches is done by then, and
the next batch only has to wait for these tasks before it takes the buckets.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import math
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from typing import Never

from pyspark import inheritable_thread_target
from pyspark.sql import DataFrame, SparkSession

from spark_kafka_eos.appending.blocks import EncodeSettings
from spark_kafka_eos.appending.encode_settings import encode_settings
from spark_kafka_eos.errors import ConfigurationError, KafkaEosError, ProducerFenced, TransactionAborted
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
from spark_kafka_eos.real_time.supervisor import Supervisor, Threads, failure_of_attempt, in_thread
from spark_kafka_eos.real_time.task import RealTimeTask, run
from spark_kafka_eos.spark.arrow_stream import RangeReader
from spark_kafka_eos.spark.encode_stage import RowBatches, task_context
from spark_kafka_eos.spark.jvm import (
    RunningQuery,
    comes_from_spark,
    driver_addresses,
    is_classic,
    parallelism,
    reason_of,
)
from spark_kafka_eos.spark.rows import arrow_rows, without_stale_ids
from spark_kafka_eos.spark.stopping import stop_recognized
from spark_kafka_eos.startup.frozen import freeze_gc
from spark_kafka_eos.startup.quickack import QuickAck
from spark_kafka_eos.transaction.shared import SharedTransaction

_log = logger(BATCHES)

_ANSWER_MS = 5_000  # for the lag of a line of the log
# Rows without a key that go to the same partition: each partition costs a transaction a marker, and an append.
_LEAST_RUN = 100
_LOOK_SECONDS = 1.0  # between two looks whether the query was stopped
_AHEAD_SECONDS = 5.0  # of the end of its tasks, a batch's function returns; at most half of the batch


@dataclass(frozen=True)
class _SinkRows:
    """What the records that were read become, in the types that are encoded."""

    reader: RangeReader

    def __call__(self, read: RowBatches, settings: EncodeSettings) -> RowBatches:
        rows = arrow_rows(self.reader.rows(read, settings), dead_letters=settings.dead_letters is not None)
        return (without_stale_ids(batch, settings.schema_ids) for batch in rows)


@dataclass(frozen=True)
class RealTimeStage(QuickAck):
    """For `RDD.mapPartitions`. It is planned in half of the time that a DataFrame takes, in which nothing is read."""

    task: RealTimeTask
    transform: _SinkRows

    def __call__(self, rows: Iterable[object]) -> Iterator[TaskReport]:
        freeze_gc()
        yield from _drained(rows)
        is_first = task_context().attemptNumber() == 0
        if is_first:
            with contextlib.closing(self.transform.reader):  # what it has open lasts for all transactions
                yield run(self.task, self.transform, send=send_interval)
        else:
            yield failure_of_attempt("its first attempt failed, and Spark's log says why")


class RealTimeWriter:
    """The batches of one query in real time, for foreachBatch. It pickles without its connections.

    `reader` makes rows of the sink from the records that it reads. A batch lasts for
    `seconds`, or until what is available is written, with the trigger availableNow. `buckets` is how many there are,
    None for as many as there were, and in a first run one. `commit_interval` is in seconds, too.
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
        if options.max_dead_letters is not None:
            raise ConfigurationError(
                "maxDeadLetters",
                "limits those of a micro-batch, and in real time a micro-batch has committed long before it ends",
                action="Remove it, and watch the dead letters instead (docs/real-time.md), or use micro-batches.",
            )
        if options.topic is None and not options.output_topics:
            raise ConfigurationError(
                "outputTopics",
                "is required in real time if rows name their topics: the driver does not see the rows, and must know "
                "where the query writes, to end what its tasks leave there, and to see whether it reads its own output",
                action="List all topics that rows may name in outputTopics, or set topic.",
            )
        self._options, self._source, self._transform = options, reader.source, _SinkRows(reader)
        self._seconds, self._buckets, self._commit_interval = seconds, buckets, commit_interval
        self._connected: tuple[Cluster, RealTimeDriver] | None = None
        self._running: tuple[str | None, Future[None]] | None = None  # the last batch, by the query's run
        self._workers: Future[None] | None = None  # those of the first tasks, which begin beside the buckets
        self._overtaken: set[str | None] = set()  # runs of queries that another one has followed
        self._turn = threading.Lock()  # to wait for the last batch and begin the next one

    def __getstate__(self) -> dict[str, object]:
        running = dict.fromkeys(("_connected", "_running", "_workers", "_turn"))
        return self.__dict__ | running | {"_overtaken": set()}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._turn = threading.Lock()

    def __call__(self, ranges: DataFrame, batch_id: int) -> None:
        session = ranges.sparkSession
        if not is_classic(session):
            raise ConfigurationError("real_time", "needs a classic Spark session", action="Use micro-batches.")
        with stop_recognized(session, lambda: "earlier"):
            query = RunningQuery(ranges, self._options.checkpoint_location)
            batch = replace(query.micro_batch(batch_id), run_id=query.run_id)
            with self._turn:
                self._end_last(session, query)
                running = self._begin(session, batch, query)
                self._running = query.run_id, running
            ahead = min(_AHEAD_SECONDS, self._seconds / 2)
            _wait(session, query, running, self._seconds - ahead if query.runs_on() else None)
            if running.done():
                running.result()

    def _end_last(self, session: SparkSession, query: RunningQuery) -> None:
        """Wait until the tasks of the batch before have ended; raises their error, and ProducerFenced if another query
        was started from the same stream since.
        """
        if query.run_id in self._overtaken:
            raise ProducerFenced("another query was started from the same stream", committed="earlier")
        last = self._running
        if last is None:
            return
        run_id, running = last
        if run_id != query.run_id:
            self._overtaken.add(run_id)
        _wait(session, query, running)
        error = running.exception()
        if error is not None and run_id == query.run_id:
            raise error

    def _begin(self, session: SparkSession, batch: MicroBatch, query: RunningQuery) -> Future[None]:
        """Run the batch in a thread of its own, which ends with its tasks."""
        listener, to_end = query.collector(), query.ends_with_what_is_available()
        if self._source.ending_offsets != "latest" and not to_end:
            raise ConfigurationError(
                "real_time",
                "with another trigger than availableNow a query reads on for ever, but the source's options set an end",
                action="Use trigger(availableNow=True), or remove endingOffsets, endingTimestamp or "
                "endingOffsetsByTimestamp.",
            )
        inheriting = inheritable_thread_target(session)
        if self._workers is None:
            begin_workers = functools.partial(_begin_workers, session, self._buckets or 1)
            self._workers = in_thread(inheriting(begin_workers), "kafka-eos-workers")

        def run() -> None:
            cluster, driver = self._connect()
            driver.check(batch)
            self._check(cluster, batch)
            with self._intervals(session, batch, listener) as intervals:
                self._run(session, query, cluster, driver, batch, intervals, to_end=to_end)

        return in_thread(inheriting(run), "kafka-eos-long-batch")

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
        check_source_cluster(cluster, self._options, batch)
        refuse_members(cluster, self._options, batch)
        refuse_loop(cluster, self._options, batch)

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
        query: RunningQuery,
        cluster: Cluster,
        driver: RealTimeDriver,
        batch: MicroBatch,
        intervals: IntervalsOf | None,
        *,
        to_end: bool,
    ) -> None:
        settings = replace(
            encode_settings(
                self._options,
                self._options.topic,
                cluster,
                query_id=batch.query_id,
                batch_id=batch.batch_id,
                batch_name=f"{batch.query_id}/{batch.batch_id}",
            ),
            least_run=_LEAST_RUN,
        )

        def start(numbers: Collection[int] | None) -> Sequence[Bucket]:
            buckets = driver.start(batch, self._buckets, numbers, to_end=to_end)
            if self._workers is not None:
                wait([self._workers])  # if they could not begin, the tasks say why
            return buckets

        def run_task(buckets: Sequence[Bucket], seconds: float) -> TaskReport:
            stage = RealTimeStage(self._task(buckets, settings, seconds, intervals), self._transform)
            try:
                (report,) = session.sparkContext.parallelize([None], 1).mapPartitions(stage).collect()
            except Exception as error:
                if query.is_stopped() or not comes_from_spark(error):
                    raise
                return failure_of_attempt(reason_of(error))
            return report

        with _cancelable(session) as cancel:
            supervisor = Supervisor(
                start,
                run_task,
                cancel,
                tasks=parallelism(session),
                seconds=self._seconds,
                most_failures=self._options.max_attempts,
                skips_lost=not self._source.fail_on_data_loss,
                threads=Threads(inheritable_thread_target(session)),
            )
            try:
                reports = supervisor.run()
                driver.ended(batch, (bucket for report in reports for bucket in report.ended))
                _log_reports(batch, reports)
            except BaseException as error:
                try:
                    driver.end(batch)
                except KafkaEosError as second:
                    _log.warning("what the tasks had open ends after its timeout, or with the next start: %s", second)
                if query.is_stopped():
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


def _wait(session: SparkSession, query: RunningQuery, running: Future[None], seconds: float | None = None) -> None:
    """Wait for the end of a batch, for so many seconds at most. When a query is stopped, Spark cancels its jobs, and
    once more when the function has returned: a task that begins in between would last for the whole batch.
    """
    deadline = math.inf if seconds is None else time.monotonic() + seconds
    while not running.done() and (left := deadline - time.monotonic()) > 0:
        wait([running], min(left, _LOOK_SECONDS))
        if query.run_id is not None and not running.done() and query.is_stopped():
            session.sparkContext.cancelJobGroup(query.run_id)


def _begin_workers(session: SparkSession, tasks: int) -> None:
    """Run so many tasks that do nothing: the first ones of the query use their Python workers. And the JVM has loaded
    by then what it runs when a job ends, which takes a tenth of a second; at the end of the first long batch, records
    would wait for that.
    """
    tasks = min(tasks, parallelism(session))
    session.sparkContext.parallelize(range(tasks), tasks).mapPartitions(_drained).collect()


def _drained(rows: Iterable[object]) -> Iterator[Never]:
    """Nothing, once the rows are read: Spark ends a worker that leaves some of its input, and it takes a second to
    start the next one.
    """
    collections.deque(rows, maxlen=0)
    return iter(())


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
