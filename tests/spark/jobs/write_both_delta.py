"""A driver to be killed: each batch goes to a topic and to a table of Delta Lake. Arguments: bootstrap, from, to,
table, checkpoint."""

import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_kafka_eos import DeltaParticipant, TransactionalWriter

bootstrap, source, target, name, checkpoint = sys.argv[1:]
spark = SparkSession.builder.appName("both").getOrCreate()
kafka = {"kafka.bootstrap.servers": bootstrap}
table = DeltaParticipant(spark, name, key="rows")
writer = TransactionalWriter(kafka | {"kafka.transactional.id": f"both-{target}", "topic": target})
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
