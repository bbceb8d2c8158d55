"""Queries on Spark Connect. Arguments: bootstrap, topic, a folder, the topics of the README's example, that of dead
letters, and one for a copy of the README's orders by `arrow_stream`.

Prints one line of JSON: each query's error, null without one. `driver` and `executors` are the append modes; `twice`
calls the writer twice in a batch, `constant` always with the same batch id; `counts` has state, and `replay` is that
query once more, as if its first run had died before Spark noted the batch. `readme` is the README's example.
`last_commit` is what the client's writer says of its batches, and `inside` what the server's says, which the function
that it runs checks. `to_dead_letters` makes dead letters of the even numbers. `schemas` is about values of a schema
registry. `listener` is what a `ProgressListener` of the client knows of a query.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from spark_kafka_eos import (
    ProgressListener,
    TransactionalWriter,
    arrow_stream,
    from_confluent,
    split_errors,
    to_confluent,
    to_dead_letters,
)
from spark_kafka_eos.testing.registry import schema_registry
from tests.pages import readmes_example

bootstrap, topic, folder, orders, paid, dead, copied = sys.argv[1:]
(Path(folder) / "in").mkdir()
errors: dict[str, str | None] = {}
STARTS = 5  # of a query, at most


def add_file(first: int) -> None:
    lines = "".join(json.dumps({"n": n}) + "\n" for n in range(first, first + 50))
    (Path(folder) / "in" / f"{first}.json").write_text(lines)


def writer(name: str, mode: str = "driver", checkpoint: str = "") -> TransactionalWriter:
    options = {"kafka.bootstrap.servers": bootstrap, "kafka.transactional.id": f"{topic}-{name}", "topic": topic}
    options |= {"appendMode": mode, "checkpointLocation": f"{folder}/{checkpoint or name}", "deadLetterTopic": dead}
    return TransactionalWriter(options)


def run(name: str, frame: DataFrame, function: Callable[[DataFrame, int], None], checkpoint: str = "") -> None:
    finish(name, frame.writeStream.outputMode("update").foreachBatch(function), checkpoint)


def finish(name: str, stream: DataStreamWriter, checkpoint: str = "") -> None:
    """Run the query; again while the server's Python process did not start in Spark's ten seconds (a busy machine)."""
    stream = stream.option("checkpointLocation", f"{folder}/{checkpoint or name}").trigger(availableNow=True)
    for _ in range(STARTS):
        try:
            stream.start().awaitTermination()
            errors[name] = None
        except PySparkException as error:
            errors[name] = str(error)
        if "Python worker failed to connect back" not in str(errors[name]):
            return


def value_only(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows.select(["value"])


def twice(batch_df: DataFrame, batch_id: int) -> None:
    to_both(batch_df.limit(0), batch_id)
    to_both(batch_df, batch_id)


def constant(batch_df: DataFrame, batch_id: int) -> None:
    always_0(batch_df.limit(0), 0)


add_file(0)
add_file(50)
spark = SparkSession.builder.remote("local[2]").getOrCreate()
spark.conf.set("spark.sql.shuffle.partitions", "2")
files = spark.readStream.schema("n long").option("maxFilesPerTrigger", 1).json(f"{folder}/in")
numbers = files.selectExpr("cast(n as string) as value")
to_both, always_0 = writer("twice"), writer("constant")
by_mode = {mode: writer(mode, mode) for mode in ("driver", "executors")}
for mode, its_writer in by_mode.items():
    run(mode, numbers, its_writer)
try:
    errors["last_commit"] = f"no error, but {by_mode['driver'].last_commit}"
except RuntimeError as error:
    errors["last_commit"] = str(error)
inside = writer("inside")


def told(batch_df: DataFrame, batch_id: int) -> None:
    before = inside.last_commit
    assert before is None or before.batch_id == batch_id - 1, before
    inside(batch_df.limit(0), batch_id)
    assert inside.last_commit is not None and inside.last_commit.batch_id == batch_id


run("inside", numbers, told)
run("twice", numbers, twice)
run("constant", numbers, constant)
even = F.expr("if(n % 2 = 0, named_struct('cause', 'even', 'message', '', 'schema_id', 1), null)")
decoded = files.select(F.col("n").cast("string").alias("value"), F.struct(even.alias("error")).alias("decoded"))
run("aside", to_dead_letters(decoded, "decoded", value=F.concat(F.lit("odd "), "value")), writer("aside"))


def split(batch_df: DataFrame, batch_id: int) -> None:
    good, bad = split_errors(batch_df, "decoded")
    assert (good.count(), bad.count()) == (25, 25), batch_id
    assert good.where("value % 2 = 0").isEmpty() and bad.where("value % 2 = 1").isEmpty(), batch_id


run("split", decoded, split)
servers = {"kafka.bootstrap.servers": bootstrap}
copy = TransactionalWriter(
    servers | {"kafka.transactional.id": copied, "topic": copied, "checkpointLocation": f"{folder}/arrow"}
)
reading = servers | {"subscribe": orders, "startingOffsets": "earliest"}
finish("arrow", arrow_stream(spark, reading, copy, value_only))

listener = ProgressListener(reading)
spark.streams.addListener(listener)
watched = spark.readStream.format("kafka-eos").options(**reading).load().writeStream.format("noop")
listened = watched.option("checkpointLocation", f"{folder}/listened").trigger(availableNow=True).start()
listened.awaitTermination()
deadline = time.monotonic() + 60
while listener.last(listened.id) is None and time.monotonic() < deadline:  # Spark calls its listeners a moment later
    time.sleep(0.1)
heard = listener.last(listened.id)
figures = [] if heard is None else [(one.rows, one.bytes_read, one.rows_aborted) for one in heard.sources]
errors["listener"] = None if figures == [(30, None, None)] else str(figures)
spark.streams.removeListener(listener)
listener.close()

counts = files.selectExpr("n % 2 as odd").groupBy("odd").count().selectExpr("concat('-', count) as value")
run("counts", counts, writer("counts"))
for left in ("1", ".1.crc"):
    (Path(folder) / "counts" / "commits" / left).unlink()
run("replay", counts, writer("counts"), "counts")

names: dict[str, Any] = {}
exec(readmes_example(bootstrap, folder, orders, paid), names)
names["query"].awaitTermination()
errors["readme"] = None if names["spark"] is spark and not hasattr(spark, "_jvm") else "not over Spark Connect"

schema = '{"type": "record", "name": "Numbered", "fields": [{"name": "id", "type": "long"}]}'
with schema_registry() as url:
    encoded = spark.range(3).select(
        to_confluent(F.struct("id"), url, topic="ids", schema=schema, register=True).alias("v")
    )
    decoded = encoded.select(from_confluent("v", url, topic="ids", mode="permissive").alias("decoded"))
    ids = sorted(found.id for found in decoded.select("decoded.value.id").collect())
errors["schemas"] = None if ids == [0, 1, 2] else str(ids)
print(json.dumps(errors))
spark.stop()
