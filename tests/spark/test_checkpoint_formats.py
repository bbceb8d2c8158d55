"""What a query's checkpoint says in both formats of Spark's offset log, after crashes and after a restore."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_kafka_eos.appending.files import files_at
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.spark.checkpoint import micro_batch
from spark_kafka_eos.spark.writer import TransactionalWriter
from spark_kafka_eos.testing.driver import Driver, Kill, committed_batches, python_environment
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from tests.reading import read_committed

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.timeout(900)]

FORMAT = "spark.sql.streaming.offsetLog.formatVersion"
EVOLUTION = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
JOB = Path(__file__).parent / "jobs" / "copy_two_topics.py"
RECORDS = 6_000


@pytest.fixture
def options(bootstrap: str, topic: Callable[..., str]) -> dict[str, str]:
    name = topic("out", partitions=2)
    return {"kafka.bootstrap.servers": bootstrap, "kafka.transactional.id": name, "topic": name}


def add_file(folder: Path, first: int, last: int) -> None:
    folder.mkdir(exist_ok=True)
    lines = "".join(json.dumps({"n": n}) + "\n" for n in range(first, last))
    (folder / f"{first:09}.json").write_text(lines)


def numbers(session: SparkSession, folder: Path) -> DataFrame:
    """The numbers in the files of a folder, all there are in one micro-batch."""
    return session.readStream.schema("n long").json(str(folder)).select(F.col("n").cast("string").alias("value"))


def run(frame: DataFrame, options: dict[str, str], way: str, checkpoint: Path) -> None:
    stream = frame.writeStream.trigger(availableNow=True).option("checkpointLocation", str(checkpoint))
    if way == "sink":
        stream = stream.format("kafka-eos").options(**options)
    else:
        stream = stream.foreachBatch(TransactionalWriter(options))
    stream.start().awaitTermination()


def forget(checkpoint: Path, batch: int, logs: tuple[str, ...]) -> None:
    """Remove what these logs of the checkpoint know of a batch."""
    for log in logs:
        (checkpoint / log / str(batch)).unlink()
        (checkpoint / log / f".{batch}.crc").unlink()


def written(options: dict[str, str]) -> list[int]:
    messages = read_committed(options["kafka.bootstrap.servers"], options["topic"])
    return sorted(int(message.value() or b"") for message in messages)


@pytest.mark.parametrize("way", ["foreachBatch", "sink"])
@pytest.mark.parametrize("version", ["1", "2"])
def test_a_batch_of_files_that_a_restored_checkpoint_plans_again_is_refused_instead_of_skipped(
    spark, options, tmp_path, way, version
):
    session = spark.newSession()
    session.conf.set(FORMAT, version)
    folder, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    for first in (0, 10):
        add_file(folder, first, first + 10)
        run(numbers(session, folder), options, way, checkpoint)
    forget(checkpoint, 1, ("offsets", "commits", "sources/0"))  # a copy from before batch 1
    add_file(folder, 20, 30)
    with pytest.raises(Exception, match="with other source offsets") as raised:
        run(numbers(session, folder), options, way, checkpoint)
    assert "LedgerRefused" in str(raised.value)
    assert "Nothing was committed" in str(raised.value)
    assert written(options) == list(range(20))


def test_of_named_sources_the_kafka_one_has_a_range_and_a_replay_beside_files_is_skipped(
    spark, options, topic, tmp_path
):
    session = spark.newSession()
    session.conf.set(EVOLUTION, "true")
    name, folder, checkpoint = topic("in", partitions=1), tmp_path / "in", tmp_path / "checkpoint"
    bootstrap = options["kafka.bootstrap.servers"]
    producer = Producer({"bootstrap.servers": bootstrap})

    def frame() -> DataFrame:
        reader = session.readStream.format("kafka-eos").name("records").option("subscribe", name)
        reader = reader.options(startingOffsets="earliest", **{"kafka.bootstrap.servers": bootstrap})
        files = session.readStream.schema("n long").format("json").name("files").load(str(folder))
        files = files.select(F.encode(F.col("n").cast("string"), "utf-8"))
        both: DataFrame = reader.load().select("value").union(files)
        return both

    for first in (0, 10):
        add_file(folder, first, first + 5)
        for number in range(first + 5, first + 10):
            producer.produce(name, value=b"%d" % number)
        assert producer.flush(30) == 0
        run(frame(), options, "foreachBatch", checkpoint)
    read = files_at(str(checkpoint), "checkpointLocation").read_text
    batch = micro_batch(read, 1)
    partition = TopicPartition(name, 0)
    files, records = batch.sources
    assert (files, records and (records.start, records.end)) == (None, ({partition: 5}, {partition: 10}))
    forget(checkpoint, 1, ("commits",))
    run(frame(), options, "foreachBatch", checkpoint)
    assert micro_batch(read, 1) == batch, "a replay finds the same"
    assert written(options) == list(range(20))


class TwoTopics:
    """A query that copies two topics, 1,000 records of each in a micro-batch, and dies at a given point."""

    def __init__(self, broker: EmbeddedKafka, name: str, way: str, folder: Path) -> None:
        self.bootstrap, self.checkpoint, self._way, self._folder = broker.bootstrap, folder / "checkpoint", way, folder
        self._sources = [broker.create_topic(f"{name}-{which}", 2) for which in ("first", "second")]
        self._target = broker.create_topic(f"{name}-out", 3)
        self._runs = 0
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for number in range(RECORDS):
            producer.produce(self._sources[number % 2], value=b"%d" % number, partition=number // 2 % 2)
        assert producer.flush(30) == 0

    def die(self, point: str, batch: int, **conf: str) -> None:
        """Run until it reaches the failpoint, then SIGKILL."""
        kill = Kill(point=point, batch=batch)
        folder = self._folder / f"run-{self._runs}"
        folder.mkdir()
        with self._driver(conf, kill.environment(folder)) as driver:
            driver.wait_until((folder / "reached").exists, timeout=180)
            driver.kill()
        assert committed_batches(self.checkpoint) == batch, "Spark had not noted the batch"

    def finish(self, **conf: str) -> None:
        with self._driver(conf, {}) as driver:
            driver.wait(timeout=240)

    def planned(self, batch: int) -> list[str]:
        """The lines of `offsets/<batch>`."""
        return (self.checkpoint / "offsets" / str(batch)).read_text().split("\n")

    def upgrade(self, batch: int) -> None:
        """Write the plan of a batch again in v2, as Spark does it: with the sources' numbers, in any order."""
        _, metadata, *sources = self.planned(batch)
        lines = [f"{number}:{source}" for number, source in enumerate(sources)]
        metadata = json.dumps(json.loads(metadata) | {"sourceMetadataInfo": {}})
        forget(self.checkpoint, batch, ("offsets",))
        (self.checkpoint / "offsets" / str(batch)).write_text("\n".join(["v2", metadata, *reversed(lines)]))

    def copied(self) -> Counter[int]:
        messages = read_committed(self.bootstrap, self._target)
        return Counter(int(message.value() or b"") for message in messages)

    def _driver(self, conf: Mapping[str, str], env: Mapping[str, str]) -> Driver:
        self._runs += 1
        settings = [f"{name}={value}" for name, value in conf.items()]
        return Driver(
            JOB,
            [self.bootstrap, *self._sources, self._target, str(self.checkpoint), self._way, "1000"],
            conf=[
                *("--master", "local[2]", "--conf", "spark.ui.enabled=false"),
                *(word for setting in settings for word in ("--conf", setting)),
            ],
            env={**python_environment(), **env},
            log=self._folder / "driver.log",
        )


@pytest.mark.slow
def test_a_query_with_named_sources_killed_after_its_commit_copies_each_record_once(kafka, tmp_path):
    query = TwoTopics(kafka, "named", "sink", tmp_path)
    query.die("ended", 1, **{EVOLUTION: "true"})
    assert query.planned(1)[0] == "v2"
    assert {line.split(":")[0] for line in query.planned(1)[2:]} == {"zebras", "antelopes"}
    assert query.copied().total() == 4_000
    query.finish(**{EVOLUTION: "true"})
    assert query.copied() == Counter(range(RECORDS))


@pytest.mark.slow
def test_a_query_killed_on_both_sides_of_an_upgrade_of_its_offset_log_copies_each_record_once(kafka, tmp_path):
    query = TwoTopics(kafka, "upgrade", "driver", tmp_path)
    query.die("ended", 0)
    query.die("before append", 1, **{FORMAT: "2"})  # Spark 4.3 continues with v1
    assert [query.planned(batch)[0] for batch in (0, 1)] == ["v1", "v1"]
    assert query.copied().total() == 2_000
    query.upgrade(1)
    query.die("ended", 1)
    assert query.copied().total() == 4_000
    query.finish()
    assert [query.planned(batch)[0] for batch in (0, 1, 2)] == ["v1", "v2", "v2"]
    assert query.copied() == Counter(range(RECORDS))
