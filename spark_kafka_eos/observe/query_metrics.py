"""The metrics of the queries of one Spark session, from Spark's events and from what the sinks' commits report. Pure.

A query is shown by its name, or by its id if it has none. Names are stable, and short enough for a legend.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

from spark_kafka_eos.dead_letters.causes import Cause
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.observe.metrics import Metric, Series, by_topic
from spark_kafka_eos.observe.progress import QueryFigures
from spark_kafka_eos.observe.tallies import BatchOutcome, IntervalTally

MOST_QUERIES = 100
"""The most queries that have series; more displace those that have not reported for longest."""

INFO = Metric(
    "kafka_eos_query_info",
    "gauge",
    ("query", "query_id", "transactional_id"),
    "Always 1: the query's id, and its transactional id once a batch was written.",
)
RUNNING = Metric("kafka_eos_query_running", "gauge", ("query",), "1 while the query runs, 0 after it has ended.")
FAILED = Metric(
    "kafka_eos_query_failed",
    "gauge",
    ("query",),
    "1 after the query ended with an error, until it starts again; else 0.",
)
FAILURES = Metric(
    "kafka_eos_query_failures_total", "counter", ("query",), "Runs of the query that ended with an error."
)
LAST_BATCH = Metric(
    "kafka_eos_last_batch_timestamp_seconds",
    "gauge",
    ("query",),
    "When Spark last completed a micro-batch, in seconds since 1970.",
)
LAST_EVENT = Metric(
    "kafka_eos_last_event_timestamp_seconds",
    "gauge",
    ("query",),
    "When Spark last reported a start, a batch, or that the query is idle, or a query in real time what it did, in "
    "seconds since 1970.",
)
BATCHES = Metric(
    "kafka_eos_batches_total",
    "counter",
    ("query", "outcome"),
    "Micro-batches by outcome: committed, skipped, refused (LedgerRefused), failed (any other error).",
)
ABORTED = Metric(
    "kafka_eos_aborted_attempts_total",
    "counter",
    ("query",),
    "Attempts that were aborted: the batch was then written again, or failed.",
)
ERRORS = Metric(
    "kafka_eos_batch_errors_total",
    "counter",
    ("query", "error"),
    "Batches that failed or were refused, by error class.",
)
LAST_ERROR = Metric(
    "kafka_eos_last_batch_error",
    "gauge",
    ("query", "error"),
    "1 if the last batch failed or was refused, by error class, until a batch ends well or the query starts again.",
)
RETRIES = Metric("kafka_eos_request_retries_total", "counter", ("query", "error"), "Requests of the sink sent again.")
RECORDS_WRITTEN = Metric("kafka_eos_written_records_total", "counter", ("query",), "Records that the sink committed.")
BYTES_WRITTEN = Metric(
    "kafka_eos_written_bytes_total", "counter", ("query",), "Bytes of record batches that the sink committed."
)
DEAD_LETTERS = Metric(
    "kafka_eos_dead_letters_total",
    "counter",
    ("query", "cause"),
    "Dead letters that the sink committed; they are among the written records. A user's own causes are `other`.",
)
RECORDS_READ = Metric("kafka_eos_read_records_total", "counter", ("query",), "Rows that the query's sources returned.")
BYTES_READ = Metric(
    "kafka_eos_read_bytes_total",
    "counter",
    ("query",),
    "Bytes of record batches that the tasks read, as Kafka stores them, aborted ones included.",
)
RECORDS_ABORTED = Metric(
    "kafka_eos_read_aborted_records_total",
    "counter",
    ("query",),
    "Records that the tasks left out, because their transaction was aborted.",
)
STEP = Metric(
    "kafka_eos_step_duration_seconds",
    "histogram",
    ("query", "step"),
    "Wall time of the sink's steps of a batch: begin, encode, append, offsets, end.",
)
TRIGGER = Metric(
    "kafka_eos_trigger_duration_seconds", "histogram", ("query",), "Wall time of Spark's triggers that had a batch."
)
PHASE = Metric(
    "kafka_eos_trigger_phase_seconds_total",
    "counter",
    ("query", "phase"),
    "Wall time of Spark's triggers by phase, as in the progress' durationMs.",
)
EPOCH = Metric("kafka_eos_producer_epoch", "gauge", ("query",), "The producer epoch of the last batch.")
LEDGER_BATCH = Metric(
    "kafka_eos_ledger_batch", "gauge", ("query",), "The batch that the ledger has: the last one committed or skipped."
)
LAST_COMMIT = Metric(
    "kafka_eos_last_commit_timestamp_seconds",
    "gauge",
    ("query",),
    "When the sink last committed a batch, in seconds since 1970.",
)
LAG = Metric(
    "kafka_eos_lag_offsets",
    "gauge",
    ("query", "topic"),
    "Offsets between the end of the last batch, in real time of the last transactions, and the last stable offset, "
    "over all partitions.",
)
LAG_SECONDS = Metric(
    "kafka_eos_lag_seconds",
    "gauge",
    ("query", "topic"),
    "Age of the oldest record that could be read and is not in a completed batch, as far as it is known; 0 if there is "
    "none, absent instead of 0 if that of a partition is not known.",
)
LSO_LAG = Metric(
    "kafka_eos_lso_lag_offsets",
    "gauge",
    ("query", "topic"),
    "Offsets that open transactions hold back: from the last stable offset to the high watermark, over all partitions.",
)
OPEN_AGE = Metric(
    "kafka_eos_open_transaction_age_seconds",
    "gauge",
    ("query", "topic"),
    "Age of the oldest transaction that has held a last stable offset for `patience`; absent if there is none.",
)
TRANSACTIONS = Metric(
    "kafka_eos_real_time_transactions_total", "counter", ("query",), "Transactions that a query in real time committed."
)
LATENCY = Metric(
    "kafka_eos_real_time_latency_seconds",
    "histogram",
    ("query",),
    "Age of records when their transaction was committed, by their timestamps, of a query in real time.",
)
COMMIT = Metric(
    "kafka_eos_real_time_transaction_seconds",
    "histogram",
    ("query",),
    "Wall time of a transaction of a query in real time: transform, append, offsets, commit.",
)
KAFKA_UP = Metric("kafka_eos_kafka_up", "gauge", (), "1 if Kafka answered the listener's last requests, else 0.")

QUERY_METRICS: tuple[Metric, ...] = (
    INFO,
    RUNNING,
    FAILED,
    FAILURES,
    LAST_BATCH,
    LAST_EVENT,
    BATCHES,
    ABORTED,
    ERRORS,
    LAST_ERROR,
    RETRIES,
    RECORDS_WRITTEN,
    BYTES_WRITTEN,
    DEAD_LETTERS,
    RECORDS_READ,
    BYTES_READ,
    RECORDS_ABORTED,
    STEP,
    TRIGGER,
    PHASE,
    EPOCH,
    LEDGER_BATCH,
    LAST_COMMIT,
    LAG,
    LAG_SECONDS,
    LSO_LAG,
    OPEN_AGE,
    TRANSACTIONS,
    LATENCY,
    COMMIT,
    KAFKA_UP,
)
_OF_NOW = (LAG, LSO_LAG, OPEN_AGE)  # what is no longer true when it cannot be asked for


@dataclass(slots=True)
class _Query:
    query_id: str
    transactional_id: str = ""
    waits_since: Mapping[TopicPartition, float] = field(default_factory=dict)  # 0 if nothing waits
    in_real_time: bool = False
    series: Series = field(default_factory=Series)


class QueryMetrics:
    """The queries' series. Thread-safe: events, commits and scrapes come on different threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._names: OrderedDict[str, str] = OrderedDict()  # by query id: the label
        self._queries: OrderedDict[str, _Query] = OrderedDict()  # by label
        self._kafka_up: bool | None = None

    def started(self, query_id: str, name: str | None, *, now: float) -> None:
        with self._lock:
            label, query = self._query(query_id, name)
            _runs(query, label, now)
            query.series.add(FAILURES, label, amount=0)
            query.series.clear(LAST_ERROR)

    def ended(self, query_id: str, *, failed: bool) -> None:
        """The query has ended. Its counters stay; its lag and what holds it are not known any more."""
        with self._lock:
            label, query = self._query(query_id)
            query.series.set(RUNNING, label, value=0)
            query.series.set(FAILED, label, value=failed)
            query.series.add(FAILURES, label, amount=failed)
            query.series.clear(*_OF_NOW)
            query.waits_since = {}
            query.in_real_time = False

    def kafka_answered(self, answered: bool) -> None:
        with self._lock:
            self._kafka_up = answered

    def committed(self, batch: BatchOutcome) -> None:
        """Include what a sink reports of a batch."""
        with self._lock:
            label, query = self._query(batch.query_id)
            query.transactional_id = batch.transactional_id
            series = query.series
            series.add(BATCHES, label, batch.outcome)
            series.add(ABORTED, label, amount=batch.aborted_attempts)
            series.add(RECORDS_WRITTEN, label, amount=batch.records)
            series.add(BYTES_WRITTEN, label, amount=batch.bytes)
            for cause, dead in batch.dead_letters.items():
                series.add(DEAD_LETTERS, label, cause if cause in set(Cause) else Cause.OTHER, amount=dead)
            series.clear(LAST_ERROR)
            if batch.error:
                series.add(ERRORS, label, batch.error)
                series.set(LAST_ERROR, label, batch.error, value=1)
            for error, retries in batch.retries.items():
                series.add(RETRIES, label, error, amount=retries)
            for step, milliseconds in batch.milliseconds.items():
                series.observe(STEP, label, step, seconds=milliseconds / 1e3)
            if batch.epoch is not None:
                series.set(EPOCH, label, value=batch.epoch)
            if batch.transactional_id and batch.outcome in ("committed", "skipped"):  # at-least-once has no ledger
                series.set(LEDGER_BATCH, label, value=batch.batch_id)
            if batch.outcome == "committed":
                series.set(LAST_COMMIT, label, value=batch.ended_at)

    def in_real_time(self, tally: IntervalTally, *, now: float) -> None:
        """Include what a query in real time did in the last seconds; it has no other batches."""
        with self._lock:
            label, query = self._query(tally.query_id)
            query.in_real_time, query.transactional_id, query.waits_since = True, tally.transactional_id, {}
            series = query.series
            series.set(LAST_EVENT, label, value=now)
            series.add(RECORDS_READ, label, amount=tally.records_read)
            series.add(RECORDS_WRITTEN, label, amount=tally.records)
            series.add(BYTES_WRITTEN, label, amount=tally.bytes)
            series.add(TRANSACTIONS, label, amount=tally.transactions)
            for cause, dead in tally.dead_letters.items():
                series.add(DEAD_LETTERS, label, cause if cause in set(Cause) else Cause.OTHER, amount=dead)
            for metric, times in ((LATENCY, tally.latencies), (COMMIT, tally.commits)):
                for milliseconds, count in times:
                    series.observe(metric, label, seconds=milliseconds / 1e3, times=int(count))
            if tally.transactions:
                series.set(LAST_COMMIT, label, value=now)
            series.clear(*_OF_NOW)
            for metric, by_topics in ((LAG, tally.unread), (LSO_LAG, tally.held)):
                for topic, offsets in (by_topics or {}).items():
                    series.set(metric, label, topic, value=offsets)

    def idle(self, query_id: str, *, now: float) -> None:
        with self._lock:
            label, query = self._query(query_id)
            _runs(query, label, now)

    def completed(self, query_id: str, name: str | None, *, now: float, phases: Mapping[str, int]) -> None:
        """Include a trigger that had a batch: `phases` as in the progress' `durationMs`."""
        with self._lock:
            label, query = self._query(query_id, name)
            _runs(query, label, now)
            query.series.set(LAST_BATCH, label, value=now)
            for phase, milliseconds in phases.items():
                if phase == "triggerExecution":
                    query.series.observe(TRIGGER, label, seconds=milliseconds / 1e3)
                else:
                    query.series.add(PHASE, label, phase, amount=milliseconds / 1e3)

    def read(
        self,
        figures: QueryFigures,
        *,
        lag: Mapping[TopicPartition, int],
        waits_since: Mapping[TopicPartition, float],
        open_age: Mapping[TopicPartition, float],
    ) -> None:
        """Include what is known of a query's sources: the `lag` of each partition in offsets, since when its oldest
        unread record waits, in seconds since 1970, and the `open_age`, in seconds, of the transaction that holds its
        last stable offset. Partitions of which that is unknown are left out.
        """
        with self._lock:
            label, query = self._query(figures.query_id, figures.name)
            if query.in_real_time:  # whose batches end where they were planned to, not where its transactions are
                return
            series = query.series
            for source in figures.sources:
                series.add(RECORDS_READ, label, amount=source.rows)
                series.add(BYTES_READ, label, amount=source.bytes_read or 0)
                series.add(RECORDS_ABORTED, label, amount=source.rows_aborted or 0)
            series.clear(*_OF_NOW)
            undated = {tp.topic for tp, offsets in lag.items() if offsets and tp not in waits_since}
            waits = {tp: 0.0 for tp, offsets in lag.items() if not offsets} | dict(waits_since)
            query.waits_since = {tp: since for tp, since in waits.items() if since or tp.topic not in undated}
            held_back = {tp: lag for source in figures.sources for tp, lag in (source.lso_lag or {}).items()}
            for metric, by_partition, combine in (
                (LAG, lag, sum),
                (LSO_LAG, held_back, sum),
                (OPEN_AGE, open_age, max),
            ):
                for topic, value in by_topic(by_partition, combine).items():
                    series.set(metric, label, topic, value=value)

    def series(self, now: float) -> Series:
        """A copy of all values, for a scrape at `now`."""
        series = Series()
        with self._lock:
            for label, query in self._queries.items():
                series.take(query.series)
                series.set(INFO, label, query.query_id, query.transactional_id, value=1)
                waits = {tp: max(0.0, now - since) if since else 0.0 for tp, since in query.waits_since.items()}
                for topic, seconds in by_topic(waits, max).items():
                    series.set(LAG_SECONDS, label, topic, value=seconds)
            if self._kafka_up is not None:
                series.set(KAFKA_UP, value=self._kafka_up)
        return series

    def _query(self, query_id: str, name: str | None = None) -> tuple[str, _Query]:
        """A query's label, which is its name if the first event has one, and its values."""
        label = self._names.setdefault(query_id, name or query_id)
        self._names.move_to_end(query_id)
        query = self._queries.setdefault(label, _Query(query_id))
        query.query_id = query_id
        self._queries.move_to_end(label)
        for kept in (self._names, self._queries):
            while len(kept) > MOST_QUERIES:
                kept.popitem(last=False)
        return label, query


def _runs(query: _Query, label: str, now: float) -> None:
    """Spark reported something of a query that runs. Each event says so, not only the start: Spark reports a start at
    once and an end through a queue, so the end of the run before may come after it.
    """
    query.series.set(LAST_EVENT, label, value=now)
    query.series.set(RUNNING, label, value=1)
    query.series.set(FAILED, label, value=0)
