"""A driver whose executors are killed after Kafka has a batch's rows, before the table reads them. Arguments:
bootstrap, from, to, database, checkpoint, "kill" or "" to leave them alone."""

import sqlite3
import sys
from typing import Any

import psutil
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_kafka_eos import SqlTable, TransactionalWriter

bootstrap, source, target, database, checkpoint, kill = sys.argv[1:]
spark = SparkSession.builder.appName("lost").getOrCreate()
kafka = {"kafka.bootstrap.servers": bootstrap}


class AfterALoss(SqlTable):
    def commit(self, rows: Any, token: str | None, *, after: int) -> None:
        if rows is not None and kill:
            kill_executors()
        super().commit(rows, token, after=after)


def kill_executors() -> None:
    command = ("CoarseGrainedExecutorBackend", spark.sparkContext.applicationId)
    executors = [each for each in psutil.process_iter() if all(word in _command(each) for word in command)]
    assert executors
    for each in executors:
        each.kill()
    psutil.wait_procs(executors)


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:  # it has just ended
        return ""


table = AfterALoss(lambda: sqlite3.connect(database), insert="INSERT INTO rows VALUES (?)", key="rows")
writer = TransactionalWriter(kafka | {"kafka.transactional.id": f"lost-{target}", "topic": target})
# Another draw for each computation of the batch.
drawn = F.concat(F.col("value").cast("string"), F.lit(" "), F.rand().cast("string"))
rows = (
    spark.readStream.format("kafka-eos")
    .options(**kafka, subscribe=source, startingOffsets="earliest")
    .load()
    .select(drawn.alias("value"))
)


def both(batch: DataFrame, batch_id: int) -> None:
    kept = batch.localCheckpoint(eager=False)
    with writer.transaction(batch, batch_id, participant=table) as transaction:
        transaction.write(kept)
        transaction.write_table(kept)


stream = rows.writeStream.trigger(availableNow=True).option("checkpointLocation", checkpoint)
stream.foreachBatch(both).start().awaitTermination()
