"""KIP-609's EOSPerformance: poll, process, produce in transactions, with and without pre-registered partitions.

It runs the connector's reader, encoder, appender and transaction, without Spark. With pre-registration, one request
adds all partitions of the output topic to a transaction at its beginning; without, each partition is added by a request
of its own when it is first written. (Java's client is in between: it collects the partitions that it meets while a
request is in flight.) With transaction.version 2, the first record batch adds its partition: there is no difference.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from lab.bench.alternating import Show, silent
from lab.bench.figures import Latencies, latencies
from lab.bench.request_metrics import RequestMetrics
from spark_kafka_eos.appending.append import append
from spark_kafka_eos.appending.blocks import BlockEncoder
from spark_kafka_eos.appending.encode_settings import encode_settings
from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.kafka.partitions import OffsetRange, TopicPartition
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.recorder import recording
from spark_kafka_eos.micro_batch import MicroBatch, SourceRange
from spark_kafka_eos.options import SinkOptions, SourceOptions, sink_options, source_options
from spark_kafka_eos.reading.offset_planner import OffsetPlanner
from spark_kafka_eos.reading.records import read
from spark_kafka_eos.transaction.shared import SharedTransaction

_POLL_SECONDS = 0.01
_REQUESTS = 100_000  # more than a transaction has


@dataclass(frozen=True, slots=True, kw_only=True)
class EosSettings:
    """The tool's arguments, with the names of KIP-609 and ProducerPerformance.

    `consumer` and `producer` are options of our source and sink, including the brokers. `throughput` is in records per
    second, -1 for no limit. `max_poll_records` is the Java consumer's property with that name. A transaction has at
    least one poll.
    """

    input_topic: str
    output_topic: str
    num_records: int
    consumer: Mapping[str, str]
    producer: Mapping[str, str]
    consumer_group_id: str
    transactional_id: str
    transaction_duration_ms: int = 100
    throughput: float = -1
    poll_timeout_ms: int = 100
    max_poll_records: int = 500
    pre_registration: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EosResult:
    """The result. `latency`: of records, from the poll that returned them to the end of their transaction.
    `transactions`: of transactions, from begin to the end of the commit. `commits`: of commits, including offsets.
    """

    records: int
    bytes: int
    seconds: float
    latency: Latencies
    transactions: Latencies
    commits: Latencies
    requests: RequestMetrics
    pre_registration: bool

    def __str__(self) -> str:
        """The line that ProducerPerformance would print."""
        latency = self.latency
        p50, p95, p99, p999 = (latency.quantiles[q] for q in (0.5, 0.95, 0.99, 0.999))
        return (
            f"{self.records} records sent, {self.records / self.seconds:.6f} records/sec "
            f"({self.bytes / self.seconds / 1024 / 1024:.2f} MB/sec), {latency.mean:.2f} ms avg latency, "
            f"{latency.maximum:.2f} ms max latency, {p50:.0f} ms 50th, {p95:.0f} ms 95th, {p99:.0f} ms 99th, "
            f"{p999:.0f} ms 99.9th."
        )


def eos_performance(settings: EosSettings, show: Show = silent) -> EosResult:
    """Copy `num_records` records in transactions, from the group's committed offsets on, else from the beginning.

    Raises ToolFailed if the input has fewer records, and none arrives within the poll timeout.
    """
    source = source_options(
        {
            "startingOffsets": "earliest",
            **settings.consumer,
            "subscribe": settings.input_topic,
            "kafka.group.id": settings.consumer_group_id,
        }
    )
    sink = sink_options(
        {
            **settings.producer,
            "topic": settings.output_topic,
            "kafka.transactional.id": settings.transactional_id,
            "kafka.group.id": settings.consumer_group_id,
        }
    )
    with Cluster(sink.client) as cluster, OffsetPlanner(source) as planner:
        return _Copy(settings, cluster, _Polls(settings, source, cluster, planner), sink, show).run()


@dataclass(frozen=True, slots=True, kw_only=True)
class Poll:
    """The rows of one poll, and the next offset of each of their partitions."""

    rows: pa.RecordBatch
    following: Mapping[TopicPartition, int]


def split(rows: pa.RecordBatch, most: int) -> Iterator[Poll]:
    """The source's rows in polls of at most `most` rows."""
    topics, numbers = rows.column("topic"), rows.column("partition").to_numpy()
    offsets = rows.column("offset").to_numpy()
    for start in range(0, rows.num_rows, most):
        part = slice(start, min(start + most, rows.num_rows))
        following = {
            TopicPartition(topics[start].as_py(), int(number)): int(offsets[part][numbers[part] == number].max()) + 1
            for number in np.unique(numbers[part])
        }
        yield Poll(rows=rows.slice(start, part.stop - start).select(["key", "value"]), following=following)


class _Polls:
    """The input topic in polls, up to num_records."""

    def __init__(self, settings: EosSettings, source: SourceOptions, cluster: Cluster, planner: OffsetPlanner) -> None:
        self._settings, self._source, self._cluster, self._planner = settings, source, cluster, planner

    def __iter__(self) -> Iterator[Poll]:
        at, remaining = dict(self._planner.starting()), self._settings.num_records
        while remaining:
            for rows in read(self._more(at), self._source, self._cluster):
                for poll in split(rows.slice(0, remaining), self._settings.max_poll_records):
                    yield poll
                    at |= poll.following
                    remaining -= poll.rows.num_rows
                if not remaining:
                    break

    def _more(self, at: Mapping[TopicPartition, int]) -> list[OffsetRange]:
        """The offsets that follow `at`, after waiting until there are any."""
        deadline = time.perf_counter() + self._settings.poll_timeout_ms / 1e3
        again = threading.Event()
        while True:
            ends = self._planner.ending()
            ranges = [
                OffsetRange(partition=tp, start=at.get(tp, 0), end=end)
                for tp, end in ends.items()
                if at.get(tp, 0) < end
            ]
            if ranges:
                return ranges
            if time.perf_counter() > deadline:
                raise ToolFailed(
                    f"{self._settings.input_topic} has fewer than {self._settings.num_records:,} records, "
                    f"and none arrived for {self._settings.poll_timeout_ms} ms",
                    action="Produce more records, reduce --num-records, or increase --poll-timeout.",
                )
            again.wait(_POLL_SECONDS)


@dataclass(slots=True)
class _Open:
    """The contents of the open transaction."""

    polled: list[tuple[float, int]] = field(default_factory=list)  # time, number of records
    following: dict[TopicPartition, int] = field(default_factory=dict)


class _Copy:
    def __init__(self, settings: EosSettings, cluster: Cluster, polls: _Polls, sink: SinkOptions, show: Show) -> None:
        self._settings, self._cluster, self._sink, self._show = settings, cluster, sink, show
        self._polls = iter(polls)
        self._remaining = settings.num_records
        self._bytes = 0
        self._encode_settings = encode_settings(sink, settings.output_topic, cluster)
        count = self._encode_settings.targets[settings.output_topic].partitions
        self._registered = (
            [TopicPartition(settings.output_topic, number) for number in range(count)]
            if settings.pre_registration
            else []
        )

    def run(self) -> EosResult:
        settings = self._settings
        transaction = SharedTransaction(self._sink, self._cluster, None)
        waited: list[tuple[float, int]] = []
        transactions: list[tuple[float, int]] = []
        commits: list[tuple[float, int]] = []
        metrics = RequestMetrics()
        started, number = time.perf_counter(), 0
        while self._remaining:
            opened, beginning = _Open(), time.perf_counter()
            with recording(kept=_REQUESTS) as requests:
                transaction.begin(_batch(number, {}))
                transaction.appending()
                append(
                    self._cluster,
                    transaction.identity,
                    self._blocks(opened, started),
                    partitions=self._registered,
                )
                committing = time.perf_counter()
                transaction.commit(_batch(number, opened.following))
            ended = time.perf_counter()
            metrics.add(requests.trace())
            waited += [((ended - polled) * 1e3, count) for polled, count in opened.polled]
            transactions.append(((ended - beginning) * 1e3, 1))
            commits.append(((ended - committing) * 1e3, 1))
            number += 1
            self._show("copying", settings.num_records - self._remaining, settings.num_records)
        return EosResult(
            records=settings.num_records,
            bytes=self._bytes,
            seconds=time.perf_counter() - started,
            latency=latencies(waited),
            transactions=latencies(transactions),
            commits=latencies(commits),
            requests=metrics,
            pre_registration=settings.pre_registration,
        )

    def _blocks(self, opened: _Open, started: float) -> Iterator[tuple[TopicPartition, int, bytearray]]:
        """Blocks from polls, until the transaction's duration is over or all records are copied."""
        settings = self._settings
        encoder = BlockEncoder(
            self._encode_settings, 0, self._encode_settings.targets.__getitem__, lambda: time.time_ns() // 1_000_000
        )
        until = time.perf_counter() + settings.transaction_duration_ms / 1e3
        pace = threading.Event()
        while self._remaining and (not opened.polled or time.perf_counter() < until):
            poll = next(self._polls)
            rows = poll.rows
            opened.polled.append((time.perf_counter(), rows.num_rows))
            opened.following |= poll.following
            self._remaining -= rows.num_rows
            self._bytes += sum(column.nbytes for column in rows.columns)
            for block in encoder.add(rows):
                yield block.partition, block.records, block.data
            if settings.throughput > 0:
                due = started + (settings.num_records - self._remaining) / settings.throughput
                pace.wait(max(0.0, due - time.perf_counter()))
        for block in encoder.finish():
            yield block.partition, block.records, block.data


def _batch(number: int, end: Mapping[TopicPartition, int]) -> MicroBatch:
    source = SourceRange(start=None, end=end)
    return MicroBatch(query_id="EOSPerformance", batch_id=number, digest="", sources=(source,))
