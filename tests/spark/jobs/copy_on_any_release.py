"""Copies a topic on any release of Spark, until all is copied. Arguments: bootstrap, from, to, checkpoint, the source's
format, the way to write; and how many offsets a micro-batch has at most."""

import sys

from pyspark.sql import SparkSession

from spark_kafka_eos import TransactionalWriter

bootstrap, source, target, checkpoint, form, way, *limit = sys.argv[1:]
spark = SparkSession.builder.appName("copy").getOrCreate()
reader = spark.readStream.format(form).option("kafka.bootstrap.servers", bootstrap).option("subscribe", source)
if limit:
    reader = reader.option("maxOffsetsPerTrigger", limit[0])
records = reader.option("startingOffsets", "earliest").load().select("key", "value")
sink = {"kafka.bootstrap.servers": bootstrap, "kafka.transactional.id": f"copy-{target}", "topic": target}
stream = records.writeStream.option("checkpointLocation", checkpoint)
if form == "kafka":
    stream = stream.trigger(availableNow=True)  # before Spark 4.2, only one micro-batch from kafka-eos
if way == "sink":
    stream = stream.format("kafka-eos").options(**sink)
else:
    stream = stream.foreachBatch(TransactionalWriter(sink | {"appendMode": way}))
query = stream.start()
if form == "kafka":
    query.awaitTermination()
else:
    query.processAllAvailable()
    query.stop()
