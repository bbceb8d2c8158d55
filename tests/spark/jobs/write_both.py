"""A driver to be killed: each batch goes to a topic and to a table in SQLite. Arguments: bootstrap, from, to, database,
checkpoint, append mode, batch size."""

import sqlite3
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_kafka_eos import SqlTable, TransactionalWriter

bootstrap, source, target, database, checkpoint, mode, size = sys.argv[1:]
spark = SparkSession.builder.appName("both").getOrCreate()
kafka = {"kafka.bootstrap.servers": bootstrap}
table = SqlTable(lambda: sqlite3.connect(database), insert="INSERT INTO rows VALUES (?)", key="rows")
writer = TransactionalWriter(kafka | {"kafka.transactional.id": f"both-{target}", "topic": target, "appendMode": mode})
# Another draw for each computation of the batch: both sides get the same one.
drawn = F.concat(F.col("value").cast("string"), F.lit(" "), F.rand().cast("string"))
rows = (
    spark.readStream.format("kafka-eos")
    .options(**kafka, subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger=size)
    .load()
    .select(drawn.alias("value"))
)


def both(batch: DataFrame, batch_id: int) -> None:
    with writer.transaction(batch, batch_id, participant=table) as transaction:
        transaction.write(batch)
        transaction.write_table(batch)


stream = rows.writeStream.trigger(availableNow=True).option("checkpointLocation", checkpoint)
stream.foreachBatch(both).start().awaitTermination()
