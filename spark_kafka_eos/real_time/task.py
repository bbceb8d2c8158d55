"""What a task in real time does until its time is over: reads its buckets' partitions and commits what comes.

One Fetch request waits at each broker for all partitions of the task. What its answer has is transformed and committed,
each bucket in a transaction. Once a second, the group gets a copy of the offsets. Then the task rests (`rest`), and
asks for what has come meanwhile. Only if there was more than an answer holds, the next request is on its way while the
answer is processed, and nothing rests.
"""

from __future__ import annotations

import contextlib
import math
import time
import traceback
import uuid
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from spark_kafka_eos.appending.blocks import BlockEncoder, EncodeSettings, Target
from spark_kafka_eos.appending.encode_settings import target
from spark_kafka_eos.errors import KafkaEosError
from spark_kafka_eos.kafka.client_options import ClientOptions
from spark_kafka_eos.kafka.fetching.fetch_steps import Fetched
from spark_kafka_eos.kafka.partitions import NO_END, OffsetRange, TopicPartition
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

_SHARE_OF_REST = 0.25  # of what the transactions took
_LONGEST_REST = 0.05  # seconds
_COPIED_EVERY = 1.0  # seconds

# From records with columns of the source to rows with columns of the sink.
MakeRows = Callable[[Iterator[pa.RecordBatch], EncodeSettings], Iterator[pa.RecordBatch]]


class FunctionFailed(KafkaEosError):
    """The query's function raised an error in a task; the message has its traceback."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RealTimeTask:
    """What one task needs. `source` are the options with which it reads, `client` those with which it writes, to the
    same cluster. `signer` is that of the query. Buckets whose ranges end are read up to there, others for `seconds`.
    `commit_interval` is in seconds (`rest`).
    """

    buckets: tuple[Bucket, ...]
    source: SourceOptions
    client: ClientOptions
    settings: EncodeSettings
    group_id: str
    mark: str
    seconds: float
    commit_interval: float | None = None
    signer: Signer = UNSIGNED
    intervals: IntervalsOf | None = None


def rest(took: float, commit_interval: float | None) -> float:
    """Seconds from the end of transactions that took so long to the next ones, if there are records by then.

    With a `commit_interval`, that passes from begin to begin. By default they rest for a share of what they took: each
    one costs brokers and task the same, however little it has, so where both have no time to spare, fewer are faster.
    """
    return min(took * _SHARE_OF_REST, _LONGEST_REST) if commit_interval is None else max(0.0, commit_interval - took)


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
        with (
            _reporting(task, report, send, clock),
            connect(task.source.client) as reading,
            connect(task.client) as writing,
        ):
            running = _Running(task, transform, report, reading, writing, clock, now_ms)
            running.run()
            report.ended = running.ended()
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


class _Running:
    """A task with its connections: those for reading are its own, since what is sent to a broker waits for the answers
    before it.
    """

    def __init__(
        self,
        task: RealTimeTask,
        transform: MakeRows,
        report: TaskReport,
        reading: Cluster,
        writing: Cluster,
        clock: Callable[[], float],
        now_ms: Callable[[], float],
    ) -> None:
        self._task, self._transform, self._report = task, transform, report
        self._fetcher, self._writing = fetcher_for(task.source, reading), writing
        self._clock, self._now_ms = clock, now_ms
        self._transactions = {bucket.number: _transactions(bucket, task, writing) for bucket in task.buckets}
        self._unread = {each.partition: each for bucket in task.buckets for each in bucket.ranges}
        self._ends = any(each.end != NO_END for each in self._unread.values())
        self._deadline = math.inf if self._ends else clock() + task.seconds
        self._bucket_of = {each.partition: bucket.number for bucket in task.buckets for each in bucket.ranges}
        self._copied = dict.fromkeys(self._transactions, clock())
        report.positions.update({tp: unread.start for tp, unread in self._unread.items()})

    def run(self) -> None:
        with contextlib.closing(self._parts()) as reading_on:
            for parts in reading_on:
                by_bucket: dict[int, list[Fetched]] = {}
                for part in parts:
                    by_bucket.setdefault(self._bucket_of[part.partition], []).append(part)
                for number, fetched in by_bucket.items():
                    self._commit(self._transactions[number], fetched)
                dead = [bucket.dead_letters for bucket in self._transactions.values() if bucket.dead_letters]
                if dead:
                    self._report.dead_letters = sum(map(Counter, dead), Counter())
                self._copy_offsets()
                if self._seconds_left() <= 0:
                    break
        for transactions in self._transactions.values():
            transactions.copy_offsets()

    def ended(self) -> tuple[Bucket, ...]:
        """The buckets, once nothing of them is open."""
        return tuple(
            replace(
                bucket,
                identity=self._transactions[bucket.number].identity,
                ranges=tuple(self._unread[each.partition] for each in bucket.ranges),
                sequences=self._transactions[bucket.number].sequences,
            )
            for bucket in self._task.buckets
        )

    def _copy_offsets(self) -> None:
        """Of each bucket that has something new, once in `_COPIED_EVERY`, also while nothing comes."""
        now = self._clock()
        for number, transactions in self._transactions.items():
            if now - self._copied[number] >= _COPIED_EVERY and transactions.copy_offsets():
                self._copied[number] = now

    def _parts(self) -> Generator[Sequence[Fetched], None, None]:
        """What is fetched. It rests before it asks for more, unless there was more already."""
        ranges = tuple(self._unread.values())
        if self._ends:
            yield from ([part] for part in self._fetcher.fetch(ranges))
            return
        for parts in self._fetcher.follow(ranges, self._seconds_left):
            began = self._clock()
            yield parts
            if parts and all(part.reaches_end for part in parts):
                seconds = rest(self._clock() - began, self._task.commit_interval)
                self._writing.sleep(min(seconds, max(0.0, self._seconds_left())))

    def _seconds_left(self) -> float:
        return self._deadline - self._clock()

    def _commit(self, transactions: BucketTransactions, fetched: Sequence[Fetched]) -> None:
        """Commit what was read of a bucket's partitions, in a transaction, unless nothing of it is for readers."""
        report, started = self._report, self._clock()
        transactions.ask_for_markers()
        read = rows_of(fetched, self._unread, self._task.source)
        for part in fetched:  # whole record batches: the last one may reach past the end
            unread, epoch = self._unread[part.partition], part.batches[-1].partition_leader_epoch
            self._unread[part.partition] = replace(unread, start=min(part.next_offset, unread.end), last_epoch=epoch)
        if not read:
            return
        unread_now = {part.partition: self._unread[part.partition] for part in fetched}
        positions = {tp: at.start for tp, at in unread_now.items()}
        rows = self._transform(of_decent_size(iter(read)), self._task.settings)
        written = transactions.commit(rows, positions, _epochs(unread_now.values()))
        ended = self._clock()
        report.positions.update(positions)
        _count(report.latencies, fetched, self._now_ms())
        report.commits.add((ended - started) * 1e3)
        report.records_read += sum(part.num_rows for part in read)
        report.records += written.records
        report.bytes += written.bytes
        report.transactions += 1


def _epochs(ranges: Iterable[OffsetRange]) -> dict[TopicPartition, int]:
    """Those of the last records that were read, as far as they are known: old record batches have none."""
    return {each.partition: each.last_epoch for each in ranges if each.last_epoch >= 0}


def _transactions(bucket: Bucket, task: RealTimeTask, cluster: Cluster) -> BucketTransactions:
    def lookup(topic: str) -> Target:
        return target(cluster, topic, task.settings.ledger_topic)

    encoder = BlockEncoder(task.settings, bucket.number, lookup, lambda: time.time_ns() // 1_000_000)
    return BucketTransactions(
        cluster,
        bucket.identity,
        encoder,
        began=BucketRecord(
            serial=bucket.serial,
            offsets={offset_range.partition: offset_range.start for offset_range in bucket.ranges},
            topic_ids={offset_range.partition.topic: offset_range.topic_id for offset_range in bucket.ranges},
            epochs=_epochs(bucket.ranges),
        ),
        group_id=task.group_id,
        mark=task.mark,
        ledger_topic=task.settings.ledger_topic,
        signer=task.signer.of(bucket.identity.transactional_id),
        sequences=bucket.sequences,
    )


def _count(latencies: Latencies, fetched: Sequence[Fetched], now: float) -> None:
    """Count how old the records are, by the newest timestamp in each record batch."""
    for part in fetched:
        for batch in part.batches:
            if not batch.is_control:
                latencies.add(now - batch.max_timestamp, batch.record_count)
