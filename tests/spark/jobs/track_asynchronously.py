"""Copies a topic by Spark's own Kafka sink, which tracks its progress asynchronously, until it is killed or has copied
everything. Arguments: bootstrap, from, to, checkpoint."""

import sys

from pyspark.sql import SparkSession

bootstrap, source, target, checkpoint = sys.argv[1:]
kafka = {"kafka.bootstrap.servers": bootstrap}
reads = {"subscribe": source, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "20"}
reads |= {"kafka.group.id": source, "commitOffsets": "true"}
spark = SparkSession.builder.getOrCreate()
rows = spark.readStream.format("kafka-eos").options(**kafka, **reads).load().select("key", "value")
stream = rows.writeStream.format("kafka").options(**kafka, topic=target, asyncProgressTrackingEnabled=True)
stream.option("checkpointLocation", checkpoint).start().processAllAvailable()
