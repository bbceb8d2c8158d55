"""The queries of a soak: the program that spark-submit runs for each driver.

- stateless: a copy by the sink, each value preceded by its provenance (verify.provenance_bytes).
- stateful: running totals per key in update mode, with foreachBatch; the executors append, if nothing else is asked.
- mirror: the same copy by arrow_stream, to another cluster. After its checkpoint is lost, it continues where that
  cluster's ledger ends.

PySpark is imported on demand only, because the soak itself imports this module's constants.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

STATELESS, STATEFUL, MIRROR = "stateless", "stateful", "mirror"
SOURCE = "soak-source"
TRANSACTION_TIMEOUT_MS = 15_000
ABORTED = "x"  # prefix of source values in transactions that will be aborted; the others are plain numbers

_TIMEOUTS = {"kafka.request.timeout.ms": "5000", "kafka.socket.connection.setup.timeout.ms": "2000"}


def output(query: str) -> str:
    """The topic that a query writes; its transactional.id is the query's name."""
    return f"soak-{query}"


class Way(StrEnum):
    """How the queries write: OWN is as above. DRIVER and EXECUTORS: in this `appendMode`, the copies by the sink, or by
    foreachBatch, because a sink's executors cannot append. ARROW: both copies by arrow_stream.
    """

    OWN = "own"
    DRIVER = "driver"
    EXECUTORS = "executors"
    ARROW = "arrow"


def traced(checkpoint: int) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """A function that turns source rows into sink rows in a task: `key`, and `value` preceded by its provenance.

    `checkpoint` is the number of the query's checkpoint, stored as the attempt: each checkpoint's batch ids start at 0.
    """

    def transform(rows: pa.RecordBatch) -> pa.RecordBatch:
        from pyspark import TaskContext

        from spark_kafka_eos.tools.verify.provenance_bytes import pack

        context = TaskContext.get()
        assert context is not None
        batch = int(context.getLocalProperty("streaming.sql.batchId") or -1)
        origin = pack(rows["partition"].to_numpy(), rows["offset"].to_numpy(), batch, checkpoint)
        value = pc.binary_join_element_wise(origin, rows["value"], pa.scalar(b"", pa.binary()))
        return pa.RecordBatch.from_pydict({"key": rows["key"], "value": value})

    return transform


def copied(
    spark: SparkSession, reading: dict[str, str], sink: dict[str, str], checkpoint: int, way: Way
) -> DataStreamWriter:
    """The stream that copies what the options `reading` select. `way`: by the sink if it is OWN."""
    from spark_kafka_eos import TransactionalWriter, arrow_stream

    transform = traced(checkpoint)
    if way == Way.ARROW:
        schema = "key BINARY, value BINARY, partition INT, offset BIGINT"
        return arrow_stream(spark, reading, TransactionalWriter(sink), transform, schema=schema)

    def rows_of(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return map(transform, batches)

    source = spark.readStream.format("kafka-eos").options(**reading).load()
    rows = source.select("key", "value", "partition", "offset").mapInArrow(rows_of, "key BINARY, value BINARY")
    if way == Way.EXECUTORS:
        return rows.writeStream.foreachBatch(TransactionalWriter(sink))
    return rows.writeStream.format("kafka-eos").options(**sink)


def stateful(spark: SparkSession, reading: dict[str, str], sink: dict[str, str]) -> DataStreamWriter:
    """The stream of totals per key: the number of records, the sum of their numbers, and the number of aborted ones."""
    from pyspark.sql import functions as F

    from spark_kafka_eos import TransactionalWriter

    writer = TransactionalWriter({"appendMode": "executors", **sink})
    text = F.col("value").cast("string")
    source = spark.readStream.format("kafka-eos").options(**reading).load()
    figures = source.groupBy("key").agg(
        F.count("*").alias("records"),
        F.sum(F.translate(text, ABORTED, "").cast("long")).alias("total"),
        F.count_if(text.startswith(ABORTED)).alias("aborted"),
    )

    def write(batch_df: DataFrame, batch_id: int) -> None:
        value = F.to_json(F.struct(F.lit(batch_id).alias("batch"), "records", "total", "aborted"))
        with writer.transaction(batch_df, batch_id) as transaction:
            transaction.write(batch_df.select("key", value.alias("value")))

    return figures.writeStream.outputMode("update").foreachBatch(write)


def main(name: str, source: str, sink: str, number: str, checkpoint: str, way: str) -> None:
    """Run a query until it is killed or fails. `source` and `sink` are the clusters' addresses; `checkpoint` is the
    checkpoint's folder, and `number` counts the query's checkpoints from 0. `way` is one of Way.
    """
    from pyspark.sql import SparkSession

    from spark_kafka_eos import cluster_id
    from spark_kafka_eos.tools.listener.follow import print_progress

    spark: SparkSession = SparkSession.builder.appName(name).getOrCreate()
    there, here = ({"kafka.bootstrap.servers": bootstrap, **_TIMEOUTS} for bootstrap in (source, sink))
    reading = {**there, "subscribe": SOURCE, "startingOffsets": "earliest"}
    here["kafka.transactional.id"] = name
    writing = {**here, "kafka.transaction.timeout.ms": str(TRANSACTION_TIMEOUT_MS), "topic": output(name)}
    if way in (Way.DRIVER, Way.EXECUTORS):
        writing["appendMode"] = way
    if name == MIRROR:
        reading |= {f"sink.{option}": value for option, value in here.items()}
        reading["startingOffsets"] = "committed-or-earliest"
        writing["sourceClusters"] = cluster_id(there)
    if name == STATEFUL:
        stream = stateful(spark, reading, writing)
    else:
        by_arrow = name == MIRROR and way == Way.OWN
        stream = copied(spark, reading, writing, int(number), Way.ARROW if by_arrow else Way(way))
    stream = stream.queryName(name).option("checkpointLocation", checkpoint)
    print_progress(stream.trigger(processingTime="1 second").start())


if __name__ == "__main__":
    main(*sys.argv[1:])
