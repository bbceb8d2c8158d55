"""A driver to be killed: copies a topic with each way to write. Arguments: bootstrap, from, to, checkpoint, way, batch
size."""

import sys

from pyspark.sql import SparkSession

from spark_kafka_eos import TransactionalWriter

bootstrap, source, target, checkpoint, way, size = sys.argv[1:]
spark = SparkSession.builder.appName("copy").getOrCreate()
sink = {"kafka.bootstrap.servers": bootstrap, "kafka.transactional.id": f"copy-{target}", "topic": target}
records = (
    spark.readStream.format("kafka-eos")
    .option("kafka.bootstrap.servers", bootstrap)
    .option("subscribe", source)
    .option("startingOffsets", "earliest")
    .option("maxOffsetsPerTrigger", size)
    .load()
    .select("key", "value")
)
stream = records.writeStream.trigger(availableNow=True).option("checkpointLocation", checkpoint)
if way == "sink":
    stream = stream.format("kafka-eos").options(**sink)
else:
    stream = stream.foreachBatch(TransactionalWriter(sink | {"appendMode": way}))
stream.start().awaitTermination()
