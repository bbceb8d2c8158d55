"""The examples of docs/table-streams.md as drivers of their own, which are killed after their commit, before Spark has
recorded the batch, and started again. test_table_streams.py runs this file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyspark
import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from spark_kafka_eos.testing.driver import Driver, Kill, committed_batches, python_environment
from spark_kafka_eos.testing.jars import delta_lake, files
from spark_kafka_eos.testing.topic_reader import read_topic
from tests.pages import ROOT, python_blocks
from tests.reading import await_stable
from tests.spark.iceberg_tables import in_jdbc
from tests.spark.tables import session, submitted

pytestmark = pytest.mark.timeout(900)

SETUP, *EXAMPLES = python_blocks(ROOT / "docs" / "table-streams.md")
FORMATS = ("delta", "iceberg")
OUTBOX = dict(zip(FORMATS, EXAMPLES[:2], strict=True))
SEEN = dict(zip(FORMATS, EXAMPLES[2:], strict=True))


@dataclass
class Place:
    """A Spark with both formats, where `/tmp/` of the page is `folder`."""

    spark: SparkSession
    conf: dict[str, str]
    folder: Path
    bootstrap: str

    def driver(self, example: str, name: str, kill: Kill | None = None) -> Driver:
        """A process that runs the page's setup and this example."""
        own = self.folder / name
        own.mkdir()
        job = own / "example.py"
        code = SETUP + example
        job.write_text(code.replace("localhost:9092", self.bootstrap).replace("/tmp/", f"{self.folder}/"))
        env = python_environment() | (kill.environment(own) if kill else {})
        return Driver(job, [], conf=submitted(self.conf), env=env, log=self.folder / "driver.log")

    def complete(self, example: str, name: str) -> None:
        for number in (1, 2):  # before Spark 4.2, each start with availableNow runs one batch of Kafka's
            with self.driver(example, f"{name}-{number}") as driver:
                driver.wait(timeout=240)


@pytest.fixture(scope="module")
def place(kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("page")
    conf = in_jdbc(folder) | {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }
    conf["spark.jars"] += "," + ",".join(map(str, files(delta_lake(pyspark.__version__))))
    spark = session(conf)
    yield Place(spark, conf, folder, kafka.bootstrap)
    spark.stop()


@pytest.mark.parametrize("format_", FORMATS)
def test_an_outbox_reaches_its_topic_exactly_once(kafka, place: Place, format_: str) -> None:
    table = {"delta": f"delta.`{place.folder}/lake/outbox`", "iceberg": "lake.shop.outbox"}[format_]
    topic, checkpoint = f"outbox-of-{format_}", place.folder / f"outbox-of-{format_}"
    kafka.create_topic(topic, 2)
    place.spark.sql(f"CREATE TABLE {table} (id BIGINT, what STRING) USING {format_}")

    def put(numbers: range) -> None:
        place.spark.createDataFrame([(number, "ordered") for number in numbers], "id BIGINT, what STRING").writeTo(
            table
        ).append()

    put(range(10))
    name, kill = f"{topic}-killed", Kill(point="ended", batch=0)
    with place.driver(OUTBOX[format_], name, kill) as killed:
        killed.wait_until((place.folder / name / "reached").exists, timeout=240)
        assert killed.kill() >= 2, "the JVM and at least one Python process were alive"
    assert committed_batches(checkpoint) == 0, "Spark had not noted the batch"
    put(range(10, 20))
    place.complete(OUTBOX[format_], topic)
    await_stable(kafka.bootstrap, topic)
    found = [json.loads(each.value() or b"") for each in read_topic(kafka.bootstrap, topic, "read_committed")]
    assert sorted((row["id"], row["what"]) for row in found) == [(number, "ordered") for number in range(20)]


@pytest.mark.parametrize("format_", FORMATS)
def test_a_table_gets_the_records_of_a_topic_exactly_once(kafka, place: Place, format_: str) -> None:
    checkpoint, topic = place.folder / f"seen-in-{format_}", kafka.create_topic(f"seen-in-{format_}", 2)
    example = SEEN[format_].replace('subscribe="seen"', f'subscribe="{topic}"')
    if format_ == "iceberg":
        place.spark.sql("CREATE TABLE lake.shop.seen (value STRING) USING iceberg")

    def committed() -> bool:
        log = {"delta": "lake/seen/_delta_log/00000000000000000000.json", "iceberg": "warehouse/shop/seen/metadata"}
        path = place.folder / log[format_]
        return path.exists() and (format_ == "delta" or bool(list(path.glob("snap-*"))))

    def produce(numbers: range) -> None:
        producer = Producer({"bootstrap.servers": kafka.bootstrap})
        for number in numbers:
            producer.produce(topic, value=b"%d" % number, partition=number % 2)
        assert producer.flush(30) == 0

    produce(range(10))
    with place.driver(example, f"{topic}-killed") as killed:
        killed.wait_until(committed, timeout=240)
        assert killed.kill() >= 2, "the JVM and at least one Python process were alive"
    for noted in checkpoint.glob("commits/*0*"):  # if it was faster: as if it had been killed before
        noted.unlink()
    assert committed_batches(checkpoint) == 0
    produce(range(10, 20))
    place.complete(example, topic)
    table = {"delta": f"delta.`{place.folder}/lake/seen`", "iceberg": "lake.shop.seen"}[format_]
    if format_ == "iceberg":
        place.spark.catalog.refreshTable(table)  # the catalog of this session may have an older state
    assert sorted(int(row.value) for row in place.spark.table(table).collect()) == list(range(20))
