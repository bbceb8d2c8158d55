"""A driver to be killed: each batch goes to a topic and to a table. Arguments: bootstrap, from, to, class of the
participant, table, checkpoint."""

import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import spark_kafka_eos
from spark_kafka_eos import TransactionalWriter

bootstrap, source, target, participant, name, checkpoint = sys.argv[1:]
spark = SparkSession.builder.appName("both").getOrCreate()
kafka = {"kafka.bootstrap.servers": bootstrap}
table = getattr(spark_kafka_eos, participant)(spark, name, key="rows")
# After the timeout, a batch that only the table has would be computed again, with other draws: longer than any start.
timeout = {"kafka.transaction.timeout.ms": "900000"}
writer = TransactionalWriter(kafka | timeout | {"kafka.transactional.id": f"both-{target}", "topic": target})
# Another draw for each computation of the batch: both sides get the same one.
drawn = F.concat(F.col("value").cast("string"), F.lit(" "), F.rand().cast("string"))
rows = (
    spark.readStream.format("kafka-eos")
    .options(**kafka, subscribe=source, startingOffsets="earliest")
    .load()
    .select(drawn.alias("value"))
)


def both(batch: DataFrame, batch_id: int) -> None:
    with writer.transaction(batch, batch_id, participant=table) as transaction:
        transaction.write(batch)
        transaction.write_table(batch)


stream = rows.writeStream.trigger(availableNow=True).option("checkpointLocation", checkpoint)
stream.foreachBatch(both).start().awaitTermination()
