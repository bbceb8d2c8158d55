"""Queries on Spark Connect whose function goes on after an error in its second of three batches. Arguments: bootstrap,
a topic of 30 records, a folder.

Each query has a way to fail (tests/failing_calls.py), and writes to the topic of that name; `at-least-once` is one of
them with that guarantee. `started again` is the last one once more, with a function that catches nothing. Prints one
line of JSON: each query's error, null without one.
"""

import contextlib
import json
import sys
from collections.abc import Callable

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from spark_kafka_eos import TransactionalWriter
from tests.failing_calls import KNOWN_OVER_CONNECT, Failure, raises_in_the_block

bootstrap, source, folder = sys.argv[1:]
servers = {"kafka.bootstrap.servers": bootstrap}
errors: dict[str, str | None] = {}
STARTS = 5  # of a query, at most


def goes_on(options: dict[str, str], fails: Failure) -> Callable[[DataFrame, int], None]:
    """A function that makes a writer for each batch, and catches what fails in batch 1."""

    def process(batch_df: DataFrame, batch_id: int) -> None:
        if batch_id != 1:
            TransactionalWriter(options)(batch_df, batch_id)
            return
        with contextlib.suppress(Exception):
            fails(options, batch_df, batch_id)

    return process


def run(name: str, checkpoint: str, function: Callable[[DataFrame, int], None]) -> None:
    """Again while the server's Python process did not start in Spark's ten seconds (a busy machine)."""
    stream = records.writeStream.foreachBatch(function).option("checkpointLocation", checkpoint)
    for _ in range(STARTS):
        try:
            stream.trigger(availableNow=True).start().awaitTermination()
            errors[name] = None
        except PySparkException as error:
            errors[name] = str(error)
        if "Python worker failed to connect back" not in str(errors[name]):
            return


spark = SparkSession.builder.remote("local[2]").getOrCreate()
spark.conf.set("spark.sql.shuffle.partitions", "2")
reader = spark.readStream.format("kafka-eos").options(**servers, subscribe=source, startingOffsets="earliest")
records = reader.option("maxOffsetsPerTrigger", 10).load().select("key", "value")
for fails in KNOWN_OVER_CONNECT:
    name = fails.__name__
    options = servers | {"topic": name, "checkpointLocation": f"{folder}/{name}"}
    run(name, f"{folder}/{name}", goes_on(options | {"kafka.transactional.id": name}, fails))
again = TransactionalWriter(options | {"kafka.transactional.id": name})
run("started again", f"{folder}/{name}", again)
options = servers | {"topic": "at-least-once", "checkpointLocation": f"{folder}/at-least-once"}
relaxed = options | {"deliveryGuarantee": "at-least-once"}
run("at-least-once", f"{folder}/at-least-once", goes_on(relaxed, raises_in_the_block))
print(json.dumps(errors))
spark.stop()
