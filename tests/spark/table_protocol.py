"""The protocol on real tables of a format, to which other drivers write, too. A plugin (delta_tables.py,
iceberg_tables.py) has the fixture `tables`; test_delta.py and test_iceberg.py run this file with theirs.
"""

from __future__ import annotations

import contextlib
import resource
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from spark_kafka_eos import Conflict, TableVersion
from spark_kafka_eos.testing.driver import Driver, Kill, committed_batches, python_environment
from spark_kafka_eos.testing.topic_reader import read_topic
from tests.reading import await_stable
from tests.spark.tables import Tables

JOBS = Path(__file__).parent / "jobs"


@pytest.fixture
def table(tables: Tables, tmp_path: Path) -> str:
    return tables.create(tmp_path)


def fail() -> None:
    raise ConnectionError("no answer")


# -- version and token


def test_version_and_token_are_those_of_the_keys_last_commit(tables: Tables, table) -> None:
    sales, other = tables.participant(table), tables.participant(table, key="other")
    assert sales.held() == TableVersion()
    sales.commit(None, None, after=0)
    assert sales.held() == TableVersion(version=1)
    sales.commit(tables.rows(1, 2), "a token", after=1)
    other.commit(tables.rows(3), "another", after=0)
    tables.rows(4).writeTo(table).append()
    assert sales.held() == TableVersion(version=2, token="a token")
    sales.commit(None, "a token", after=2)
    assert sales.held() == TableVersion(version=3, token="a token")
    assert other.held() == TableVersion(version=1, token="another")
    assert tables.ids(table) == [1, 2, 3, 4]


@pytest.mark.parametrize("after", [0, 1, 3], ids=lambda after: f"after {after}")
def test_a_commit_after_another_version_changes_nothing(tables: Tables, table, after) -> None:
    sales = tables.participant(table)
    sales.commit(None, None, after=0)
    sales.commit(tables.rows(1), "a token", after=1)
    with pytest.raises(Conflict, match=f"not at version {after}"):
        sales.commit(tables.rows(2), "late", after=after)
    assert (sales.held(), tables.ids(table)) == (TableVersion(version=2, token="a token"), [1])


# -- others


@pytest.mark.parametrize("way", ["append", "merge", "fence"])
def test_a_commit_that_a_fence_overtakes_once_it_is_ready_is_a_conflict(tables: Tables, table, way) -> None:
    merge = tables.merging(table) if way == "merge" else None
    late, live = tables.interrupted(table, merge=merge), tables.participant(table)
    late.before = lambda: live.commit(None, "a token", after=0)
    with pytest.raises(Conflict):
        late.commit(None if way == "fence" else tables.rows(1), "a token", after=0)
    assert (live.held(), tables.ids(table)) == (TableVersion(version=1, token="a token"), [])
    live.commit(tables.rows(2), "the next", after=1)
    assert tables.ids(table) == [2]


@pytest.mark.parametrize("way", ["append", "merge"])
def test_a_fence_of_another_process_stops_a_commit_whose_rows_are_being_written(
    tables: Tables, table, tmp_path, way
) -> None:
    begun, go_on = tmp_path / "begun", tmp_path / "go-on"

    def wait(batches: Any) -> Any:
        begun.touch()
        while not go_on.exists():
            time.sleep(0.05)
        yield from batches

    slow = tables.rows(1).coalesce(1).mapInArrow(wait, "id BIGINT, seen STRING")
    sales = tables.participant(table, merge=tables.merging(table) if way == "merge" else None)
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(sales.commit, slow, "late", after=0)
        try:
            while not begun.exists():
                assert not late.done(), late.result()
                time.sleep(0.05)
            conf, arguments = tables.arguments, [tables.participant_class.__name__, table, "sales", "0"]
            with Driver(
                JOBS / "fence_table.py", arguments, conf=conf, env=python_environment(), log=tmp_path / "log"
            ) as live:
                live.wait(timeout=180)
        finally:
            go_on.touch()
        with pytest.raises(Conflict) as conflict:
            late.result()
    assert tables.overtaken in repr(conflict.value.__context__) + str(conflict.value.__context__)
    assert (sales.held(), tables.ids(table)) == (TableVersion(version=1), [])


def test_of_several_commits_and_fences_after_the_same_version_one_succeeds(tables: Tables, table) -> None:
    expected: list[int] = []
    for version in range(3):

        def commits(number: int, version: int = version) -> int | None:
            own = tables.participant(table, spark=tables.spark.newSession())
            try:
                own.commit(tables.rows(number) if number % 2 else None, "the same", after=version)
            except Conflict:
                return None
            return number

        with ThreadPoolExecutor(4) as pool:
            (winner,) = (each for each in pool.map(commits, range(10 * version, 10 * version + 4)) if each is not None)
        expected += [winner] if winner % 2 else []
    assert tables.participant(table).held() == TableVersion(version=3, token="the same")
    assert tables.ids(table) == expected


@pytest.mark.parametrize("way", ["append", "merge"])
def test_another_key_and_other_writers_do_not_conflict(tables: Tables, table, way) -> None:
    merge = tables.merging(table) if way == "merge" else None
    sales, other = tables.interrupted(table, merge=merge), tables.participant(table, key="other")

    def write() -> None:
        other.commit(tables.rows(2), "another", after=0)
        tables.rows(3).writeTo(table).append()

    sales.before = write
    sales.commit(tables.rows(1), "a token", after=0)
    assert (sales.held(), tables.ids(table)) == (TableVersion(version=1, token="a token"), [1, 2, 3])


# -- failures


def test_a_commit_whose_answer_is_lost_is_there(tables: Tables, table) -> None:
    sales = tables.interrupted(table)
    sales.after = fail
    with contextlib.suppress(ConnectionError):
        sales.commit(tables.rows(1), "a token", after=0)
    assert (sales.held(), tables.ids(table)) == (TableVersion(version=1, token="a token"), [1])


def test_a_commit_that_fails_has_changed_nothing(tables: Tables, table) -> None:
    sales = tables.interrupted(table)
    sales.before = fail
    with pytest.raises(ConnectionError):
        sales.commit(tables.rows(1), "a token", after=0)
    assert (sales.held(), tables.ids(table)) == (TableVersion(), [])
    sales.commit(tables.rows(1), "a token", after=0)
    assert (sales.held(), tables.ids(table)) == (TableVersion(version=1, token="a token"), [1])


@contextlib.contextmanager
def full_disk(spark: SparkSession) -> Iterator[None]:
    """The JVM's writes fail, as on a full disk: its files may have one byte. It ignores the signal that says so."""
    java: Any = spark._jvm
    pid = java.java.lang.ProcessHandle.current().pid()
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("way", ["append", "merge", "fence"])
def test_a_commit_that_finds_the_disk_full_has_changed_nothing_and_succeeds_once_there_is_room(
    tables: Tables, table, way
) -> None:
    sales = tables.participant(table, merge=tables.merging(table) if way == "merge" else None)
    sales.commit(tables.rows(1), "a token", after=0)
    rows = None if way == "fence" else tables.rows(2)
    with full_disk(tables.spark), pytest.raises(Exception, match=r"File too large") as failed:
        sales.commit(rows, "the next", after=1)
    assert not isinstance(failed.value, Conflict)
    assert (sales.held(), tables.ids(table)) == (TableVersion(version=1, token="a token"), [1])
    sales.commit(rows, "the next", after=1)
    assert (sales.held(), tables.ids(table)) == (
        TableVersion(version=2, token="the next"),
        [1] if rows is None else [1, 2],
    )


# -- MERGE


def test_a_merge_is_committed_with_version_and_token_also_if_it_changes_nothing(tables: Tables, table) -> None:
    sales = tables.participant(table, merge=tables.merging(table))
    sales.commit(tables.rows(1, 2, seen="once"), "first", after=0)
    sales.commit(tables.rows(2, 3, seen="twice"), "second", after=1)
    sales.commit(tables.rows(), "third", after=2)
    assert sales.held() == TableVersion(version=3, token="third")
    assert {row.id: row.seen for row in tables.read(table)} == {1: "once", 2: "twice", 3: "twice"}


# -- with Kafka

RECORDS = 1_000  # of each of two batches


@pytest.mark.timeout(1_800)
def test_topic_and_table_have_the_same_rows_once_whenever_the_driver_is_killed(kafka, tables: Tables, tmp_path) -> None:
    source, target = kafka.create_topic("table-in", 2), kafka.create_topic("table-out", 3)
    produce(kafka.bootstrap, source, range(RECORDS))
    table, checkpoint = tables.create(tmp_path, "value STRING"), tmp_path / "checkpoint"

    def driver(kill: Kill | None = None, *, name: str) -> Driver:
        folder = tmp_path / name
        folder.mkdir()
        return Driver(
            JOBS / "write_both_table.py",
            [kafka.bootstrap, source, target, tables.participant_class.__name__, table, str(checkpoint)],
            conf=tables.arguments,
            env=python_environment() | (kill.environment(folder) if kill else {}),
            log=tmp_path / "driver.log",
        )

    def killed(point: str, batch: int) -> None:
        with driver(Kill(point=point, batch=batch), name=point) as killed:
            killed.wait_until((tmp_path / point / "reached").exists, timeout=240)
            assert killed.kill() >= 2, "the JVM and at least one Python process were alive"
        assert committed_batches(checkpoint) == batch, "Spark had not noted the batch"

    def completed(name: str) -> None:
        with driver(name=name) as last:
            last.wait(timeout=240)
        await_stable(kafka.bootstrap, target)

    def in_topic() -> list[str]:
        read = read_topic(kafka.bootstrap, target, "read_committed")
        return sorted(bytes(each.value() or b"").decode() for each in read)

    def in_table() -> list[str]:
        return sorted(row.value for row in tables.read(table))

    for point in tables.kill_at:
        killed(point, 0)
        assert (in_topic(), in_table()) == ([], []), f"after {point}"
    killed("table committed", 0)
    assert (in_topic(), len(in_table())) == ([], RECORDS)
    completed("again")
    assert in_topic() == in_table()
    produce(kafka.bootstrap, source, range(RECORDS, 2 * RECORDS))
    killed("ended", 1)
    assert in_topic() == in_table()
    completed("next")
    assert in_topic() == in_table()
    assert sorted(int(row.split()[0]) for row in in_table()) == list(range(2 * RECORDS))


def produce(bootstrap: str, topic: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in numbers:
        producer.produce(topic, value=b"%d" % number, partition=number % 2)
    assert producer.flush(30) == 0
