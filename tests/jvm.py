"""Makes the tests' Spark drivers, executors and brokers start cheaply: no optimising compiler, and for drivers and
brokers archives of the classes that they load.

Most of them live for seconds. Measured as the CPU time of a spark-submit that writes one table: 15 s by default, 9.5 s
without the optimising compiler, 5 s with the archive too. `make test` makes the archives; without them, everything only
starts more slowly. Java checks that they fit its own release and the jars, and else does without.

Usage: python -m tests.jvm
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark

from spark_kafka_eos.testing import class_archive, jars
from spark_kafka_eos.testing.driver import python_environment, spark_submit

BROKERS = (jars.DEFAULT_VERSION, "3.9.1")  # those that the tests start often


def archive(release: str) -> Path:
    """Of the classes that a driver of this release of Spark loads."""
    return Path(__file__).parents[1] / "build" / f"spark-{release}.jsa"


def environment(release: str) -> dict[str, str]:
    """What every spark-submit of this release reads, so also the one of a session that a test builds."""
    return _environment(f"-XX:SharedArchiveFile={archive(release)}")


def _environment(archive_option: str) -> dict[str, str]:
    """Executors are started with other options: a driver passes them those of Spark's own setting."""
    executors = "-Dspark.executor.defaultJavaOptions=-XX:TieredStopAtLevel=1"
    driver = f"-XX:TieredStopAtLevel=1 {archive_option} -Xlog:cds=off -Xlog:cds+dynamic=off"
    return {"SPARK_SUBMIT_OPTS": f"{driver} {executors}"}


def make_archive() -> None:
    """Run a job that does what most tests do, and keep the classes that its driver loaded; about 20 s."""
    place = archive(pyspark.__version__)
    place.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, "made.jsa")
        settings = ["--master", "local[2]", "--conf", "spark.ui.enabled=false", "--conf", "spark.driver.host=127.0.0.1"]
        subprocess.run(
            [spark_submit(), *settings, __file__, folder],
            check=True,
            capture_output=True,
            env={**os.environ, **python_environment(), **_environment(f"-XX:ArchiveClassesAtExit={made}")},
        )
        made.replace(place)


def _job(folder: str) -> None:
    from pyspark.sql import DataFrame, SparkSession

    def evaluate(frame: DataFrame, _: int) -> None:
        frame.collect()

    spark = SparkSession.builder.getOrCreate()
    spark.range(100).mapInArrow(lambda batches: batches, "id long").repartition(2).groupBy("id").count().collect()
    query = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", 10)
        .load()
        .selectExpr("CAST(CAST(value AS STRING) AS BINARY) AS value")
        .writeStream.foreachBatch(evaluate)
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _job(sys.argv[1])
        sys.exit()
    if not archive(pyspark.__version__).exists():
        make_archive()
    for version in BROKERS:
        if not jars.class_archive(version).exists():
            class_archive.make(version)
