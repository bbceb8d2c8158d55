"""Reads a topic with Spark's own source and with ours. Arguments: bootstrap, topic, a folder for checkpoints.

Fails if their rows differ. Prints one line of JSON: both schemas, the number of rows, and the values of a query that
changes its source between two runs on one checkpoint, in each order.
"""

import json
import sys

from chispa import assert_df_equality
from pyspark.sql import DataFrame

from lab.bench.lab import session
from tests.producing import produce

bootstrap, topic, folder = sys.argv[1:]
BUILT_IN, OURS = "kafka", "kafka-eos"
OPTIONS = {
    "kafka.bootstrap.servers": bootstrap,
    "subscribe": topic,
    "startingOffsets": "earliest",
    "includeHeaders": "true",
    "kafka.isolation.level": "read_committed",
}

with session() as spark:
    frames = {source: spark.read.format(source).options(**OPTIONS).load() for source in (BUILT_IN, OURS)}
    assert_df_equality(frames[OURS], frames[BUILT_IN], ignore_row_order=True)
    runs: list[list[str]] = []
    found = {
        "schemas": {source: frame.schema.json() for source, frame in frames.items()},
        "rows": frames[OURS].count(),
        "runs": runs,
    }
    for first, second in ((BUILT_IN, OURS), (OURS, BUILT_IN)):
        values: list[str] = []

        def collect(frame: DataFrame, batch_id: int, values: list[str] = values) -> None:
            values += [row.text for row in frame.selectExpr("string(value) AS text").collect()]

        for number, source in enumerate((first, second, second)):
            query = spark.readStream.format(source).options(**OPTIONS).load().writeStream.foreachBatch(collect)
            query = query.option("checkpointLocation", f"{folder}/{first}").trigger(availableNow=True)
            query.start().awaitTermination()
            values.append("|")
            if number == 1:
                produce(bootstrap, topic, [b"later"])
        runs.append(values)
    print(json.dumps(found))
