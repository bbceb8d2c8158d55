"""Batch writes on a cluster whose executors do not see the driver's temporary directory; argv: bootstrap, topic, shared
folder, result file.

Writes a JSON object: what each write printed as its error, "" for none.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

BOOTSTRAP, TOPIC, SHARED, RESULT = sys.argv[1:]
MIB = 1 << 20


def save(frame: DataFrame, **options: str) -> str:
    writer = frame.write.format("kafka-eos").mode("append").option("kafka.bootstrap.servers", BOOTSTRAP)
    try:
        writer.options(topic=TOPIC, **options).save()
    except PySparkException as error:
        return str(error)
    return ""


def rows(spark: SparkSession, name: str, bytes_per_task: int) -> DataFrame:
    """Rows of 100 kB in two tasks, with the write's name and their number as keys."""
    count = 2 * bytes_per_task // 100_000
    return spark.range(0, count, 1, 2).select(
        F.concat(F.lit(f"{name}:"), "id").alias("key"), F.repeat(F.lit("x"), 100_000).alias("value")
    )


def main() -> None:
    spark = SparkSession.builder.getOrCreate()
    own = tempfile.gettempdir()
    seen = spark.sparkContext.parallelize(range(4), 4).map(lambda _: Path(own).exists()).collect()
    result = {
        "seen": json.dumps(seen),
        "small": save(rows(spark, "small", MIB)),
        "large": save(rows(spark, "large", 20 * MIB)),
        "shared": save(rows(spark, "shared", 20 * MIB), stagingDir=SHARED),
        "left": json.dumps(sorted(path.name for path in Path(own).glob("kafka-eos-*"))),
    }
    Path(RESULT).write_text(json.dumps(result))
    spark.stop()


if __name__ == "__main__":
    main()
