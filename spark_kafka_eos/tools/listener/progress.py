"""`ProgressListener`: logs after each micro-batch how far its Kafka sources lag behind, and what blocks them.

    listener = ProgressListener(source_options)
    spark.streams.addListener(listener)

Spark calls listeners on a separate thread, so the listener cannot delay or stop a query. If Kafka does not answer, it
logs one warning, and the next one only after Kafka has answered again.

Spark reports progress only for triggers that had data. While an open transaction holds the last stable offset, there
are none; Spark then reports every ten seconds that the query is idle
(`spark.sql.streaming.noDataProgressEventInterval`), and the listener looks at Kafka then.
"""

from __future__ import annotations

import functools
import json
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from spark_kafka_eos.errors import KafkaEosError
from spark_kafka_eos.kafka.logs import logger
from spark_kafka_eos.kafka.partitions import Offsets, TopicPartition
from spark_kafka_eos.kafka.protocol import offsets
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.facts import LogEnds
from spark_kafka_eos.observe.datagrams import Collector
from spark_kafka_eos.observe.endpoint import Endpoint
from spark_kafka_eos.observe.lag import OpenTransaction, Standstill, lasting, standstills, unread
from spark_kafka_eos.observe.lateness import Lateness
from spark_kafka_eos.observe.progress import QueryFigures, SourceRead, figures, kafka_sources
from spark_kafka_eos.observe.query_metrics import QUERY_METRICS, QueryMetrics
from spark_kafka_eos.observe.tallies import IntervalTally
from spark_kafka_eos.observe.trace_file import append_trigger
from spark_kafka_eos.options import SourceOptions, source_options
from spark_kafka_eos.reading.offset_planner import OffsetPlanner
from spark_kafka_eos.spark.jvm import driver_addresses, is_classic, quick, redact_in_event_log
from spark_kafka_eos.spark.worker import STATS_ENDPOINT
from spark_kafka_eos.tools.operators.open_transactions import oldest_open
from spark_kafka_eos.tools.operators.unread import first_times

log = logger("spark_kafka_eos.spark.progress")  # the name that the page on monitoring promises

_ANSWER_MS = 5_000  # Spark's other listeners wait in the meantime
_AFTER_FAILURE_SECONDS = 30.0
# How long an answer about all partitions counts: at least a second, and ten times what it took, because the request
# for 10,000 partitions takes a quarter of a second of the CPU that the query needs, too.
_LOG_ENDS_SECONDS, _LOG_ENDS_FACTOR = 1.0, 10
_QUERIES_KEPT = 100  # their latest figures, those that reported last
# The requests, as named in the log.
_PARTITIONS, _LAG, _HOLDERS = "the partitions to read", "the lag", "the transaction that holds the last stable offset"
_OLDEST, _CLUSTER = "the oldest unread records", "the cluster's id"

_Answer = TypeVar("_Answer")


class Questions:
    """What the listener asks Kafka; each request ends within a few seconds."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._cluster = Cluster(options.client)

    def cluster_id(self) -> str:
        """As the brokers return it, "" if they do not."""
        return self._cluster.cluster_id()

    def partitions(self) -> Sequence[TopicPartition]:
        """Those that a query with these options reads."""
        return OffsetPlanner(self._options, self._cluster).partitions()

    def log_ends(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, LogEnds]:
        return offsets.log_ends(self._cluster, partitions)

    def oldest_open(
        self, partitions: Collection[TopicPartition], now_ms: int
    ) -> Mapping[TopicPartition, OpenTransaction]:
        """The transactions that hold the last stable offset."""
        return oldest_open(self._cluster, partitions, now_ms=now_ms)

    def first_times(self, start: Offsets, end: Offsets) -> Mapping[TopicPartition, int]:
        """By partition the timestamp of the first record in the range, in milliseconds since 1970."""
        return first_times(self._cluster, start, end)

    def close(self) -> None:
        self._cluster.close()


class ProgressListener(StreamingQueryListener):
    """Logs one line of JSON per micro-batch (`observe.progress.QueryFigures`); `last` returns the latest figures.

    `options` are the source's options, of this package or of the built-in source: how to connect to Kafka, and what a
    query reads before its first batch. An open transaction is reported once it has held a last stable offset for
    `patience` seconds. On a classic session (`spark`, by default the active one), tasks report read statistics to the
    driver on UDP `port` (by default a free one). With the option `metricsPort` it serves metrics of all queries of the
    session for Prometheus; `metrics_address` is where, `host:port`. Use one listener per session. Raises
    ConfigurationError.
    """

    questions = Questions  # a class with other answers, in a subclass for tests

    def __init__(
        self,
        options: Mapping[str, object],
        *,
        spark: SparkSession | None = None,
        patience: float = 10.0,
        port: int = 0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._options = source_options(options)
        self._options = replace(self._options, client=self._options.client.answering_within(_ANSWER_MS))
        self._patience, self._clock = patience, clock
        self._kafka = self.questions(self._options)
        self._reads: dict[str, tuple[SourceRead, ...]] = {}  # by run: its sources in the last batch
        self._standstills: dict[TopicPartition, Standstill] = {}
        self._log_ends: tuple[float, Mapping[TopicPartition, LogEnds]] = (float("-inf"), {})  # until when they count
        self._oldest_open: tuple[float, tuple[OpenTransaction, ...]] = (float("-inf"), ())
        self._last: dict[str, QueryFigures] = {}
        self._unanswered: dict[str, tuple[str, float]] = {}  # by request: the error, and when to retry
        self._lateness: dict[str, Lateness] = {}  # by run
        self._metrics = QueryMetrics()
        self._endpoint: Endpoint | None = None
        if (port_of_metrics := self._options.metrics_port) is not None:
            host = self._options.metrics_host
            self._endpoint = Endpoint(
                QUERY_METRICS, lambda: self._metrics.series(clock()), host=host, port=port_of_metrics
            )
        self.metrics_address = None if self._endpoint is None else self._endpoint.address
        self._collector = self._collect(spark or SparkSession.getActiveSession(), port)

    def last(self, query_id: object) -> QueryFigures | None:
        """The latest figures of a query (`query.id`); None before its first batch, or if many other queries have
        reported since.
        """
        return self._last.get(str(query_id))

    def close(self) -> None:
        """Close the connections, and the endpoint for metrics. Call `removeListener` first."""
        self._kafka.close()
        for opened in (self._collector, self._endpoint):
            if opened is not None:
                opened.close()

    @functools.cached_property
    def _jlistener(self) -> Any:
        return quick(self)

    # -- called by Spark, one at a time

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Notes the query's name. No more, because Spark waits for this call before it starts the query."""
        self._metrics.started(str(event.id), event.name, now=self._clock())

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        self._metrics.completed(str(progress.id), progress.name, now=self._clock(), phases=progress.durationMs)
        if self._options.trace_dir is not None and "addBatch" in progress.durationMs:
            self._trace(Path(self._options.trace_dir), progress)
        reads = self._reads[str(progress.runId)] = tuple(kafka_sources(json.loads(progress.json)))
        if reads:
            self._publish(str(progress.id), str(progress.runId), reads, name=progress.name, batch_id=progress.batchId)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        query_id, run_id = str(event.id), str(event.runId)
        self._metrics.idle(query_id, now=self._clock())
        reads = self._reads.get(run_id)
        if reads is None:  # no batch yet
            partitions = self._ask(_PARTITIONS, self._kafka.partitions) or ()
            end = dict.fromkeys(partitions, 0)
            reads = (SourceRead(rows=0, start=end, end=end, latest={}),) if end else ()
        if reads:
            idle = tuple(replace(read, rows=0, start=read.end, latest={}) for read in reads)
            self._publish(query_id, run_id, idle, name=None, batch_id=None)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        self._reads.pop(str(event.runId), None)
        self._lateness.pop(str(event.runId), None)
        self._metrics.ended(str(event.id), failed=event.exception is not None)

    def _trace(self, folder: Path, progress: StreamingQueryProgress) -> None:
        try:
            append_trigger(folder, str(progress.id), progress.batchId, progress.timestamp, progress.durationMs)
        except OSError as error:
            log.warning("cannot write to traceDir: %s", error)

    # -- requests to Kafka

    def _publish(
        self, query_id: str, run_id: str, reads: tuple[SourceRead, ...], *, name: str | None, batch_id: int | None
    ) -> None:
        here = self._here(reads)
        near = [read for read in reads if _is_near(read, here)]
        log_ends = self._log_ends_of(sorted({tp for read in near for tp in read.end})) if near else None
        held_by = self._holders(log_ends or {})
        tallies = self._collector.take(query_id, batch_id) if self._collector and batch_id is not None else []
        report = QueryFigures(
            query_id=query_id,
            run_id=run_id,
            name=name,
            batch_id=batch_id,
            sources=tuple(
                figures(read, log_ends, held_by, tallies) if read in near else figures(read, None, (), tallies)
                for read in reads
            ),
        )
        self._last.pop(query_id, None)  # the order is that of the reports
        self._last[query_id] = report
        if len(self._last) > _QUERIES_KEPT:
            del self._last[next(iter(self._last))]
        now = self._clock()
        open_age = {transaction.partition: self._held_seconds(transaction, now) for transaction in held_by}
        last = [read for read in self._reads.get(run_id, ()) if _is_near(read, here)]  # none before a batch
        ends: dict[TopicPartition, int] = {}
        for tp, end in (of_one for read in last for of_one in read.end.items()):
            ends[tp] = min(end, ends.get(tp, end))  # two sources may read one partition
        lag = unread(ends, log_ends or {})
        waits_since = self._waits_since(
            run_id, {tp: ends[tp] for tp, offsets in lag.items() if offsets}, log_ends or {}
        )
        self._metrics.read(report, lag=lag, waits_since=waits_since, open_age=open_age)
        if near or here is None:
            self._metrics.kafka_answered(log_ends is not None)
        usual = logging.DEBUG if batch_id is None else logging.INFO
        log.log(logging.WARNING if report.held else usual, "%s", report)

    def _here(self, reads: Sequence[SourceRead]) -> str | None:
        """The id of the cluster that this listener asks, "" if nothing depends on it; None if there is no answer."""
        return self._ask(_CLUSTER, self._kafka.cluster_id) if any(read.cluster for read in reads) else ""

    def _log_ends_of(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, LogEnds] | None:
        """The partitions' log ends, usually at most a second old: small batches end more often than that."""
        began = self._clock()
        until, last = self._log_ends
        if began < until and last.keys() >= set(partitions):
            return {tp: last[tp] for tp in partitions}
        log_ends = self._ask(_LAG, lambda: self._kafka.log_ends(partitions))
        took = self._clock() - began
        self._log_ends = began + max(_LOG_ENDS_SECONDS, _LOG_ENDS_FACTOR * took), log_ends or {}
        return log_ends

    def _holders(self, log_ends: Mapping[TopicPartition, LogEnds]) -> tuple[OpenTransaction, ...]:
        """The transactions that have held a last stable offset for longer than `patience`; looked up as often."""
        now = self._clock()
        self._standstills = {tp: since for tp, since in self._standstills.items() if tp not in log_ends} | standstills(
            self._standstills, log_ends, now
        )
        stuck = [tp for tp in lasting(self._standstills, now, self._patience) if tp in log_ends]
        if not stuck:
            return ()
        looked, last = self._oldest_open
        if now - looked >= self._patience or not {transaction.partition for transaction in last}.issuperset(stuck):
            holders = self._ask(_HOLDERS, lambda: self._kafka.oldest_open(stuck, int(now * 1000))) or {}
            self._oldest_open = now, tuple(holders[tp] for tp in sorted(holders))
        return tuple(transaction for transaction in self._oldest_open[1] if transaction.partition in stuck)

    def _waits_since(
        self, run_id: str, waiting: Offsets, log_ends: Mapping[TopicPartition, LogEnds]
    ) -> Mapping[TopicPartition, float]:
        """Since when the oldest unread record of these partitions waits; looked up for the endpoint only."""
        if self._endpoint is None:
            return {}
        lateness, now = self._lateness.setdefault(run_id, Lateness(self._patience)), self._clock()
        if asked := lateness.to_ask(waiting, now):
            ends = {tp: log_ends[tp].last_stable_offset for tp in asked}
            lateness.answered(asked, self._ask(_OLDEST, lambda: self._kafka.first_times(asked, ends)) or {}, now)
        return lateness.since(waiting)

    def _held_seconds(self, transaction: OpenTransaction, now: float) -> float:
        """For how long the transaction has been open, at least as long as its LSO was seen to stand still."""
        seen = now - self._standstills[transaction.partition].since
        return max(seen, (transaction.open_ms or 0) / 1e3)

    def _ask(self, what: str, ask: Callable[[], _Answer]) -> _Answer | None:
        """The result of `ask`; None while Kafka does not answer, which is logged once."""
        last_trouble, again = self._unanswered.get(what, ("", 0.0))
        if self._clock() < again:
            return None
        try:
            answer = ask()
        except KafkaEosError as error:
            trouble = type(error).__name__
            if trouble != last_trouble:
                log.warning("cannot get %s from Kafka (the query is not affected): %s", what, error)
            self._unanswered[what] = trouble, self._clock() + _AFTER_FAILURE_SECONDS
            return None
        self._unanswered.pop(what, None)
        return answer

    def _in_real_time(self, tally: IntervalTally) -> None:
        self._metrics.in_real_time(tally, now=self._clock())

    def _collect(self, session: SparkSession | None, port: int) -> Collector | None:
        if session is None or not is_classic(session):
            log.info("no read statistics of tasks: they need a classic Spark session")
            return None
        bind, host = driver_addresses(session)
        try:
            collector = Collector(
                bind=bind, host=host, port=port, committed=self._metrics.committed, interval=self._in_real_time
            )
        except OSError as error:
            log.warning("no read statistics of tasks: cannot open UDP port %d of %s: %s", port, bind, error)
            return None
        redact_in_event_log(session, STATS_ENDPOINT)
        session.conf.set(STATS_ENDPOINT, collector.address_and_key)
        return collector


def _is_near(read: SourceRead, here: str | None) -> bool:
    """Whether the offsets of `read` are of the cluster `here`. Topics of another one may have the same names."""
    return not read.cluster or here in ("", read.cluster)
