"""A driver that shows all it can: plans, progress, logs, the event log that the UI is made of. Argument: a folder.

Standard input is JSON: the topics to read (`source`) and to write (`target`), the options of the `connection` and of
`signing`, and a file for what the session's listener gives to its tasks (`collector`).
"""

import json
import logging
import sys
import time
import urllib.request
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from spark_kafka_eos import ProgressListener, TransactionalWriter

folder = sys.argv[1]
given = json.load(sys.stdin)
source, target, connection, signing = (given[name] for name in ("source", "target", "connection", "signing"))
collector = given["collector"]
logging.basicConfig(level=logging.DEBUG, stream=sys.stdout)
logging.getLogger("py4j").setLevel(logging.INFO)  # its DEBUG is a copy of all that Python and the JVM say to each other
spark = SparkSession.builder.appName("show").getOrCreate()
spark.sparkContext.setLogLevel("DEBUG")
listener = ProgressListener({**connection, "subscribe": source, "metricsPort": 0})
spark.streams.addListener(listener)
Path(collector).write_text(str(spark.conf.get("spark.kafka-eos.progress.token")))


def show(frame: DataFrame) -> None:
    for mode in ("extended", "cost", "formatted"):
        frame.explain(mode=mode)
    execution = frame._jdf.queryExecution()
    print(frame, execution.toString(), execution.logical().toJSON())


table = spark.read.format("kafka-eos").options(**connection, subscribe=source).load().select("key", "value")
show(table)
print(table.count())
writing = table.write.format("kafka-eos").mode("append").options(**connection, topic=target)
writing.option("kafka.transactional.id", "show-batch").save()

stream = spark.readStream.format("kafka-eos").options(**connection, subscribe=source, startingOffsets="earliest").load()
show(stream)
rows = stream.select("key", "value")
for way in ("sink", "executors"):
    sink = {**connection, **signing, "kafka.transactional.id": f"show-{way}", "topic": target}
    start = rows.writeStream.trigger(availableNow=True).option("checkpointLocation", f"{folder}/checkpoint-{way}")
    if way == "sink":
        query = start.format("kafka-eos").options(**sink).start()
    else:
        writer = TransactionalWriter(sink | {"appendMode": way})
        print(writer, vars(writer))
        query = start.foreachBatch(writer).start()
    query.awaitTermination()
    query.explain(extended=True)
    assert query.lastProgress is not None
    print(query.lastProgress.json, query.status, query._jsq.toString())

metrics = ""
while metrics.count('outcome="committed"') < 2:  # a commit tells it by a datagram
    time.sleep(0.1)
    with urllib.request.urlopen(f"http://{listener.metrics_address}/metrics") as response:
        metrics = response.read().decode()
print(metrics)
