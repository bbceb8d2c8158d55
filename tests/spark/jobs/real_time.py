"""A driver to be killed: copies a topic in real time until what is there is written. Arguments: bootstrap, from, to,
checkpoint."""

import sys

from pyspark.sql import SparkSession

from spark_kafka_eos import TransactionalWriter, arrow_stream

bootstrap, source, target, checkpoint = sys.argv[1:]
spark = SparkSession.builder.appName("real time").getOrCreate()
servers = {"kafka.bootstrap.servers": bootstrap}
writer = TransactionalWriter(servers | {"kafka.transactional.id": target, "topic": target})
reads = servers | {"subscribe": source, "startingOffsets": "earliest", "kafka.max.partition.fetch.bytes": "2000"}
stream = arrow_stream(spark, reads, writer, real_time="5 minutes")
stream.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
