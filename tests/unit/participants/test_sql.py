"""The protocol on SQLite: one compare-and-set of rows and token."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql.types import IntegerType, StringType, StructType

from spark_kafka_eos.errors import ConfigurationError, TableFailed
from spark_kafka_eos.participants.participant import Conflict, Participant, TableVersion
from spark_kafka_eos.participants.sql import CREATE, SqlTable
from tests.local_frames import Frame


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with sqlite3.connect(tmp_path / "orders.db") as database:
        database.execute("CREATE TABLE orders (number INTEGER PRIMARY KEY)")
    database.close()
    return tmp_path / "orders.db"


def table_at(path: Path, key: str = "orders") -> SqlTable:
    table = SqlTable(lambda: sqlite3.connect(path), insert="INSERT INTO orders VALUES (?)", key=key)
    table.create()
    return table


def numbers(path: Path) -> list[int]:
    database = sqlite3.connect(path)
    try:
        return [number for (number,) in database.execute("SELECT number FROM orders ORDER BY number")]
    finally:
        database.close()


def test_rows_and_token_are_committed_and_a_new_process_finds_them(path: Path) -> None:
    table: Participant = table_at(path)
    assert table.held() == TableVersion()
    table.commit([(1,), (2,)], "first", after=0)
    table.commit([(3,)], "second", after=1)
    assert table_at(path).held() == TableVersion(version=2, token="second")
    assert numbers(path) == [1, 2, 3]


@pytest.mark.parametrize("before", [0, 1])
def test_after_a_fence_a_commit_that_was_planned_before_conflicts_and_leaves_nothing(path: Path, before: int) -> None:
    table = table_at(path)
    if before:
        table.commit(None, "a token", after=0)
    held = table.held()
    table_at(path).commit(None, held.token, after=before)
    with pytest.raises(Conflict):
        table.commit([(1,)], "late", after=before)
    assert table.held() == TableVersion(version=before + 1, token=held.token)
    assert numbers(path) == []


def test_a_row_that_the_table_refuses_leaves_neither_rows_nor_token(path: Path) -> None:
    table = table_at(path)
    table.commit([(1,)], "first", after=0)
    with pytest.raises(sqlite3.IntegrityError):
        table.commit([(2,), (1,)], "second", after=1)
    assert table.held() == TableVersion(version=1, token="first")
    assert numbers(path) == [1]


def test_an_error_in_the_middle_of_the_rows_leaves_no_lock_behind(path: Path) -> None:
    class Lost(Exception):
        pass

    def rows() -> Iterator[tuple[int]]:
        yield (1,)
        raise Lost

    table = table_at(path)
    with pytest.raises(Lost) as raised:
        table.commit(rows(), "first", after=0)
    assert raised.value.__traceback__ is not None, "it refers to the cursor"
    table.commit(None, None, after=0)
    assert numbers(path) == []


def test_each_query_has_a_version_and_a_token_of_its_own(path: Path) -> None:
    table_at(path).commit([(1,)], "mine", after=0)
    table_at(path, "another").commit([(2,)], "theirs", after=0)
    assert (table_at(path).held().token, table_at(path, "another").held().token) == ("mine", "theirs")


def in_two_tables(cursor: sqlite3.Cursor, rows: Iterable[tuple[int, str]]) -> None:
    for number, item in rows:
        cursor.execute("INSERT INTO orders VALUES (?) ON CONFLICT DO NOTHING", (number,))
        cursor.execute("INSERT INTO items VALUES (?, ?)", (number, item))


def test_several_tables_of_a_database_are_one_participant(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE items (number INTEGER, item TEXT NOT NULL)")
    database.close()
    table = SqlTable(lambda: sqlite3.connect(path), insert=in_two_tables, key="orders")
    table.create()
    table.commit([(1, "a"), (1, "b"), (2, "c")], "first", after=0)
    with pytest.raises(sqlite3.IntegrityError):
        table.commit([(3, "d"), (4, None)], "second", after=1)
    assert table.held() == TableVersion(version=1, token="first")
    assert numbers(path) == [1, 2], "of the second commit, neither table has anything"
    database = sqlite3.connect(path)
    assert [*database.execute("SELECT * FROM items")] == [(1, "a"), (1, "b"), (2, "c")]
    database.close()


def one_table_after_the_other(cursor: sqlite3.Cursor, rows: Iterable[tuple[int, str]]) -> None:
    cursor.executemany("INSERT INTO orders VALUES (?)", ((number,) for number, _ in rows))
    cursor.executemany("INSERT INTO items VALUES (?, ?)", rows)


def test_a_second_loop_over_the_rows_of_a_dataframe_leaves_no_table_without_them(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE items (number INTEGER, item TEXT)")
    table = SqlTable(lambda: sqlite3.connect(path), insert=one_table_after_the_other, key="orders")
    table.create()
    frame = Frame(StructType().add("number", IntegerType()).add("item", StringType()), (1, "a"), (2, "b"))
    with pytest.raises(TableFailed, match="reads its rows a second time") as raised:
        table.commit(frame, "first", after=0)
    assert "list(rows)" in str(raised.value)
    assert (table.held(), numbers(path)) == (TableVersion(), [])
    table.commit([(1, "a"), (2, "b")], "first", after=0)
    assert [*database.execute("SELECT * FROM items")] == [(1, "a"), (2, "b")]
    database.close()


def duckdb_at(path: Path) -> Callable[[], duckdb.DuckDBPyConnection]:
    database = duckdb.connect(path)
    database.execute(CREATE)
    database.execute("CREATE TABLE orders (number INTEGER PRIMARY KEY)")
    database.close()
    return lambda: duckdb.connect(path)


def without_transactions(driver: str, path: Path) -> tuple[Callable[[], Any], str]:
    """How to connect to a database that has both tables, and what is said of its driver."""
    table_at(path)
    match driver:
        case "DuckDB":
            return duckdb_at(path.with_name("orders.duckdb")), "rollback() raised TransactionException"
        case "autocommit":
            return lambda: sqlite3.connect(path, isolation_level=None), "is still there after rollback()"
        case "no rowcount":
            return lambda: sqlite3.connect(path, factory=NoRowcount), "its rowcount is -1 after one row was written"
    raise AssertionError(driver)


class NoRowcount(sqlite3.Connection):
    def cursor(self, *_: object) -> Any:
        class Cursor(sqlite3.Cursor):
            rowcount = -1  # which PEP 249 allows

        return super().cursor(Cursor)


@pytest.mark.parametrize("driver", ["DuckDB", "autocommit", "no rowcount"])
def test_a_connection_that_could_tear_a_batch_is_refused_before_anything_is_written(driver: str, path: Path) -> None:
    connect, why = without_transactions(driver, path)
    table = SqlTable(connect, insert="INSERT INTO orders VALUES (?)", key="orders")
    for step in (table.create, lambda: table.commit([(1,)], "first", after=0)):
        with pytest.raises(ConfigurationError, match=re.escape(why)):
            step()
    with closing(connect()) as database:
        counts = "SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM kafka_eos)"
        assert database.execute(counts).fetchone() == (0, 0)


def test_a_driver_that_has_changed_since_the_table_was_created_is_refused(path: Path) -> None:
    table_at(path).commit([(1,)], "first", after=0)
    later = SqlTable(
        lambda: sqlite3.connect(path, isolation_level=None), insert="INSERT INTO orders VALUES (?)", key="orders"
    )
    with pytest.raises(ConfigurationError):
        later.commit(None, "first", after=1)
    assert later.held() == TableVersion(version=1, token="first")


def commits_after_the_first(cursor: sqlite3.Cursor, rows: Iterable[tuple[int]]) -> None:
    for row in rows:
        cursor.execute("INSERT INTO orders VALUES (?)", row)
        cursor.executescript("CREATE TABLE IF NOT EXISTS other (number INTEGER)")  # commits, as the driver documents


def test_a_batch_of_which_a_part_was_committed_is_never_taken_for_the_whole(path: Path) -> None:
    table = SqlTable(lambda: sqlite3.connect(path), insert=commits_after_the_first, key="orders")
    table.create()
    table_at(path).commit([(2,)], "first", after=0)
    with pytest.raises(sqlite3.IntegrityError):
        table.commit([(1,), (2,)], "second", after=1)
    for process in (table, table_at(path)):
        with pytest.raises(TableFailed, match="was committed before all of its rows were written") as raised:
            process.held()
        assert raised.value.committed == "unknown"
    (statement,) = re.findall("UPDATE kafka_eos SET token = NULL WHERE name = 'orders'", raised.value.action)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(statement)
    assert table.held() == TableVersion(version=2, token=None)


def goes_on_after_a_rollback(cursor: sqlite3.Cursor, rows: Iterable[tuple[int]]) -> None:
    for row in rows:
        with suppress(sqlite3.IntegrityError):
            cursor.execute("INSERT OR ROLLBACK INTO orders VALUES (?)", row)


@pytest.mark.parametrize("before", [0, 1])
def test_rows_after_a_rollback_that_insert_does_not_raise_are_not_committed_without_the_others(
    path: Path, before: int
) -> None:
    created = table_at(path)
    if before:
        created.commit(None, "first", after=0)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("INSERT INTO orders VALUES (2)")
    table = SqlTable(lambda: sqlite3.connect(path), insert=goes_on_after_a_rollback, key="orders")
    held = table.held()
    with pytest.raises(TableFailed, match="has rolled back the transaction"):
        table.commit([(1,), (2,), (3,)], "second", after=before)
    assert (table.held(), numbers(path)) == (held, [2])


class NoRollback(sqlite3.Connection):
    def rollback(self) -> None:
        raise sqlite3.OperationalError("the connection is lost")


def test_a_rollback_that_fails_is_said_and_never_called_a_conflict(path: Path) -> None:
    table = table_at(path)
    table.commit(None, "first", after=0)
    table._connect = lambda: sqlite3.connect(path, factory=NoRollback)
    with pytest.raises(TableFailed, match=r"rollback\(\) raised OperationalError: the connection is lost") as raised:
        table.commit([(1,)], "late", after=0)
    assert raised.value.committed == "unknown"
    assert isinstance(raised.value.__cause__, Conflict)
    assert (table.held(), numbers(path)) == (TableVersion(version=1, token="first"), [])
