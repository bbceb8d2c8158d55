"""The queries of a soak, as the program that spark-submit runs for each of their drivers.

- stateless: a copy, each value with its provenance in front (verify.provenance_bytes), through `format("kafka-eos")`.
- stateful: running figures of each key in update mode, through foreachBatch; the executors append.
- mirror: the same copy to another cluster. It goes on where that cluster's ledger says when its checkpoint is lost.

Nothing of PySpark is imported above: the soak itself takes its names and the settings from here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

STATELESS, STATEFUL, MIRROR = "stateless", "stateful", "mirror"
SOURCE = "soak-source"
TRANSACTION_TIMEOUT_MS = 15_000
ABORTED = "x"  # in front of each source value that is sent to be aborted; the others are bare numbers

_PATIENCE = {"kafka.request.timeout.ms": "5000", "kafka.socket.connection.setup.timeout.ms": "2000"}


def output(query: str) -> str:
    """The topic that a query writes; its transactional.id is the query's name."""
    return f"soak-{query}"


def traced(checkpoint: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Source rows as rows for the sink: `key`, and `value` behind its provenance. For mapInArrow, on executors.

    `checkpoint`: the number of the query's checkpoint, as with each one batch ids begin anew; noted as the attempt.
    """

    def rows_of(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        from spark_kafka_eos.verify.provenance_bytes import pack

        context = TaskContext.get()
        assert context is not None
        batch = int(context.getLocalProperty("streaming.sql.batchId") or -1)
        for rows in batches:
            origin = pack(rows["partition"].to_numpy(), rows["offset"].to_numpy(), batch, checkpoint)
            value = pc.binary_join_element_wise(origin, rows["value"], pa.scalar(b"", pa.binary()))
            yield pa.RecordBatch.from_pydict({"key": rows["key"], "value": value})

    return rows_of


def copied(source: DataFrame, sink: dict[str, str], checkpoint: int) -> DataStreamWriter:
    """The copy."""
    rows = source.select("key", "value", "partition", "offset")
    return (
        rows.mapInArrow(traced(checkpoint), "key BINARY, value BINARY").writeStream.format("kafka-eos").options(**sink)
    )


def stateful(source: DataFrame, sink: dict[str, str]) -> DataStreamWriter:
    """Per key: how many records so far, the sum of their numbers, how many of them were sent to be aborted."""
    from pyspark.sql import functions as F

    from spark_kafka_eos import TransactionalWriter

    writer = TransactionalWriter({**sink, "appendMode": "executors"})
    text = F.col("value").cast("string")
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


def main(name: str, source: str, sink: str, number: str, checkpoint: str) -> None:
    """Run a query until it is killed, or ends with what broke it. `source` and `sink` are the clusters' addresses;
    `checkpoint` is the query's folder, and the `number`-th one, from 0 on."""
    from pyspark.sql import SparkSession

    from spark_kafka_eos import cluster_id
    from spark_kafka_eos.spark.follow import follow

    spark: SparkSession = SparkSession.builder.appName(name).getOrCreate()
    there, here = ({"kafka.bootstrap.servers": bootstrap, **_PATIENCE} for bootstrap in (source, sink))
    reading = {**there, "subscribe": SOURCE, "startingOffsets": "earliest"}
    here["kafka.transactional.id"] = name
    writing = {**here, "kafka.transaction.timeout.ms": str(TRANSACTION_TIMEOUT_MS), "topic": output(name)}
    if name == MIRROR:
        reading |= {f"sink.{option}": value for option, value in here.items()}
        reading["startingOffsets"] = "committed-or-earliest"
        writing["sourceClusters"] = cluster_id(there)
    rows = spark.readStream.format("kafka-eos").options(**reading).load()
    stream = stateful(rows, writing) if name == STATEFUL else copied(rows, writing, int(number))
    stream = stream.queryName(name).option("checkpointLocation", checkpoint)
    follow(stream.trigger(processingTime="1 second").start())


if __name__ == "__main__":
    main(*sys.argv[1:])
