"""The readers behind `spark.read` and `spark.readStream`: Spark's calls, handed to `eos.positions` and `.reading`.

A reader is built in several processes: the one that plans (a stream keeps it for its lifetime) and, pickled, in each
executor's worker, where only `read` is called. So constructors do nothing, and the client that asks for offsets is made
when it is first needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_kafka_eos.eos.positions import JsonOffsets, Positions
    from spark_kafka_eos.model import OffsetRange
    from spark_kafka_eos.options import SourceOptions


class TaskRanges(InputPartition):
    """What one Spark task reads: ranges of several Kafka partitions, at most one of each."""

    def __init__(self, ranges: Sequence[OffsetRange]) -> None:
        super().__init__(tuple(ranges))


class KafkaEosReader(DataSourceReader):
    """A batch read. Spark plans it at a loaded frame's first action and keeps the plan: each later action of that frame
    sees the same offsets, and `load()` again sees what came since.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        from spark_kafka_eos.eos.positions import Positions

        with Positions(self._options) as positions:
            return [TaskRanges(ranges) for ranges in positions.tasks(positions.starting(), positions.ending())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition, self._options)


class KafkaEosStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream: offsets are `{topic: {partition: offset}}`, as the built-in source writes them into the checkpoint.

    Spark compares offsets as text, so equal ones are always written alike (`offsets_to_json` sorts them).
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._opened: Positions | None = None

    # -- in the query's own Python process on the driver

    def initialOffset(self) -> JsonOffsets:
        return self._positions.initial()

    def latestOffset(self, start: JsonOffsets, limit: ReadLimit) -> JsonOffsets:
        return self._positions.latest(start, limited=not isinstance(limit, ReadAllAvailable))

    def getDefaultReadLimit(self) -> ReadLimit:
        """The option's limit. With both a minimum and a maximum Spark hears of one, and `latestOffset` keeps both."""
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def reportLatestOffset(self) -> JsonOffsets:
        return self._positions.reported()

    def prepareForTriggerAvailableNow(self) -> None:
        self._positions.pin()

    def partitions(self, start: JsonOffsets, end: JsonOffsets) -> Sequence[InputPartition]:
        return [TaskRanges(ranges) for ranges in self._positions.batch(start, end)]

    def stop(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    @property
    def _positions(self) -> Positions:
        from spark_kafka_eos.eos.positions import Positions

        if self._opened is None:
            self._opened = Positions(self._options)
        return self._opened

    # -- in executors

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition, self._options)


def _read(partition: InputPartition, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """What a task of this partition reads. Spark makes a partition without value up where a batch read planned none."""
    from spark_kafka_eos.broker.cluster import shared_cluster
    from spark_kafka_eos.eos.reading import read

    if partition.value is None:
        return iter(())
    return read(partition.value, options, shared_cluster(options.client))
