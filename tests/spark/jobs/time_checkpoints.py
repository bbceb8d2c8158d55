"""Copies a topic again and again, and times micro-batches by who writes and where the checkpoint is, in turn.
Arguments: bootstrap, from, to, a file for the figures, batch size, batches, runs; then places, each `name=location`,
with `=class` if Spark is to have that checkpoint file manager.

The file gets milliseconds of a trigger, by side: the median of each run without its first two batches.
"""

import json
import sys
from collections import defaultdict
from pathlib import Path
from statistics import median

from pyspark.sql import SparkSession

from spark_kafka_eos import TransactionalWriter

bootstrap, source, target, figures, size, batches, runs, *named = sys.argv[1:]
MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
LOCAL = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
WARM_UP = 2
spark = SparkSession.builder.getOrCreate()


def session_with(manager: str = "") -> SparkSession:
    session = spark.newSession()
    if manager:
        session.conf.set(MANAGER, manager)
    return session


places = {}
for place in named:
    name, location, *managers = place.split("=")
    places[name] = (location, session_with(*managers))
local = session_with(LOCAL)
broker = {"kafka.bootstrap.servers": bootstrap}


def trigger_ms(way: str, checkpoint: str, session: SparkSession, **reading: str) -> float:
    """Copy the topic once."""
    kind, sink = "kafka" if way == "built-in" else "kafka-eos", {**broker, "topic": target}
    reader = session.readStream.format(kind).options(**broker, subscribe=source, maxOffsetsPerTrigger=size)
    frame = reader.options(**(reading or {"startingOffsets": "earliest"})).load()
    stream = frame.select("key", "value").writeStream.option("checkpointLocation", checkpoint)
    if way != "built-in":
        sink |= {"kafka.transactional.id": checkpoint, "stagingDir": f"{figures}-staged"}
    if way == "foreachBatch":
        stream = stream.foreachBatch(TransactionalWriter(sink | {"appendMode": "driver"}))
    else:
        stream = stream.format(kind).options(**sink)
    query = stream.trigger(availableNow=True).start()
    query.awaitTermination()
    triggers: list[float] = [
        batch.durationMs["triggerExecution"] for batch in query.recentProgress if batch.numInputRows
    ]
    assert len(triggers) == int(batches), f"{way}: {len(triggers)} batches"
    return median(triggers[WARM_UP:])


measured = defaultdict(list)
for run in range(int(runs)):
    for way in ("sink", "foreachBatch", "built-in"):
        for name, (location, session) in places.items():
            measured[f"{way}, {name}"].append(trigger_ms(way, f"{location}/{way}-{run}", session))
        if way != "built-in":
            checkpoint = f"{Path(figures).parent.as_uri()}/kafka-{way}-{run}"
            reading = {"startingOffsets": "committed-or-earliest", "sink.kafka.transactional.id": checkpoint}
            lost = trigger_ms(way, checkpoint, local, **reading)
            measured[f"{way}, Kafka is the checkpoint"].append(lost)
Path(figures).write_text(json.dumps(measured))
