"""Where the sink looks for the query's checkpoint: its commit runs in a process that has no session to ask."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_kafka_eos.spark.writer import TransactionalWriter
from tests.reading import read_committed
from tests.s3 import s3_of

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
    with pytest.raises(
        Exception, match="Spark has planned none for this write.*is not the one that Spark writes.*Add the scheme"
    ):
        run(numbers(cluster), options, checkpoint)
    assert written(options) == list(range(20))


def with_store(spark: SparkSession, scheme: str, authority: str, folder: Path) -> SparkSession:
    """A session to whose JVM `<scheme>://<authority>/` is this folder. Hadoop keeps it: each test needs its own."""
    folder.mkdir()
    session = spark.newSession()
    session.conf.set(f"fs.{scheme}.impl", "org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme")
    session.conf.set(f"fs.viewfs.mounttable.{authority}.linkFallback", f"file://{folder}")
    return session


def test_a_checkpoint_that_only_spark_can_open_is_read_through_spark_in_foreachbatch(spark, options, tmp_path):
    session = with_store(spark, "store", "one", tmp_path / "store")
    options["stagingDir"] = str(tmp_path / "staged")
    for _ in range(2):
        stream = numbers(session).writeStream.foreachBatch(TransactionalWriter(options))
        stream.option("checkpointLocation", "store://one/checkpoint").trigger(
            availableNow=True
        ).start().awaitTermination()
    assert (tmp_path / "store/checkpoint/commits/1").exists()
    assert written(options) == list(range(40))


def test_in_a_store_foreachbatch_takes_the_batch_from_spark_s_memory(spark, options, tmp_path):
    """A store may be slow, and another driver may have replaced the plan there."""
    session = with_store(spark, "store", "three", tmp_path / "store")
    options["stagingDir"] = str(tmp_path / "staged")
    writer = TransactionalWriter(options)
    checkpoint, hidden = tmp_path / "store" / "checkpoint", tmp_path / "hidden"

    some_batches = threading.Event()

    def write(frame: DataFrame, batch_id: int) -> None:
        checkpoint.rename(hidden)
        try:
            writer(frame, batch_id)
        finally:
            hidden.rename(checkpoint)
        if batch_id == 3:
            some_batches.set()

    stream = numbers(session).writeStream.foreachBatch(write).option("checkpointLocation", "store://three/checkpoint")
    query = stream.start()
    assert some_batches.wait(60), query.exception()
    query.stop()
    values = written(options)
    assert values == list(range(len(values)))
    assert len(values) >= 4 * 20


def test_a_checkpoint_that_only_spark_can_open_is_refused_by_the_sink_with_what_to_do(spark, options, tmp_path):
    session = with_store(spark, "store", "two", tmp_path / "store")
    with pytest.raises(Exception, match="checkpointLocation.*cannot open 'store://two/checkpoint'") as raised:
        run(numbers(session), options, "store://two/checkpoint")
    assert "TransactionalWriter in foreachBatch reads the checkpoint through Spark" in str(raised.value)
    assert "Nothing was committed" in str(raised.value)
    assert (tmp_path / "store/checkpoint/metadata").exists()
    assert written(options) == []


@pytest.fixture
def databricks(spark: SparkSession) -> SparkSession:
    """A session whose default file system is `dbfs:`, with folders that are also mounted, as `/Volumes` is there. Here
    its `/` is that of this machine, and there is no `/dbfs`."""
    session = spark.newSession()
    session.conf.set("fs.dbfs.impl", "org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme")
    session.conf.set("fs.defaultFS", "dbfs://databricks/")
    session.conf.set("fs.viewfs.mounttable.databricks.linkFallback", "file:///")
    return session


def test_a_mounted_path_without_a_scheme_is_read_where_it_is_mounted(databricks, options, tmp_path):
    for _ in range(2):
        run(numbers(databricks), options, str(tmp_path / "checkpoint"))
    assert (tmp_path / "checkpoint" / "commits" / "1").exists()
    assert written(options) == list(range(40))


def test_a_dbfs_location_that_is_not_mounted_is_refused_before_any_task(databricks, options, tmp_path):
    with pytest.raises(Exception, match="cannot open 'dbfs:.*/dbfs is not mounted in this process") as raised:
        run(numbers(databricks), options, f"dbfs:{tmp_path}/checkpoint")
    assert "TransactionalWriter in foreachBatch" in str(raised.value)
    assert written(options) == []


def test_the_sink_reads_a_checkpoint_from_s3(spark, options, tmp_path):
    """Spark's S3 file system is a stand-in, a folder; the sink reads the folder with pyarrow's S3 client."""
    session = with_store(spark, "s3", "bucket", tmp_path / "bucket")
    options["stagingDir"] = str(tmp_path / "staged")
    with s3_of(tmp_path / "bucket") as server:
        # To pyarrow these are settings, to Spark a part of the folder's name.
        settings = f"?region=eu-west-1&scheme=http&endpoint_override={quote(server, safe='')}"
        (tmp_path / "bucket" / "checkpoint").symlink_to(f"checkpoint{settings}")
        for _ in range(2):
            run(numbers(session), options, f"s3://bucket/checkpoint{settings}")
    assert (tmp_path / "bucket" / "checkpoint" / "commits" / "1").exists()
    assert written(options) == list(range(40))


@pytest.mark.parametrize(("prefix", "way"), [("", "sink"), ("file:", "foreachBatch"), ("file://", "sink")])
def test_a_local_checkpoint_is_found_whatever_characters_its_name_has(spark, options, tmp_path, prefix, way):
    checkpoint = f"{prefix}{tmp_path}/a b#c?d%20e"
    if way == "sink":
        run(numbers(spark), options, checkpoint)
    else:
        stream = numbers(spark).writeStream.foreachBatch(TransactionalWriter(options))
        stream.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
    assert (tmp_path / "a b#c?d%20e" / "commits" / "0").exists()
    assert written(options) == list(range(20))
