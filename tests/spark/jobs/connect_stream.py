"""A foreachBatch query on Spark Connect, in each append mode. Arguments: bootstrap, topic, a folder.

Prints one line of JSON: each mode's error, null without one.
"""

import json
import sys
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_kafka_eos import TransactionalWriter

bootstrap, topic, folder = sys.argv[1:]
(Path(folder) / "in").mkdir()
(Path(folder) / "in" / "numbers.json").write_text("".join(json.dumps({"n": n}) + "\n" for n in range(100)))
errors: dict[str, str | None] = {}

spark = SparkSession.builder.remote("local[2]").getOrCreate()
for mode in ("driver", "executors"):
    checkpoint = f"{folder}/{mode}"
    options = {"kafka.bootstrap.servers": bootstrap, "kafka.transactional.id": f"{topic}-{mode}", "topic": topic}
    writer = TransactionalWriter(options | {"appendMode": mode, "checkpointLocation": checkpoint})
    numbers = spark.readStream.schema("n long").json(f"{folder}/in").selectExpr("cast(n as string) as value")
    stream = numbers.writeStream.foreachBatch(writer).option("checkpointLocation", checkpoint)
    try:
        stream.trigger(availableNow=True).start().awaitTermination()
        errors[mode] = None
    except PySparkException as error:
        errors[mode] = str(error)
print(json.dumps(errors))
spark.stop()
