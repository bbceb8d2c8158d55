"""The protocol on real tables of Delta Lake, to which other drivers write, too. test_delta.py runs this file
on a release of Spark that Delta supports.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyspark
import pytest
from confluent_kafka import Producer
from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from spark_kafka_eos import Conflict, DeltaParticipant, Held
from spark_kafka_eos.spark import delta as module
from spark_kafka_eos.spark.launcher import beside
from spark_kafka_eos.testing.driver import Driver, Kill, committed_batches, python_environment
from spark_kafka_eos.testing.jars import delta_lake, files
from spark_kafka_eos.testing.topic_reader import read_topic
from tests.reading import await_stable

JOBS = Path(__file__).parent / "jobs"
CONF = {
    "spark.ui.enabled": "false",
    "spark.jars": ",".join(map(str, files(delta_lake(pyspark.__version__)))),
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
}
ARGUMENTS = ["--master", "local[2]", *(part for name, value in CONF.items() for part in ("--conf", f"{name}={value}"))]


@pytest.fixture(scope="module")
def spark(tmp_path_factory) -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = beside(sys.executable)
    builder = SparkSession.builder.master("local[3]")
    for name, value in CONF.items():
        builder = builder.config(name, value)
    session = builder.config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse"))).getOrCreate()
    yield session
    session.stop()


@pytest.fixture
def table(spark, tmp_path) -> str:
    name = f"delta.`{tmp_path}/sales`"
    spark.sql(f"CREATE TABLE {name} (id BIGINT NOT NULL, seen STRING) USING delta")
    return name


def ids(spark: SparkSession, table: str) -> list[int]:
    return sorted(row.id for row in spark.table(table).collect())


def rows(spark: SparkSession, *numbers: int, seen: str = "") -> DataFrame:
    return spark.createDataFrame([(number, seen) for number in numbers], "id BIGINT, seen STRING")


class Interrupted(DeltaParticipant):
    """`before` and `after` happen around what is next written to Delta."""

    before: Callable[[], None] | None = None
    after: Callable[[], None] | None = None

    def _write(self, rows: Any, own: Any) -> None:
        before, after, self.before, self.after = self.before, self.after, None, None
        if before:
            before()
        super()._write(rows, own)
        if after:
            after()


def fail() -> None:
    raise ConnectionError("no answer")


def merging(table: str) -> Callable[[SparkSession, DataFrame], object]:
    def merge(session: SparkSession, rows: DataFrame) -> object:
        target = DeltaTable.forName(session, table).alias("t")
        matched = target.merge(rows.alias("s"), "t.id = s.id").whenMatchedUpdateAll()
        return matched.whenNotMatchedInsertAll().execute()

    return merge


# -- version and token


def test_version_and_token_are_those_of_the_keys_last_commit(spark, table, monkeypatch) -> None:
    monkeypatch.setattr(module, "_FIRST_READ", 1)
    sales, other = DeltaParticipant(spark, table, key="sales"), DeltaParticipant(spark, table, key="other")
    assert sales.held() == Held()
    sales.commit(None, None, after=0)
    assert sales.held() == Held(version=1)
    sales.commit(rows(spark, 1, 2), "a token", after=1)
    other.commit(rows(spark, 3), "another", after=0)
    rows(spark, 4).write.format("delta").mode("append").option("userMetadata", "a note").saveAsTable(table)
    assert sales.held() == Held(version=2, token="a token")
    sales.commit(None, "a token", after=2)
    assert sales.held() == Held(version=3, token="a token")
    assert other.held() == Held(version=1, token="another")
    assert ids(spark, table) == [1, 2, 3, 4]


def test_a_table_in_the_catalog_takes_part_by_its_name(spark) -> None:
    spark.sql("CREATE SCHEMA IF NOT EXISTS shop")
    spark.sql("CREATE TABLE shop.sales (id BIGINT, seen STRING, day STRING) USING delta PARTITIONED BY (day)")
    sales = DeltaParticipant(spark, "shop.sales", key="sales")
    sales.commit(None, None, after=0)
    sales.commit(rows(spark, 1).selectExpr("id", "seen", "'monday' AS day"), "a token", after=1)
    assert (sales.held(), ids(spark, "shop.sales")) == (Held(version=2, token="a token"), [1])


@pytest.mark.parametrize("after", [0, 1, 3], ids=lambda after: f"after {after}")
def test_a_commit_after_another_version_changes_nothing(spark, table, after) -> None:
    sales = DeltaParticipant(spark, table, key="sales")
    sales.commit(None, None, after=0)
    sales.commit(rows(spark, 1), "a token", after=1)
    with pytest.raises(Conflict, match=f"not at version {after}"):
        sales.commit(rows(spark, 2), "late", after=after)
    assert (sales.held(), ids(spark, table)) == (Held(version=2, token="a token"), [1])


# -- others


@pytest.mark.parametrize("way", ["append", "merge"])
def test_a_commit_that_another_one_overtakes_before_delta_looks_is_a_conflict(spark, table, way) -> None:
    merge = merging(table) if way == "merge" else None
    late, live = Interrupted(spark, table, key="sales", merge=merge), DeltaParticipant(spark, table, key="sales")
    late.before = lambda: live.commit(None, "a token", after=0)
    with pytest.raises(Conflict):
        late.commit(rows(spark, 1), "a token", after=0)
    assert (live.held(), ids(spark, table)) == (Held(version=1, token="a token"), [])


@pytest.mark.parametrize("way", ["append", "merge"])
def test_a_fence_of_another_process_stops_a_commit_whose_rows_are_being_written(spark, table, tmp_path, way) -> None:
    begun, go_on = tmp_path / "begun", tmp_path / "go-on"

    def wait(batches: Any) -> Any:
        begun.touch()
        while not go_on.exists():
            time.sleep(0.05)
        yield from batches

    slow = rows(spark, 1).coalesce(1).mapInArrow(wait, "id BIGINT, seen STRING")
    sales = DeltaParticipant(spark, table, key="sales", merge=merging(table) if way == "merge" else None)
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(sales.commit, slow, "late", after=0)
        try:
            while not begun.exists():
                assert not late.done(), late.result()
                time.sleep(0.05)
            conf, log = ARGUMENTS, tmp_path / "log"
            with Driver(
                JOBS / "fence_delta.py", [table, "sales", "0"], conf=conf, env=python_environment(), log=log
            ) as live:
                live.wait(meanwhile=lambda: None, timeout=180)
        finally:
            go_on.touch()
        with pytest.raises(Conflict) as conflict:
            late.result()
    assert "ConcurrentTransactionException" in repr(conflict.value.__context__) + str(conflict.value.__context__)
    assert (sales.held(), ids(spark, table)) == (Held(version=1), [])


def test_of_several_commits_and_fences_after_the_same_version_one_succeeds(spark, table) -> None:
    expected: list[int] = []
    for version in range(3):

        def commits(number: int, version: int = version) -> int | None:
            own = DeltaParticipant(spark.newSession(), table, key="sales")
            try:
                own.commit(rows(spark, number) if number % 2 else None, "the same", after=version)
            except Conflict:
                return None
            return number

        with ThreadPoolExecutor(4) as pool:
            (winner,) = (each for each in pool.map(commits, range(10 * version, 10 * version + 4)) if each is not None)
        expected += [winner] if winner % 2 else []
    assert DeltaParticipant(spark, table, key="sales").held() == Held(version=3, token="the same")
    assert ids(spark, table) == expected


def test_another_key_and_other_writers_do_not_conflict(spark, table) -> None:
    sales, other = Interrupted(spark, table, key="sales"), DeltaParticipant(spark, table, key="other")

    def write() -> None:
        other.commit(rows(spark, 2), "another", after=0)
        rows(spark, 3).write.format("delta").mode("append").saveAsTable(table)

    sales.before = write
    sales.commit(rows(spark, 1), "a token", after=0)
    assert ids(spark, table) == [1, 2, 3]


# -- failures


def test_a_commit_whose_answer_is_lost_is_found(spark, table) -> None:
    sales = Interrupted(spark, table, key="sales")
    sales.after = fail
    sales.commit(rows(spark, 1), "a token", after=0)
    assert (sales.held(), ids(spark, table)) == (Held(version=1, token="a token"), [1])


def test_a_commit_that_fails_has_changed_nothing(spark, table) -> None:
    sales = Interrupted(spark, table, key="sales")
    sales.before = fail
    with pytest.raises(ConnectionError):
        sales.commit(rows(spark, 1), "a token", after=0)
    assert (sales.held(), ids(spark, table)) == (Held(), [])


def test_nothing_is_written_once_delta_has_deleted_the_last_commit_from_its_log(spark, tmp_path) -> None:
    name, log = f"delta.`{tmp_path}/sales`", tmp_path / "sales" / "_delta_log"
    properties = "TBLPROPERTIES ('delta.checkpointInterval' = '1')"
    spark.sql(f"CREATE TABLE {name} (id BIGINT, seen STRING) USING delta {properties}")
    sales = DeltaParticipant(spark, name, key="sales")
    sales.commit(None, "a token", after=0)
    for number in (1, 2):
        rows(spark, number).write.format("delta").mode("append").saveAsTable(name)
    for commit in (0, 1):
        for file in log.glob(f"*{commit:020}*"):
            file.unlink()
    assert sales.held() == Held()
    with pytest.raises(RuntimeError, match=r"delta\.logRetentionDuration"):
        sales.commit(rows(spark, 3), "a second token", after=0)
    assert ids(spark, name) == [1, 2]


def test_a_table_that_forgets_identifiers_is_refused(spark, table) -> None:
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.setTransactionRetentionDuration' = 'interval 1 days')")
    with pytest.raises(RuntimeError, match="forgets fences"):
        DeltaParticipant(spark, table, key="sales").held()


# -- MERGE


def test_a_merge_is_committed_with_version_and_token_also_if_it_changes_nothing(spark, table) -> None:
    sales = DeltaParticipant(spark, table, key="sales", merge=merging(table))
    sales.commit(rows(spark, 1, 2, seen="once"), "first", after=0)
    sales.commit(rows(spark, 2, 3, seen="twice"), "second", after=1)
    sales.commit(rows(spark), "third", after=2)
    assert sales.held() == Held(version=3, token="third")
    assert {row.id: row.seen for row in spark.table(table).collect()} == {1: "once", 2: "twice", 3: "twice"}


def test_a_merge_in_another_session_than_the_given_one_is_an_error(spark, table) -> None:
    sales = DeltaParticipant(spark, table, key="sales", merge=lambda _, rows: merging(table)(spark, rows))
    with pytest.raises(RuntimeError, match="in the session that it was given"):
        sales.commit(rows(spark, 1), "a token", after=0)


# -- with Kafka

RECORDS = 1_000  # of each of two batches


@pytest.mark.timeout(900)
def test_topic_and_table_have_the_same_rows_once_whenever_the_driver_is_killed(kafka, spark, tmp_path) -> None:
    source, target = kafka.create_topic("delta-in", 2), kafka.create_topic("delta-out", 3)
    produce(kafka.bootstrap, source, range(RECORDS))
    table, checkpoint = f"delta.`{tmp_path}/rows`", tmp_path / "checkpoint"
    spark.sql(f"CREATE TABLE {table} (value STRING) USING delta")

    def driver(kill: Kill | None = None, *, name: str) -> Driver:
        folder = tmp_path / name
        folder.mkdir()
        return Driver(
            JOBS / "write_both_delta.py",
            [kafka.bootstrap, source, target, table, str(checkpoint)],
            conf=ARGUMENTS,
            env=python_environment() | (kill.environment(folder) if kill else {}),
            log=tmp_path / "driver.log",
        )

    for number, kill in enumerate([Kill(point="offsets committed", batch=0), Kill(point="table committed", batch=0)]):
        with driver(kill, name=str(number)) as killed:
            killed.wait_until((tmp_path / str(number) / "reached").exists, meanwhile=lambda: None, timeout=240)
            assert killed.kill() >= 2, "the JVM and at least one Python process were alive"
        assert committed_batches(checkpoint) == kill.batch, "Spark had not noted the batch"
    produce(kafka.bootstrap, source, range(RECORDS, 2 * RECORDS))
    for name in ("again", "next"):  # before Spark 4.2, each start with availableNow runs one batch
        with driver(name=name) as last:
            last.wait(meanwhile=lambda: None, timeout=240)
    await_stable(kafka.bootstrap, target)
    in_topic = [bytes(each.value() or b"").decode() for each in read_topic(kafka.bootstrap, target, "read_committed")]
    in_table = [row.value for row in spark.table(table).collect()]
    assert sorted(in_topic) == sorted(in_table)
    assert sorted(int(row.split()[0]) for row in in_table) == list(range(2 * RECORDS))


def produce(bootstrap: str, topic: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in numbers:
        producer.produce(topic, value=b"%d" % number, partition=number % 2)
    assert producer.flush(30) == 0
