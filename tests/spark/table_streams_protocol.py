"""The examples of docs/table-streams.md as drivers of their own, which are killed after their commit, before Spark has
recorded the batch, and started again. test_table_streams.py runs this file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from spark_kafka_eos.testing.driver import Driver, Kill, committed_batches, python_environment
from spark_kafka_eos.testing.jars import files
from spark_kafka_eos.testing.topic_reader import read_topic
from tests.pages import ROOT, python_blocks
from tests.reading import await_stable
from tests.spark.iceberg_tables import in_jdbc
from tests.spark.own_spark import delta_lake
from tests.spark.tables import session, submitted

pytestmark = pytest.mark.timeout(900)

SETUP, *EXAMPLES = python_blocks(ROOT / "docs" / "table-streams.md")
FORMATS = ("delta", "iceberg")
OUTBOX = dict(zip(FORMATS, (EXAMPLES[0], EXAMPLES[2]), strict=True))
CHANGES = EXAMPLES[1]
CHANGED = (("update_preimage", "ordered"), ("update_postimage", "sold"))
AFTER = ("insert", "update_postimage")
SEEN = dict(zip(FORMATS, EXAMPLES[3:], strict=True))


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

    def killed(self, example: str, topic: str) -> None:
        """A process that runs this example, and is killed between its commit and Spark's note of it."""
        name = f"{topic}-killed"
        with self.driver(example, name, Kill(point="ended", batch=0)) as killed:
            killed.wait_until((self.folder / name / "reached").exists, timeout=240)
            assert killed.kill() >= 2, "the JVM and at least one Python process were alive"
        assert committed_batches(self.folder / topic) == 0, "Spark had not noted the batch"

    def run(self, example: str) -> None:
        """The page's setup and this example, in this process."""
        code = SETUP + example
        exec(code.replace("localhost:9092", self.bootstrap).replace("/tmp/", f"{self.folder}/"), {})

    def rows(self, format_: str, source: str, **options: str) -> DataFrame:
        """The stream of this table."""
        return self.spark.readStream.format(format_).options(**options).load(source)

    def send(self, stream: DataFrame, topic: str) -> None:
        """Send what the stream has now."""
        self.sends(stream, topic, {"availableNow": True}).awaitTermination()

    def sends(self, stream: DataFrame, topic: str, trigger: dict[str, Any]) -> StreamingQuery:
        """A query in this process that sends the stream's rows as JSON."""
        writing = stream.select(F.to_json(F.struct("*")).alias("value")).writeStream.format("kafka-eos")
        writing = writing.options(**{"kafka.bootstrap.servers": self.bootstrap, "kafka.transactional.id": topic})
        checkpoint = f"{self.folder}/{topic}"
        return writing.options(topic=topic, checkpointLocation=checkpoint).trigger(**trigger).start()

    def sent(self, topic: str) -> list[dict[str, Any]]:
        """What the topic has."""
        await_stable(self.bootstrap, topic)
        return [json.loads(each.value() or b"") for each in read_topic(self.bootstrap, topic, "read_committed")]


@pytest.fixture(scope="module")
def place(kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("page")
    conf = in_jdbc(folder) | {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }
    conf["spark.jars"] += "," + ",".join(map(str, files(delta_lake(pyspark.__version__))))
    conf |= {"spark.sql.shuffle.partitions": "2", "spark.databricks.delta.snapshotPartitions": "1"}  # tables are small
    spark = session(conf)
    yield Place(spark, conf, folder, kafka.bootstrap)
    spark.stop()


@pytest.mark.parametrize("format_", FORMATS)
def test_an_outbox_reaches_its_topic_exactly_once(kafka, place: Place, format_: str) -> None:
    table = {"delta": f"delta.`{place.folder}/lake/outbox`", "iceberg": "lake.shop.outbox"}[format_]
    topic = f"outbox-of-{format_}"
    kafka.create_topic(topic, 2)
    place.spark.sql(f"CREATE TABLE {table} (id BIGINT, what STRING) USING {format_}")
    put(place, table, range(10))
    place.killed(OUTBOX[format_], topic)
    put(place, table, range(10, 20))
    place.complete(OUTBOX[format_], topic)
    found = place.sent(topic)
    assert sorted((row["id"], row["what"]) for row in found) == [(number, "ordered") for number in range(20)]


def test_the_changes_of_a_table_reach_their_topic_exactly_once(kafka, place: Place) -> None:
    table, topic = f"delta.`{place.folder}/lake/stock`", kafka.create_topic("changes-of-stock", 2)
    followed = "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    place.spark.sql(f"CREATE TABLE {table} (id BIGINT, what STRING) USING delta {followed}")
    put(place, table, range(10))
    place.killed(CHANGES, topic)
    place.spark.sql(f"UPDATE {table} SET what = 'sold' WHERE id < 3")
    place.spark.sql(f"DELETE FROM {table} WHERE id = 9")
    place.complete(CHANGES, topic)
    inserted = [(number, "insert", "ordered") for number in range(10)]
    updated = [(number, *change) for number in range(3) for change in CHANGED]
    found = [(row["id"], row["_change_type"], row["what"]) for row in place.sent(topic)]
    assert sorted(found) == sorted([*inserted, *updated, (9, "delete", "ordered")])


def by_key(changes: list[dict[str, Any]]) -> dict[int, str]:
    """What a reader has that applies the records as they come."""
    rows: dict[int, str] = {}
    for change in changes:
        if change["_change_type"] in AFTER:
            rows[change["id"]] = change["what"]
        else:
            rows.pop(change["id"], None)
    return rows


def by_version(changes: list[dict[str, Any]]) -> dict[int, str]:
    """What a reader has that lets the later version count, and within it what the row is after it."""
    last: dict[int, tuple[int, bool, str]] = {}
    for change in changes:
        state = (change["_commit_version"], change["_change_type"] in AFTER, change["what"])
        last[change["id"]] = max(last.get(change["id"], (-1, False, "")), state)
    return {number: what for number, (_, is_there, what) in last.items() if is_there}


def changed(place: Place, table: str) -> dict[int, str]:
    """Changes whose order matters, in several commits; what the table has after them."""
    place.spark.sql(
        f"CREATE TABLE {table} (id BIGINT, what STRING) USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    )
    put(place, table, range(10))
    for round_ in range(2):
        place.spark.sql(f"DELETE FROM {table} WHERE id < 6")
        put(place, table, range(6), what=f"back {round_}")
    place.spark.sql(f"UPDATE {table} SET id = id + 1 WHERE id >= 5")  # the keys 6 to 9 are taken away and given
    place.spark.sql(
        f"""MERGE INTO {table} t USING (SELECT id, id < 4 AS is_old FROM range(2, 6)) s ON t.id = s.id AND s.is_old
        WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id, what) VALUES (s.id - 2, 'merged')"""
    )
    before = place.spark.sql(f"DESCRIBE HISTORY {table}").agg(F.max("version")).collect()[0][0]
    place.spark.sql(f"DELETE FROM {table} WHERE id % 2 = 1")
    place.spark.sql(f"UPDATE {table} SET what = 'gone' WHERE id % 4 = 0")
    place.spark.sql(f"RESTORE TABLE {table} TO VERSION AS OF {before}")
    return {row.id: row.what for row in place.spark.table(table).collect()}


@pytest.mark.parametrize("options", ["", '"appendMode": "executors", '], ids=["as the page has it", "executors"])
def test_a_reader_by_key_of_the_changes_ends_with_the_table(kafka, place: Place, options: str) -> None:
    """On one machine the driver appends, on a cluster the executors do."""
    name = f"stock-by-key-{len(options)}"
    topic, table = kafka.create_topic(f"changes-of-{name}", 2), f"delta.`{place.folder}/lake/{name}`"
    rows = changed(place, table)
    place.run(CHANGES.replace("stock", name).replace("(kafka | {", f"(kafka | {{{options}"))
    assert by_key(place.sent(topic)) == rows
    assert by_version(place.sent(topic)) == rows


def test_a_reader_by_version_ends_with_the_table_also_if_a_version_is_in_two_batches(kafka, place: Place) -> None:
    name = "stock-by-version"
    topic, table = kafka.create_topic(f"changes-of-{name}", 2), f"delta.`{place.folder}/lake/{name}`"
    rows = changed(place, table)
    example = CHANGES.replace("stock", name).replace(
        'startingVersion="0"', 'startingVersion="0", maxFilesPerTrigger="1"'
    )
    place.run(example)
    sent = place.sent(topic)
    assert committed_batches(place.folder / topic) > len({row["_commit_version"] for row in sent})
    assert by_version(sent) == rows


@pytest.fixture
def shelf(place: Place, request: pytest.FixtureRequest) -> str:
    """The folder of a new Delta table, of which two partitions have ten rows each."""
    folder = f"{place.folder}/lake/{request.node.name}"
    place.spark.sql(f"CREATE TABLE delta.`{folder}` (id BIGINT, what STRING) USING delta PARTITIONED BY (what)")
    put(place, f"delta.`{folder}`", range(10))
    return folder


def test_deleted_rows_stop_a_stream_unless_it_ignores_them(kafka, place: Place, shelf: str) -> None:
    topic = kafka.create_topic("with-deletes")

    def send(**options: str) -> list[int]:
        place.send(place.rows("delta", shelf, **options), topic)
        return sorted(row["id"] for row in place.sent(topic))

    assert send() == list(range(10))
    put(place, f"delta.`{shelf}`", range(10, 12), what="returned")
    place.spark.sql(f"DELETE FROM delta.`{shelf}` WHERE what = 'ordered'")  # a whole partition
    with pytest.raises(StreamingQueryException, match="DELTA_SOURCE_IGNORE_DELETE"):
        send()
    assert sorted(row["id"] for row in place.sent(topic)) == list(range(10))
    assert send(ignoreDeletes="true") == list(range(12))
    place.spark.sql(f"UPDATE delta.`{shelf}` SET id = id + 100")
    with pytest.raises(StreamingQueryException, match="DELTA_SOURCE_TABLE_IGNORE_CHANGES"):
        send(ignoreDeletes="true")
    put(place, f"delta.`{shelf}`", range(12, 14))
    assert send(skipChangeCommits="true") == list(range(14))


def merged(place: Place, table: str, numbers: range, condition: str = "true") -> None:
    """Insert these rows, or update those that are there and fulfil the condition."""
    place.spark.sql(
        f"""MERGE INTO {table} t USING (SELECT id, 'merged' AS what FROM range({numbers.start}, {numbers.stop})) s
        ON t.id = s.id WHEN MATCHED AND {condition} THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"""
    )


def test_what_a_merge_inserts_is_skipped_with_what_it_updates(kafka, place: Place, shelf: str) -> None:
    topic, table = kafka.create_topic("with-merge-in-delta"), f"delta.`{shelf}`"
    place.send(place.rows("delta", shelf), topic)
    merged(place, table, range(9, 12))
    put(place, table, range(20, 22))
    place.send(place.rows("delta", shelf, skipChangeCommits="true"), topic)
    assert sorted(row["id"] for row in place.sent(topic)) == [*range(10), 20, 21], "10 and 11 were new"


def test_a_merge_in_iceberg_that_matches_a_row_and_a_delete_stop_their_stream_or_are_skipped(
    kafka, place: Place
) -> None:
    topic, table = kafka.create_topic("with-merge-in-iceberg"), "lake.shop.merging"
    place.spark.sql(f"CREATE TABLE {table} (id BIGINT, what STRING) USING iceberg")
    put(place, table, range(10))
    place.send(place.rows("iceberg", table), topic)
    merged(place, table, range(9, 12), "t.what = 'sold'")
    with pytest.raises(StreamingQueryException, match="overwrite"):
        place.send(place.rows("iceberg", table), topic)
    put(place, table, range(20, 22))
    skips = {"streaming-skip-overwrite-snapshots": "true"}
    place.send(place.rows("iceberg", table, **skips), topic)
    assert sorted(row["id"] for row in place.sent(topic)) == [*range(10), 20, 21]

    place.spark.sql(f"DELETE FROM {table} WHERE id >= 20")  # whole files
    with pytest.raises(StreamingQueryException, match="delete"):
        place.send(place.rows("iceberg", table, **skips), topic)
    put(place, table, range(30, 32))
    place.send(place.rows("iceberg", table, **skips, **{"streaming-skip-delete-snapshots": "true"}), topic)
    assert sorted(row["id"] for row in place.sent(topic)) == [*range(10), 20, 21, 30, 31]


def test_a_column_that_is_added_stops_a_running_stream_once(kafka, place: Place, shelf: str) -> None:
    topic = kafka.create_topic("with-columns")
    running = place.sends(place.rows("delta", shelf), topic, {"processingTime": "0 seconds"})
    running.processAllAvailable()
    place.spark.sql(f"ALTER TABLE delta.`{shelf}` ADD COLUMNS (price BIGINT)")
    place.spark.sql(f"INSERT INTO delta.`{shelf}` VALUES (10, 'ordered', 7)")
    with pytest.raises(StreamingQueryException, match="DELTA_SCHEMA_CHANGED"):
        running.awaitTermination(120)
    assert len(place.sent(topic)) == 10
    place.send(place.rows("delta", shelf), topic)
    assert sorted((row["id"], row.get("price")) for row in place.sent(topic)) == [
        *((number, None) for number in range(10)),
        (10, 7),
    ]


def test_files_that_are_gone_before_they_were_read_stop_the_stream_with_nothing_of_them_sent(
    kafka, place: Place, shelf: str
) -> None:
    topic, table = kafka.create_topic("with-vacuum"), f"delta.`{shelf}`"
    place.send(place.rows("delta", shelf), topic)
    put(place, table, range(10, 15))
    put(place, table, range(15, 20))
    place.spark.sql(f"OPTIMIZE {table}")
    place.spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    place.spark.sql(f"VACUUM {table} RETAIN 0 HOURS")
    with pytest.raises(StreamingQueryException, match="FILE_NOT_EXIST|FileNotFound|does not exist"):
        place.send(place.rows("delta", shelf), topic)
    assert sorted(row["id"] for row in place.sent(topic)) == list(range(10))


def test_a_snapshot_that_expired_before_it_was_read_stops_the_stream(kafka, place: Place) -> None:
    topic, table = kafka.create_topic("with-expiry"), "lake.shop.expiring"
    place.spark.sql(f"CREATE TABLE {table} (id BIGINT, what STRING) USING iceberg")
    put(place, table, range(10))

    def send() -> list[int]:
        place.send(place.rows("iceberg", table), topic)
        return sorted(row["id"] for row in place.sent(topic))

    assert send() == list(range(10))
    for numbers in (range(10, 12), range(12, 14), range(14, 16)):
        put(place, table, numbers)
    late = "older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1"
    place.spark.sql(f"CALL lake.system.expire_snapshots(table => 'shop.expiring', {late})")
    with pytest.raises(StreamingQueryException, match="expired"):
        send()
    assert sorted(row["id"] for row in place.sent(topic)) == list(range(10))


def put(place: Place, table: str, numbers: range, what: str = "ordered") -> None:
    rows = place.spark.createDataFrame([(number, what) for number in numbers], "id BIGINT, what STRING")
    rows.writeTo(table).append()


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
    if format_ == "delta":  # with commitOffsets; before Spark 4.2, the last batch of a start is not among them
        asked = ConsumerGroupTopicPartitions("seen-in-delta", [TopicPartition(topic, number) for number in range(2)])
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})  # its answers come only as long as it lives
        (answer,) = admin.list_consumer_group_offsets([asked]).values()
        assert [each.offset for each in answer.result().topic_partitions or []] == [5, 5]
