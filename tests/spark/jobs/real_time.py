"""A driver to be killed: copies a topic in real time until what is there is written, or on and on.

Arguments: bootstrap, from, to, checkpoint, and `on` for the latter.
"""

import sys

from pyspark.sql import SparkSession

from spark_kafka_eos import TransactionalWriter, arrow_stream

bootstrap, source, target, checkpoint, *on = sys.argv[1:]
spark = SparkSession.builder.appName("real time").getOrCreate()
servers = {"kafka.bootstrap.servers": bootstrap}
writer = TransactionalWriter(servers | {"kafka.transactional.id": target, "topic": target})
reads = servers | {"subscribe": source, "startingOffsets": "earliest", "kafka.max.partition.fetch.bytes": "2000"}
stream = arrow_stream(spark, reads, writer, real_time="5 minutes", buckets=2)
stream = stream.option("checkpointLocation", checkpoint)
(stream if on else stream.trigger(availableNow=True)).start().awaitTermination()
