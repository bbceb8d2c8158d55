"""The readers behind `spark.read` and `spark.readStream`, which delegate to `reading.offset_planner` and
`reading.records`.

A reader exists in several processes: in the one that plans (for a stream's lifetime) and, pickled, in each executor's
worker, where only `read` is called. So constructors do nothing, and connections are opened when they are first needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceReader, InputPartition

from spark_kafka_eos.errors import DataLoss, errors_of_source
from spark_kafka_eos.kafka.logs import logger
from spark_kafka_eos.reading.next_start import NextMicroBatch
from spark_kafka_eos.spark.features import StreamReader
from spark_kafka_eos.spark.worker import STATS_ENDPOINT
from spark_kafka_eos.startup.frozen import freeze_gc
from spark_kafka_eos.startup.quickack import QuickAck

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.streaming.datasource import ReadLimit

    from spark_kafka_eos.kafka.partitions import OffsetRange
    from spark_kafka_eos.options import SourceOptions
    from spark_kafka_eos.reading.group_offsets import ConsumedOffsets
    from spark_kafka_eos.reading.offset_planner import OffsetPlanner
    from spark_kafka_eos.source_offset import JsonOffsets

log = logger(__name__)


class TaskRanges(InputPartition):
    """The offset ranges that one Spark task reads, at most one per Kafka partition. Those of a batch read say when they
    were planned.
    """

    def __init__(self, ranges: Sequence[OffsetRange], planned_at: str = "") -> None:
        super().__init__(tuple(ranges))
        self.planned_at = planned_at


def _planner(options: SourceOptions) -> OffsetPlanner:
    from spark_kafka_eos.reading.offset_planner import OffsetPlanner

    return OffsetPlanner(options)


def _consumed(options: SourceOptions) -> ConsumedOffsets:
    from spark_kafka_eos.reading.group_offsets import ConsumedOffsets

    return ConsumedOffsets(options)


class KafkaEosReader(QuickAck, DataSourceReader):
    """A batch read. Spark plans it at the first action on a loaded DataFrame and keeps the plan, for each `load()`,
    where no source can reach it: later actions on it read the same offsets. A new `load()` includes newer records.
    Source: PythonDataSourceV2.getOrCreateReadInfo of Spark 4.0 to 4.3.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        with errors_of_source(), _planner(self._options) as planner:
            return [TaskRanges(ranges, now) for ranges in planner.batch_read()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        try:
            yield from _read(partition, self._options)
        except DataLoss as error:
            with errors_of_source():
                raise _planned_earlier(error, partition) from error


class KafkaEosStreamReader(QuickAck, StreamReader):
    """A streaming read. Offsets are `{topic: {partition: offset}}`, as the built-in source writes them to the
    checkpoint; the end of batch 0 also contains its start (`SourceOffset.start`).

    Spark compares offsets as text, so equal offsets must have the same text (`offsets_to_json` sorts them).
    """

    def __init__(
        self,
        options: SourceOptions,
        *,
        planner: Callable[[SourceOptions], OffsetPlanner] = _planner,
        consumed: Callable[[SourceOptions], ConsumedOffsets] = _consumed,
    ) -> None:
        self._options = options
        self._open_planner, self._open_consumed = planner, consumed
        self._opened: OffsetPlanner | None = None
        self._consumed: ConsumedOffsets | None = None
        self._next = NextMicroBatch()
        self._asked = False  # for an end

    # -- in the query's own Python process on the driver

    def initialOffset(self) -> JsonOffsets:
        return self._planner.initial()

    @errors_of_source()
    def latestOffset(self, start: JsonOffsets | None = None, limit: ReadLimit | None = None) -> JsonOffsets:
        """Without arguments before Spark 4.2, which tells neither where the micro-batch starts (`reading.next_start`)
        nor that the trigger overrides the limits.
        """
        if start is None or limit is None:
            end = self._planner.latest(self._next.start, limited=True)
            self._next.planned(end)
            self._warn_of_triggers()
            return end
        from pyspark.sql.streaming.datasource import ReadAllAvailable

        self.commit(start)  # unless the query is new, a batch ended there, and Spark has recorded it as done
        return self._planner.latest(start, limited=not isinstance(limit, ReadAllAvailable))

    def getDefaultReadLimit(self) -> ReadLimit:
        """The first limit that is set. Spark takes only one; `latestOffset` applies all of them."""
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows

        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def reportLatestOffset(self) -> JsonOffsets | None:
        return self._planner.reported()

    def prepareForTriggerAvailableNow(self) -> None:
        self._planner.pin()

    @errors_of_source()
    def partitions(self, start: JsonOffsets, end: JsonOffsets) -> Sequence[InputPartition]:
        from spark_kafka_eos.spark.plan_registry import digest_of, publish  # of this process alone

        self._next.runs(start, end)
        publish(digest_of(start, end))
        return [TaskRanges(ranges) for ranges in self._planner.batch(start, end)]

    @errors_of_source()
    def commit(self, end: JsonOffsets) -> None:
        """Every batch up to `end` is done: commit its offsets with `commitOffsets`. Raises what `ConsumedOffsets`
        raises.
        """
        if not self._options.commit_offsets:
            return  # and import nothing: a query's first batch waits for it
        if self._consumed is None:
            self._consumed = self._open_consumed(self._options)
        self._consumed.done(end)

    def stop(self) -> None:
        for opened in (self._opened, self._consumed):
            if opened is not None:
                opened.close()
        self._opened = self._consumed = None

    def _warn_of_triggers(self) -> None:
        """Once, if the first micro-batch is limited: with these triggers, Spark asks for no other one."""
        if not self._asked and (remaining := self._planner.remaining):
            log.warning(
                "this Spark does not say which trigger the query has. With availableNow or once, it ends after one "
                "micro-batch, and leaves %s offsets to its next start: docs/source.md",
                f"{remaining:,}",
            )
        self._asked = True

    @property
    def _planner(self) -> OffsetPlanner:
        if self._opened is None:
            freeze_gc()  # before the imports, so that it does not scan pyspark and pyarrow twice
            self._opened = self._open_planner(self._options)
        return self._opened

    # -- in executors

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition, self._options)


def _planned_earlier(error: DataLoss, partition: InputPartition) -> DataLoss:
    planned_at = partition.planned_at if isinstance(partition, TaskRanges) else ""
    return DataLoss(
        f"{error.what}. These offsets were planned at {planned_at}, at the first action on this DataFrame or view",
        action=f"Later actions read the same offsets. To look again at what Kafka has, load it again. {error.action}",
    )


def _read(partition: InputPartition, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """The rows of one partition. Spark invents a partition without a value if a batch read planned none."""
    if partition.value is None:
        return
    if options.rows == "offsetRanges":
        from spark_kafka_eos.reading.ranges import as_rows

        yield as_rows(partition.value)
    else:
        yield from read_records(partition.value, options)


def read_records(ranges: Sequence[OffsetRange], options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """The records of one task's ranges, in a Spark task; see `reading.records.read`."""
    with errors_of_source():
        yield from _records(ranges, options)


def _records(ranges: Sequence[OffsetRange], options: SourceOptions) -> Iterator[pa.RecordBatch]:
    freeze_gc()  # before the imports, so that it does not scan PySpark and PyArrow meanwhile
    from spark_kafka_eos.kafka.protocol.cluster import shared_cluster
    from spark_kafka_eos.reading.records import read

    freeze_gc()  # and what they imported
    context = TaskContext.get()
    if context is not None and (collector := context.getLocalProperty(STATS_ENDPOINT)):
        return _read_and_report(ranges, options, context, collector)
    return read(ranges, options, shared_cluster(options.client))


def _read_and_report(
    ranges: Sequence[OffsetRange], options: SourceOptions, context: TaskContext, collector: str
) -> Iterator[pa.RecordBatch]:
    """The same, and report statistics to the driver's progress listener at the end."""
    from spark_kafka_eos.kafka.protocol.cluster import shared_cluster
    from spark_kafka_eos.observe.datagrams import send_tallies
    from spark_kafka_eos.reading.read_stats import Tally
    from spark_kafka_eos.reading.records import read

    tally = Tally(ranges)
    yield from read(ranges, options, shared_cluster(options.client), tally)
    query_id, batch_id = (context.getLocalProperty(name) for name in ("sql.streaming.queryId", "streaming.sql.batchId"))
    if query_id is not None and batch_id is not None:  # not for a batch read of the same session
        send_tallies(collector, query_id, int(batch_id), tally.ranges)
