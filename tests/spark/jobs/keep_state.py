"""Stateful queries over the same files, to be killed all at once. Arguments: bootstrap, a prefix of their topics, a
folder, and the batch at whose end each of them waits to be killed, -1 for none.

The files are in `in`, of {"n", "key", "t" (seconds)}, one for each batch. A query that waits makes a file in `waiting`;
the one that the sink runs waits at its failpoint instead. Those that don't wait leave in `<name>.json` what became of
their batches, and in `<plan>.expected.json` what the plan gives without any sink of ours and without a crash.
"""

import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

os.environ.pop("KAFKA_EOS_FAILPOINT", None)  # the sink's own processes have it from the JVM

from spark_kafka_eos import TransactionalWriter

bootstrap, prefix, given, last = sys.argv[1:]
folder, wait_after = Path(given), int(last)

STATE = "spark.sql.streaming.stateStore"
FORMATS = {
    "format-1": {},
    "format-2": {
        f"{STATE}.checkpointFormatVersion": "2",
        f"{STATE}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    },
}


def counts(rows: DataFrame) -> DataFrame:
    return rows.groupBy("key").count().select("key", F.concat("key", F.lit("="), "count").alias("value"))


def windows(rows: DataFrame) -> DataFrame:
    found = rows.withWatermark("time", "0 seconds").groupBy(F.window("time", "5 seconds"), "key").count()
    start = F.unix_timestamp("window.start")
    return found.select("key", F.concat(start, F.lit(" "), "key", F.lit("="), "count").alias("value"))


def pairs(rows: DataFrame) -> DataFrame:
    timely = rows.withWatermark("time", "0 seconds")
    even = timely.where("n % 2 = 0").alias("even")
    odd = timely.where("n % 2 = 1").alias("odd")
    near = "even.key = odd.key and odd.time between even.time - interval 5 seconds and even.time + interval 5 seconds"
    return even.join(odd, F.expr(near)).select("even.key", F.concat("even.n", F.lit("-"), "odd.n").alias("value"))


def first_ones(rows: DataFrame) -> DataFrame:
    return rows.select("key", (F.col("n") % 70).cast("string").alias("value")).dropDuplicates(["key", "value"])


PLANS: dict[str, tuple[str, Callable[[DataFrame], DataFrame]]] = {
    "counts": ("update", counts),
    "windows": ("append", windows),
    "pairs": ("append", pairs),
    "first-ones": ("append", first_ones),
}


def start(
    session: SparkSession, plan: str, name: str, function: Callable[[DataFrame, int], None] | None
) -> StreamingQuery:
    mode, of = PLANS[plan]
    files = session.readStream.schema("n long, key string, t long").option("maxFilesPerTrigger", 1)
    rows = files.json(str(folder / "in")).withColumn("time", F.timestamp_seconds("t"))
    stream = of(rows).writeStream.outputMode(mode).trigger(availableNow=True)
    stream = stream.option("checkpointLocation", str(folder / "checkpoints" / name))
    if function is None:
        return stream.format("kafka-eos").options(**sink(name)).start()
    return stream.foreachBatch(function).start()


def sink(name: str) -> dict[str, str]:
    topic = f"{prefix}-{name}"
    return {"kafka.bootstrap.servers": bootstrap, "kafka.transactional.id": topic, "topic": topic}


def transactional(name: str) -> Callable[[DataFrame, int], None]:
    writer, outcomes = TransactionalWriter(sink(name)), []

    def process(batch_df: DataFrame, batch_id: int) -> None:
        writer(batch_df, batch_id)
        assert writer.last_commit is not None
        outcomes.append((batch_id, writer.last_commit.outcome))
        if batch_id == wait_after:
            (folder / "waiting" / name).touch()
            threading.Event().wait()
        (folder / f"{name}.json").write_text(json.dumps(outcomes))

    return process


def collecting(plan: str) -> Callable[[DataFrame, int], None]:
    values: list[str] = []

    def process(batch_df: DataFrame, batch_id: int) -> None:
        values.extend(row.value for row in batch_df.collect())
        (folder / f"{plan}.expected.json").write_text(json.dumps(values))

    return process


spark = SparkSession.builder.appName("state").getOrCreate()
queries = []
for name, settings in FORMATS.items():
    session = spark.newSession()
    for key, value in ({"spark.sql.shuffle.partitions": "2"} | settings).items():
        session.conf.set(key, value)
    queries += [start(session, plan, f"{plan}-{name}", transactional(f"{plan}-{name}")) for plan in PLANS]
    queries.append(start(session, "windows", f"sink-{name}", None))
    if wait_after < 0 and not settings:
        queries += [start(session, plan, f"{plan}.expected", collecting(plan)) for plan in PLANS]
for query in queries:
    query.awaitTermination()
