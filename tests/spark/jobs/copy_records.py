"""A driver to be killed: copies a topic with each way to write. Arguments: bootstrap, from, to, checkpoint, way, batch
size; and a file for the listener's figures of the last batch, if there is to be a listener. To several topics (`a,b`)
each row names its own, by its number."""

import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

from spark_kafka_eos import ProgressListener, TransactionalWriter

bootstrap, source, target, checkpoint, way, size, *figures = sys.argv[1:]
spark = SparkSession.builder.appName("copy").getOrCreate()
topics = target.split(",")
sink = {"kafka.bootstrap.servers": bootstrap, "kafka.transactional.id": f"copy-{topics[0]}"}
reads = {"kafka.bootstrap.servers": bootstrap, "subscribe": source, "startingOffsets": "earliest"}
records = (
    spark.readStream.format("kafka-eos")
    .options(**reads)
    .option("maxOffsetsPerTrigger", size)
    .load()
    .select("key", "value")
)
if len(topics) == 1:
    sink["topic"] = target
else:
    names = ", ".join(f"'{topic}'" for topic in topics)
    records = records.selectExpr("*", f"array({names})[int(string(value)) % {len(topics)}] as topic")
stream = records.writeStream.trigger(availableNow=True).option("checkpointLocation", checkpoint)
if way == "sink":
    stream = stream.format("kafka-eos").options(**sink)
else:
    stream = stream.foreachBatch(TransactionalWriter(sink | {"appendMode": way}))
if figures:
    listener = ProgressListener(reads)
    spark.streams.addListener(listener)
query = stream.start()
query.awaitTermination()
if figures:
    last = query.lastProgress
    assert last is not None
    while (told := listener.last(query.id)) is None or told.batch_id != last.batchId:
        time.sleep(0.05)  # Spark tells its listeners later
    Path(figures[0]).write_text(str(told))
