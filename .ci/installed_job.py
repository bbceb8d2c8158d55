"""A first job with the installed package, on a broker of its own: write a batch, copy it by a stream, read it."""

import os
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

from pyspark.sql import SparkSession

import spark_kafka_eos
from spark_kafka_eos.testing import EmbeddedKafka

assert "site-packages" in spark_kafka_eos.__file__, "this is not the installed package"
assert files(spark_kafka_eos).joinpath("py.typed").is_file()

os.environ["PYSPARK_PYTHON"] = sys.executable  # else Spark's workers are the PATH's python3

with EmbeddedKafka() as kafka, tempfile.TemporaryDirectory() as checkpoint:
    for topic in ("orders", "copies"):
        kafka.create_topic(topic, 2)
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    sink = {"kafka.bootstrap.servers": kafka.bootstrap, "kafka.transactional.id": "batch", "topic": "orders"}
    rows = spark.range(100).selectExpr("cast(id as string) as key", "cast(id * 2 as string) as value")
    rows.write.format("kafka-eos").options(**sink).mode("append").save()
    source = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": "orders", "startingOffsets": "earliest"}
    query = (
        spark.readStream.format("kafka-eos").options(**source).load().writeStream.format("kafka-eos")
        .options(**sink | {"kafka.transactional.id": "stream", "topic": "copies"})
        .option("checkpointLocation", str(Path(checkpoint) / "copy")).trigger(availableNow=True).start()
    )  # fmt: skip
    assert query.awaitTermination(120), "the stream did not end"
    read = spark.read.format("kafka-eos").options(**source | {"subscribe": "copies"}).load()
    found = {(bytes(row.key), bytes(row.value)) for row in read.select("key", "value").collect()}
    assert found == {(b"%d" % n, b"%d" % (2 * n)) for n in range(100)}, len(found)
    assert read.count() == 100
    spark.stop()
print("the installed package writes, streams and reads: 100 rows exactly once")
