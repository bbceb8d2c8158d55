"""Rows without our own work: a source whose rows are ready-made, and a sink that drops rows in Python.

Tasks are set up as ours. QuickAck needs an attribute to have an effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, InputPartition, WriterCommitMessage
from pyspark.sql.types import StructType

from spark_kafka_eos.spark.datasource import KafkaEosDataSource
from spark_kafka_eos.spark.source import KafkaEosStreamReader
from spark_kafka_eos.startup.frozen import freeze_gc
from spark_kafka_eos.startup.quickack import QuickAck


class Count(QuickAck):
    """For mapInArrow: one row, with the number of rows of the task."""

    def __init__(self) -> None:
        self.column = "n"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze_gc()
        yield pa.record_batch({self.column: pa.array([sum(batch.num_rows for batch in batches)], pa.int64())})


Counting = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def dropping(counting: Counting, *, few: bool = False) -> Callable[[DataFrame, int], None]:
    """For foreachBatch: has Python drop the rows. See `dropped`."""

    def drop(batch: DataFrame, _: int) -> None:
        dropped(batch, counting, few=few)

    return drop


def dropped(batch: DataFrame, counting: Counting, *, few: bool) -> int:
    """Have tasks in Python drop the rows of a batch, or the driver if there are few: their number. `counting` gives
    batches with the column `n`.
    """
    if few:
        return int(batch.toArrow().num_rows)
    return sum(row.n for row in batch.mapInArrow(counting, "n long").collect())


class Dropping(DataSource):
    """A sink that drops all rows in Python."""

    @classmethod
    def name(cls) -> str:
        return "dropping"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DroppingWriter:  # noqa: N802, ARG002 - Spark's signature
        return DroppingWriter(schema)


class DroppingWriter(QuickAck, DataSourceStreamArrowWriter):
    """Its half in the tasks."""

    def __init__(self, schema: StructType) -> None:
        self.schema = schema

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        freeze_gc()
        for _ in iterator:
            pass
        return WriterCommitMessage()


class ReadyMade(KafkaEosDataSource):
    """Our source, whose tasks give the rows of their worker's first micro-batch again and again."""

    @classmethod
    def name(cls) -> str:
        return "ready-made"

    def streamReader(self, schema: StructType) -> KafkaEosStreamReader:  # noqa: N802 - Spark's name
        return ReadyMadeReader(self._source_options(schema, streaming=True))


class ReadyMadeReader(KafkaEosStreamReader):
    """Its half in the tasks."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        rows = sum(part.end - part.start for part in partition.value)
        return again(rows, lambda: super(ReadyMadeReader, self).read(partition))


_KEPT: list[pa.RecordBatch] = []  # by this worker


def again(rows: int, read: Callable[[], Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """So many rows of those that were read first, from the start again after the last one."""
    freeze_gc()
    if not _KEPT:
        _KEPT.extend(read())
    while rows > 0 and _KEPT:
        for batch in _KEPT:
            some = batch.slice(0, rows)
            rows -= some.num_rows
            if some.num_rows:
                yield some
