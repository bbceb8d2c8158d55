"""Copies a topic in `executors` mode until it is killed, each batch on two idle executors. Arguments: bootstrap, from,
to, checkpoint, a folder. What became of batch n is there in `n.json`, or, where it failed, in `n.failed`; the query is
then started again."""

import json
import sys
from dataclasses import asdict
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_kafka_eos import KafkaEosError, TransactionalWriter

bootstrap, source, target, checkpoint, folder = sys.argv[1:]
spark = SparkSession.builder.appName("redo").getOrCreate()
sink = {
    "kafka.bootstrap.servers": bootstrap,
    "kafka.transactional.id": f"redo-{target}",
    "kafka.transaction.timeout.ms": 600_000,
    "topic": target,
    "appendMode": "executors",
}
writer = TransactionalWriter(sink)
records = (
    spark.readStream.format("kafka-eos")
    .option("kafka.bootstrap.servers", bootstrap)
    .option("subscribe", source)
    .option("startingOffsets", "earliest")
    .option("minPartitions", 2)  # two encode tasks, one on each executor
    .load()
    .select(F.col("value").alias("key"), "value")
)


def await_executors() -> None:
    """Return when both executors can start a task at once, so that each encodes one half of the batch: the tasks of a
    barrier stage start together. An executor that is only listed cannot yet."""
    spark.sparkContext.parallelize(range(2), 2).barrier().mapPartitions(iter).count()


def process(batch_df: DataFrame, batch_id: int) -> None:
    await_executors()
    try:
        writer(batch_df, batch_id)
    except KafkaEosError as error:
        note(f"{batch_id}.failed", {"error": type(error).__name__, "text": str(error)})
        raise
    assert writer.last_commit is not None
    note(f"{batch_id}.json", asdict(writer.last_commit))


def note(name: str, what: dict[str, object]) -> None:
    partial = Path(folder) / f".{name}"
    partial.write_text(json.dumps(what))
    partial.rename(Path(folder) / name)


while True:
    try:
        records.writeStream.option("checkpointLocation", checkpoint).foreachBatch(process).start().awaitTermination()
    except StreamingQueryException as error:
        print("started again after", error)
