"""The least that a query through Spark's rows can take: what is left if our own work takes no time.

The source's rows are ready-made, so fetching and decoding are free; a copy's rows are dropped in Python, so encoding,
staging, appending and the transaction are free, too. What remains is Spark's: scheduling, the checkpoint, and the way
of each row from the source's Python through the JVM, in a copy to Python again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, InputPartition, WriterCommitMessage
from pyspark.sql.types import StructType

from lab.bench.apart import SparkApart
from lab.bench.figures import Comparison
from lab.bench.lab import PLAIN, Lab
from lab.bench.steady import Load, Participant, Query, Ran, compare, run_query, written
from lab.bench.steady_figures import BUILT_IN, FLOOR, OURS, READY_MADE, ROWS, Way
from spark_kafka_eos.spark.datasource import KafkaEosDataSource
from spark_kafka_eos.spark.prompt_input import PromptInput
from spark_kafka_eos.spark.source import KafkaEosStreamReader
from spark_kafka_eos.spark.worker import spare_the_collector


def floor(
    lab: Lab, name: str, load: Load, *, ways: Collection[Way] = ROWS, rounds: int = 3
) -> Iterator[tuple[str, Comparison]]:
    """In steady state on plain settings: ours, the built-in connector, and ours without its own work."""
    for way in ways:
        with ExitStack() as stack:
            sides = _sides(way, lambda: stack.enter_context(SparkApart(PLAIN)))
            yield f"{FLOOR}-{name}-{way}", compare(lab, f"{way.words}, and its floor", way, load, sides, rounds)
    lab.drop(lab.input(load.shape))


def _sides(way: Way, session: Callable[[], SparkApart]) -> dict[str, Participant]:
    """A session for each side, because a worker keeps the rows that are ready-made."""
    run = functools.partial(run_ready_made, way=way)
    return {
        OURS: Participant(spark=session()),
        BUILT_IN: Participant(spark=session(), ours=False),
        READY_MADE: Participant(spark=session(), way=Way.NOOP, run=run),
    }


# -- in the session's process


def run_ready_made(spark: SparkSession, query: Query, way: Way) -> Ran:
    """Run a query that drops rows that are ready-made where this way has them: in Spark, or in Python."""
    return run_query(spark, query, functools.partial(_writer, way=way))


def _writer(spark: SparkSession, query: Query, way: Way) -> Any:
    for each in (Dropping, ReadyMade):
        spark.dataSource.register(each)
    rows = spark.readStream.format(ReadyMade.name()).options(**query.source).load()
    return written(rows, way, sink=Dropping.name(), function=lambda: _drop)


def _drop(batch: DataFrame, _: int) -> None:
    batch.mapInArrow(_Count(), "n long").collect()


# -- in the tasks, which are set up as ours: PromptInput needs an attribute to have an effect


class _Count(PromptInput):
    def __init__(self) -> None:
        self.column = "n"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        spare_the_collector()
        yield pa.record_batch({self.column: pa.array([sum(batch.num_rows for batch in batches)], pa.int64())})


class Dropping(DataSource):
    """A sink that drops all rows in Python."""

    @classmethod
    def name(cls) -> str:
        return "dropping"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DroppingWriter:  # noqa: N802, ARG002 - Spark's signature
        return DroppingWriter(schema)


class DroppingWriter(PromptInput, DataSourceStreamArrowWriter):
    """Its half in the tasks."""

    def __init__(self, schema: StructType) -> None:
        self.schema = schema

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        spare_the_collector()
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
        wanted = sum(part.end - part.start for part in partition.value)
        return again(wanted, lambda: super(ReadyMadeReader, self).read(partition))


_KEPT: list[pa.RecordBatch] = []  # by this worker


def again(wanted: int, read: Callable[[], Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """So many rows of those that were read first, from the start again after the last one."""
    spare_the_collector()
    if not _KEPT:
        _KEPT.extend(read())
    while wanted > 0 and _KEPT:
        for batch in _KEPT:
            some = batch.slice(0, wanted)
            wanted -= some.num_rows
            if some.num_rows:
                yield some
