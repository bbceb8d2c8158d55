"""Reads what is in a topic now, ten offsets in a micro-batch, on any release of this package. Arguments: bootstrap,
topic, checkpoint, the source's format, and a file for the numbers that each micro-batch read, as JSON."""

import json
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession


def drain(spark: SparkSession, bootstrap: str, topic: str, checkpoint: str, form: str) -> dict[str, list[int]]:
    """The numbers that each micro-batch read."""
    read: dict[str, list[int]] = {}

    def note(frame: DataFrame, batch: int) -> None:
        read[str(batch)] = sorted(int(row.value) for row in frame.select("value").collect())

    reader = spark.readStream.format(form).option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    rows = reader.option("maxOffsetsPerTrigger", "10").option("startingOffsets", "earliest").load()
    stream = rows.writeStream.trigger(availableNow=True).option("checkpointLocation", checkpoint).foreachBatch(note)
    stream.start().awaitTermination()
    return read


if __name__ == "__main__":
    *arguments, result = sys.argv[1:]
    Path(result).write_text(json.dumps(drain(SparkSession.builder.getOrCreate(), *arguments)))
