"""Where the sink looks for the query's checkpoint: its commit runs in a process that has no session to ask."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_kafka_eos.spark.writer import TransactionalWriter
from tests.reading import read_committed

pytestmark = [pytest.mark.spark, pytest.mark.broker]


@pytest.fixture
def options(bootstrap: str, topic: Callable[..., str]) -> dict[str, str]:
    name = topic("located", partitions=2)
    return {"kafka.bootstrap.servers": bootstrap, "kafka.transactional.id": name, "topic": name}


def written(options: dict[str, str]) -> list[int]:
    messages = read_committed(options["kafka.bootstrap.servers"], options["topic"])
    return sorted(int(message.value() or b"") for message in messages)


def numbers(session: SparkSession) -> DataFrame:
    rate = session.readStream.format("rate-micro-batch").options(rowsPerBatch="20", numPartitions="1").load()
    return rate.select(F.col("value").cast("string").alias("value"))


def run(frame: DataFrame, options: dict[str, str], checkpoint: str) -> None:
    stream = frame.writeStream.format("kafka-eos").options(**options).option("checkpointLocation", checkpoint)
    stream.trigger(availableNow=True).start().awaitTermination()


@pytest.fixture
def cluster(spark: SparkSession, tmp_path: Path) -> SparkSession:
    """A session whose default file system is not this machine's: its `/` is `elsewhere`."""
    (tmp_path / "elsewhere").mkdir()
    session = spark.newSession()
    session.conf.set("fs.defaultFS", "viewfs://elsewhere/")
    session.conf.set("fs.viewfs.mounttable.elsewhere.linkFallback", f"file://{tmp_path}/elsewhere")
    return session


def test_a_path_without_a_scheme_on_another_default_file_system_asks_for_one(cluster, options, tmp_path):
    checkpoint = str(tmp_path / "checkpoint")
    with pytest.raises(Exception, match="checkpointLocation.*on the driver's local disk.*Add the scheme") as raised:
        run(numbers(cluster), options, checkpoint)
    assert "Nothing was committed" in str(raised.value)
    assert not Path(checkpoint).exists() and Path(f"{tmp_path}/elsewhere{checkpoint}/offsets/0").exists()
    assert written(options) == []


def test_an_old_checkpoint_that_is_on_the_local_disk_instead_is_not_believed(spark, cluster, options, tmp_path):
    checkpoint = str(tmp_path / "checkpoint")
    run(numbers(spark), options, checkpoint)
    assert written(options) == list(range(20))
    with pytest.raises(Exception, match="contains the checkpoint of query .*, but this is query .*Add the scheme"):
        run(numbers(cluster), options, checkpoint)
    assert written(options) == list(range(20))


@pytest.mark.parametrize("way", ["sink", "foreachBatch"])
@pytest.mark.parametrize("prefix", ["", "file:", "file://"])
def test_a_local_checkpoint_is_found_whatever_characters_its_name_has(spark, options, tmp_path, prefix, way):
    checkpoint = f"{prefix}{tmp_path}/a b#c?d%20e"
    if way == "sink":
        run(numbers(spark), options, checkpoint)
    else:
        stream = numbers(spark).writeStream.foreachBatch(TransactionalWriter(options))
        stream.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
    assert (tmp_path / "a b#c?d%20e" / "commits" / "0").exists()
    assert written(options) == list(range(20))
