"""What a task in real time does until its time is over: reads its buckets' partitions and commits what comes.

One Fetch request waits at each broker for all partitions of the task. What its answer has is transformed and committed,
each bucket in a transaction, while the next request waits already. So a record waits for nothing but the transaction
before it, and under load the answers, and with them the transactions, become larger.
"""

from __future__ import annotations

import contextlib
import time
import traceback
import uuid
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from spark_kafka_eos.appending.blocks import BlockEncoder, EncodeSettings, Target
from spark_kafka_eos.appending.encode_settings import target
from spark_kafka_eos.errors import KafkaEosError
from spark_kafka_eos.kafka.client_options import ClientOptions
from spark_kafka_eos.kafka.fetching.fetch import NO_END, Fetcher
from spark_kafka_eos.kafka.fetching.fetch_steps import Fetched
from spark_kafka_eos.kafka.partitions import OffsetRange
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.ledger.bucket_record import BucketRecord
from spark_kafka_eos.ledger.signing import UNSIGNED, Signer
from spark_kafka_eos.observe.tallies import IntervalTally
from spark_kafka_eos.options import SourceOptions
from spark_kafka_eos.reading.records import fetcher_for, of_decent_size, rows_of
from spark_kafka_eos.real_time.buckets import Bucket
from spark_kafka_eos.real_time.cycle import BucketTransactions
from spark_kafka_eos.real_time.intervals import Intervals, IntervalsOf, TaskReport, every
from spark_kafka_eos.real_time.latencies import Latencies

# From records with columns of the source to rows with columns of the sink.
MakeRows = Callable[[Iterator[pa.RecordBatch], EncodeSettings], Iterator[pa.RecordBatch]]


class FunctionFailed(KafkaEosError):
    """The query's function raised an error in a task; the message has its traceback."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RealTimeTask:
    """What one task needs. `source` are the options with which it reads, `client` those with which it writes, to the
    same cluster. `signer` is that of the query. Buckets whose ranges end are read up to there, others for `seconds`.
    """

    buckets: tuple[Bucket, ...]
    source: SourceOptions
    client: ClientOptions
    settings: EncodeSettings
    group_id: str
    mark: str
    seconds: float
    signer: Signer = UNSIGNED
    intervals: IntervalsOf | None = None


def run(
    task: RealTimeTask,
    transform: MakeRows,
    *,
    send: Callable[[str, IntervalTally], None] | None = None,
    connect: Callable[[ClientOptions], Cluster] = Cluster,
    clock: Callable[[], float] = time.monotonic,
    now_ms: Callable[[], float] = lambda: time.time() * 1e3,
) -> TaskReport:
    """Read and commit until the time is over, or the ends are reached. `send` gets a tally each few seconds, with where
    to send it, in a thread of its own, so that reading and committing do not wait for it. The report has the error of
    fetching, `transform`, encoding and the transactions instead of raising it; what was committed until then stays so.
    `connect`, `clock` and `now_ms` are for tests.
    """
    report = TaskReport()
    try:
        with _reporting(task, report, send, clock):
            _run(task, transform, report, connect, clock, now_ms)
    except KafkaEosError as error:
        report.error = error
    except Exception as error:  # noqa: BLE001 - a user's function may raise anything
        text = "".join(traceback.format_exception(error))
        report.error = FunctionFailed(f"the function of the query failed: {text}", committed="earlier")
    return report


def _reporting(
    task: RealTimeTask,
    report: TaskReport,
    send: Callable[[str, IntervalTally], None] | None,
    clock: Callable[[], float],
) -> contextlib.AbstractContextManager[None]:
    where = task.intervals
    if where is None or send is None:
        return contextlib.nullcontext()
    intervals = Intervals(report, where, uuid.uuid4().hex[:8], clock)
    return every(where.seconds, lambda: send(where.address_and_key, intervals.next()))


def _run(
    task: RealTimeTask,
    transform: MakeRows,
    report: TaskReport,
    connect: Callable[[ClientOptions], Cluster],
    clock: Callable[[], float],
    now_ms: Callable[[], float],
) -> None:
    deadline = clock() + task.seconds
    # Connections of its own for reading: what is sent to a broker waits for the answers before it.
    with connect(task.source.client) as reading, connect(task.client) as writing, contextlib.ExitStack() as stack:
        fetcher = fetcher_for(task.source, reading)
        transactions = {bucket.number: _transactions(bucket, task, writing) for bucket in task.buckets}
        unread = {offset_range.partition: offset_range for bucket in task.buckets for offset_range in bucket.ranges}
        report.positions.update({tp: offset_range.start for tp, offset_range in unread.items()})
        bucket_of = {offset_range.partition: bucket.number for bucket in task.buckets for offset_range in bucket.ranges}
        reading_on = contextlib.closing(_parts(fetcher, tuple(unread.values()), lambda: deadline - clock()))
        for parts in stack.enter_context(reading_on):
            by_bucket: dict[int, list[Fetched]] = {}
            for part in parts:
                by_bucket.setdefault(bucket_of[part.partition], []).append(part)
            for number, fetched in by_bucket.items():
                started = clock()
                transactions[number].ask_for_markers()
                read = rows_of(fetched, unread, task.source)
                for part in fetched:  # whole record batches: the last one may reach past the end
                    rest = unread[part.partition]
                    unread[part.partition] = replace(rest, start=min(part.next_offset, rest.end))
                if read:
                    positions = {part.partition: unread[part.partition].start for part in fetched}
                    rows = transform(of_decent_size(iter(read)), task.settings)
                    written = transactions[number].commit(rows, positions)
                    ended = clock()
                    report.positions.update(positions)
                    _count(report.latencies, fetched, now_ms())
                    report.commits.add((ended - started) * 1e3)
                    report.records_read += sum(part.num_rows for part in read)
                    report.records += written.records
                    report.bytes += written.bytes
                    report.transactions += 1
            dead = [bucket.dead_letters for bucket in transactions.values() if bucket.dead_letters]
            if dead:
                report.dead_letters = sum(map(Counter, dead), Counter())
            if clock() >= deadline:
                break


def _parts(
    fetcher: Fetcher, ranges: Sequence[OffsetRange], seconds_left: Callable[[], float]
) -> Generator[Sequence[Fetched], None, None]:
    if all(offset_range.end == NO_END for offset_range in ranges):
        yield from fetcher.follow(ranges, seconds_left)
    else:
        yield from ([part] for part in fetcher.fetch(ranges))


def _transactions(bucket: Bucket, task: RealTimeTask, cluster: Cluster) -> BucketTransactions:
    def lookup(topic: str) -> Target:
        return target(cluster, topic, task.settings.ledger_topic)

    encoder = BlockEncoder(task.settings, bucket.number, lookup, lambda: time.time_ns() // 1_000_000)
    return BucketTransactions(
        cluster,
        bucket.identity,
        encoder,
        began=BucketRecord(
            offsets={offset_range.partition: offset_range.start for offset_range in bucket.ranges},
            topic_ids={offset_range.partition.topic: offset_range.topic_id for offset_range in bucket.ranges},
        ),
        group_id=task.group_id,
        mark=task.mark,
        ledger_topic=task.settings.ledger_topic,
        signer=task.signer.of(bucket.identity.transactional_id),
    )


def _count(latencies: Latencies, fetched: Sequence[Fetched], now: float) -> None:
    """Count how old the records are, by the newest timestamp in each record batch."""
    for part in fetched:
        for batch in part.batches:
            if not batch.is_control:
                latencies.add(now - batch.max_timestamp, batch.record_count)
