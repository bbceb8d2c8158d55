"""What runs within the limits of serverless compute (tests/serverless.py), by PySpark's client for Spark Connect.
`SPARK_REMOTE` is the server's address. Arguments: bootstrap, a folder, the README orders' topic, and a topic for
each of: the README's example, the sink, foreachBatch, `arrow_stream`, a batch write, a table that takes part.

Prints one line of JSON: each query's error, null without one. `trigger` has none, `property` sets one of Spark,
`context` asks for the SparkContext; `read` is the number of records that a batch read finds. `reached` is what this
process itself has opened of a checkpoint, and `Kafka` if it has connected to it, before it has a listener.
"""

import json
import sqlite3
import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from spark_kafka_eos import ProgressListener, SqlTable, TransactionalWriter, arrow_stream
from tests.pages import readmes_example

bootstrap, folder, orders, paid, by_sink, by_foreach, by_arrow, by_batch, with_table = sys.argv[1:]
kafka = {"kafka.bootstrap.servers": bootstrap}
reads = kafka | {"subscribe": orders, "startingOffsets": "earliest"}
reached: set[str] = set()


def watch(event: str, arguments: tuple[Any, ...]) -> None:
    """An audit hook of this process."""
    if event == "socket.connect" and arguments[1][1] == int(bootstrap.rpartition(":")[2]):
        reached.add("Kafka")
    if event in ("open", "os.listdir", "os.scandir") and str(arguments[0]).startswith(f"{folder}/limits-"):
        reached.add(str(arguments[0]))


sys.addaudithook(watch)
found: dict[str, Any] = {"classic": find_spec("pyspark.core") is not None or find_spec("py4j") is not None}


def note(name: str, does: Callable[[], object]) -> None:
    try:
        does()
        found[name] = None
    except Exception as error:  # noqa: BLE001 - the test looks at whatever it is
        found[name] = f"{type(error).__name__}: {error}"


def options(topic: str) -> dict[str, str]:
    return kafka | {"kafka.transactional.id": topic, "topic": topic}


def writer(topic: str) -> TransactionalWriter:
    return TransactionalWriter(options(topic) | {"checkpointLocation": f"{folder}/{topic}"})


def stream() -> DataFrame:
    return spark.readStream.format("kafka-eos").options(**reads).load().select("key", "value")


def run(topic: str, query: DataStreamWriter) -> None:
    query = query.option("checkpointLocation", f"{folder}/{topic}").trigger(availableNow=True)
    query.start().awaitTermination()


spark = SparkSession.builder.getOrCreate()
note("sink", lambda: run(by_sink, stream().writeStream.format("kafka-eos").options(**options(by_sink))))
note("foreach", lambda: run(by_foreach, stream().writeStream.foreachBatch(writer(by_foreach))))
found["reached"] = sorted(reached)
listener = ProgressListener(reads)  # asks the brokers itself
spark.streams.addListener(listener)
note("readme", lambda: exec(readmes_example(bootstrap, folder, orders, paid), {}))
note("arrow", lambda: run(by_arrow, arrow_stream(spark, reads, writer(by_arrow))))


def batch() -> None:
    rows = spark.read.format("kafka-eos").options(**kafka, subscribe=orders).load()
    found["read"] = rows.count()
    rows.select("key", "value").write.format("kafka-eos").mode("append").options(**kafka, topic=by_batch).save()


note("batch", batch)

# Serverless compute refuses these.
endless = stream().writeStream.format("kafka-eos").options(**options(by_sink))
note("trigger", lambda: endless.option("checkpointLocation", f"{folder}/endless").start())
note("property", lambda: spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "1"))
note("context", lambda: spark.sparkContext)
note("persist", lambda: spark.range(1).persist())

database = f"{folder}/shop.db"
sqlite3.connect(database).execute("CREATE TABLE paid (number TEXT PRIMARY KEY)")
table = SqlTable(lambda: sqlite3.connect(database), insert="INSERT INTO paid VALUES (?)", key="paid")
table.create()
both_sides = writer(with_table)


def both(batch_df: DataFrame, batch_id: int) -> None:
    with both_sides.transaction(batch_df, batch_id, participant=table) as transaction:
        transaction.write(batch_df)
        transaction.write_table(batch_df.selectExpr("cast(key as string)"))


note("table", lambda: run(with_table, stream().writeStream.foreachBatch(both)))
found["rows"] = sqlite3.connect(database).execute("SELECT count(*) FROM paid").fetchone()[0]
spark.streams.removeListener(listener)
print(json.dumps(found))
spark.stop()
