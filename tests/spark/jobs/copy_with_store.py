"""Copies a topic, with checkpoint and staged blocks where the arguments say: bootstrap, from, to, checkpoint,
stagingDir, way, batch size. Without a checkpoint there, it goes on where the last committed transaction ended."""

import sys

from pyspark.sql import SparkSession

from spark_kafka_eos import TransactionalWriter

bootstrap, source, target, checkpoint, staging, way, size = sys.argv[1:]
spark = SparkSession.builder.appName("copy").getOrCreate()
sink = {"kafka.bootstrap.servers": bootstrap, "kafka.transactional.id": f"copy-{target}", "topic": target}
sink["stagingDir"] = staging
records = (
    spark.readStream.format("kafka-eos")
    .options(**{"kafka.bootstrap.servers": bootstrap, "subscribe": source, "startingOffsets": "committed-or-earliest"})
    .options(**{"sink.kafka.transactional.id": f"copy-{target}", "maxOffsetsPerTrigger": size})
    .load()
    .select("key", "value")
)
stream = records.writeStream.trigger(availableNow=True).option("checkpointLocation", checkpoint)
if way == "sink":
    stream = stream.format("kafka-eos").options(**sink)
else:
    stream = stream.foreachBatch(TransactionalWriter(sink | {"appendMode": way}))
stream.start().awaitTermination()
