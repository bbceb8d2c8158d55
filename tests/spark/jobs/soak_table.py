"""A driver of the soak with a table: each micro-batch copies a topic, each partition to its own, and adds what it read
to a table of SQLite, until it is killed.

Arguments: bootstrap, from, to, checkpoint, the database, and a file: when it appears, the query is stopped and started
again, and the file removed.
"""

import sqlite3
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_kafka_eos import SqlTable, TransactionalWriter
from spark_kafka_eos.spark.stopping import stop_on_sigterm

bootstrap, source, target, checkpoint, database, stop = sys.argv[1:]
spark = SparkSession.builder.appName("soak with a table").getOrCreate()
stop_on_sigterm(spark)
servers = {"kafka.bootstrap.servers": bootstrap}
table = SqlTable(lambda: sqlite3.connect(database), insert="INSERT INTO numbers VALUES (?, ?)", key=target)
table.create()
writer = TransactionalWriter(
    servers | {"kafka.transactional.id": target, "topic": target, "kafka.transaction.timeout.ms": "15000"}
)


def both(batch: DataFrame, batch_id: int) -> None:
    with writer.transaction(batch, batch_id, participant=table) as transaction:
        transaction.write(batch.select("value", "partition"))
        transaction.write_table(batch.select("partition", F.col("value").cast("string").cast("long")))


reads = servers | {"subscribe": source, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "100000"}
read = spark.readStream.format("kafka-eos").options(**reads).load()
stream = read.writeStream.foreachBatch(both).option("checkpointLocation", checkpoint).trigger(processingTime="1 second")
is_stopped = True
while is_stopped:
    query = stream.start()
    is_stopped = False
    while not is_stopped and not query.awaitTermination(1):
        is_stopped = Path(stop).exists()
    if is_stopped:
        query.stop()
        Path(stop).unlink()
