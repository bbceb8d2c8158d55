"""The protocol on SQLite: one compare-and-set of rows and token."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from spark_kafka_eos.participants.participant import Conflict, Held, Participant
from spark_kafka_eos.participants.sql import SqlTable


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
    assert table.held() == Held()
    table.commit([(1,), (2,)], "first", after=0)
    table.commit([(3,)], "second", after=1)
    assert table_at(path).held() == Held(version=2, token="second")
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
    assert table.held() == Held(version=before + 1, token=held.token)
    assert numbers(path) == []


def test_a_row_that_the_table_refuses_leaves_neither_rows_nor_token(path: Path) -> None:
    table = table_at(path)
    table.commit([(1,)], "first", after=0)
    with pytest.raises(sqlite3.IntegrityError):
        table.commit([(2,), (1,)], "second", after=1)
    assert table.held() == Held(version=1, token="first")
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
    assert table.held() == Held(version=1, token="first")
    assert numbers(path) == [1, 2], "of the second commit, neither table has anything"
    database = sqlite3.connect(path)
    assert [*database.execute("SELECT * FROM items")] == [(1, "a"), (1, "b"), (2, "c")]
    database.close()
