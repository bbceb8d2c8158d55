"""Copies a topic over Spark Connect, batch by batch, and ends. `SPARK_REMOTE` is the server's address.

Arguments: bootstrap, source, target, checkpoint, way (`sink`, `foreach`, `arrow`), records a batch, transactional id,
and a file: when that is there, the query is stopped. SIGTERM stops it as well. Exit code 90: another driver took over.
"""

import sys
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_kafka_eos import TransactionalWriter, arrow_stream, must_not_restart, stop_on_sigterm

bootstrap, source, target, checkpoint, way, size, identity, stop = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
assert not hasattr(spark, "_jsparkSession"), "not over Spark Connect"
stop_on_sigterm(spark)
reads = {"kafka.bootstrap.servers": bootstrap, "subscribe": source, "startingOffsets": "earliest"}
reads["maxOffsetsPerTrigger"] = size
sink = {"kafka.bootstrap.servers": bootstrap, "kafka.transactional.id": identity, "topic": target}
if way == "arrow":
    stream = arrow_stream(spark, reads, TransactionalWriter(sink | {"checkpointLocation": checkpoint}))
else:
    stream = spark.readStream.format("kafka-eos").options(**reads).load().select("key", "value").writeStream
    if way == "sink":
        stream = stream.format("kafka-eos").options(**sink)
    else:
        stream = stream.foreachBatch(TransactionalWriter(sink | {"checkpointLocation": checkpoint}))
query = stream.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
print("started", query.id, query.runId, flush=True)
try:
    while not query.awaitTermination(1):
        if Path(stop).exists():
            print("stopping", flush=True)
            query.stop()
except PySparkException as error:
    print(error, flush=True)
    sys.exit(90 if must_not_restart(error) else 1)
print("ended", flush=True)
