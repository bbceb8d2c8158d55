"""Copies a topic in `executors` mode until it is killed, each batch on two idle executors. Arguments: bootstrap, from,
to, checkpoint, a folder. What became of batch n is there in `n.json`, or, where it failed, in `n.failed`; the query is
then started again."""

import json
import sys
import time
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
    tracker = spark.sparkContext._jsc.sc().statusTracker()
    while True:
        executors = tracker.getExecutorInfos()  # the driver is one of them
        if len(executors) == 3 and not any(executor.numRunningTasks() for executor in executors):
            return
        time.sleep(0.05)


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
