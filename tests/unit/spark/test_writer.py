"""What TransactionalWriter takes and refuses before it looks at the batch."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark import StorageLevel
from pyspark.errors import PySparkException

from spark_kafka_eos.errors import CommitOutcomeUnknown, ConfigurationError, IllegalTransactionState
from spark_kafka_eos.participants.participant import TableVersion
from spark_kafka_eos.participants.sql import SqlTable
from spark_kafka_eos.spark.writer import BatchTransaction, TransactionalWriter, _computed_once
from spark_kafka_eos.transaction.commit import commit_batch
from tests.batches import BY_DRIVER
from tests.both import Kafka, batch, driver, writing


class Table:
    def held(self) -> TableVersion:
        return TableVersion()

    def commit(self, rows: object, token: str | None, *, after: int) -> None: ...


def test_a_list_of_participants_is_refused() -> None:
    writer = TransactionalWriter({"kafka.bootstrap.servers": "b:1", "kafka.transactional.id": "t", "topic": "out"})
    no_batch: Any = SimpleNamespace(sparkSession=None)
    several: Any = [Table(), Table()]
    with (
        pytest.raises(ConfigurationError, match="one table takes part"),
        writer.transaction(no_batch, 0, participant=several),
    ):
        pytest.fail("the block ran")


def test_the_rows_of_a_table_are_set_once_in_a_batch_and_only_where_one_takes_part() -> None:
    rows: Any = object()
    transaction = BatchTransaction("out", participant=Table())
    transaction.write_table(rows)
    with pytest.raises(IllegalTransactionState, match="called a second time for this batch"):
        transaction.write_table(rows)
    with pytest.raises(ConfigurationError, match="needs a table that takes part"):
        BatchTransaction("out").write_table(rows)


class OfADatabase:
    """A cursor after its query, as a driver may have one: it is no iterator, and its rows are there once."""

    def __init__(self, rows: Iterable[tuple[int]]) -> None:
        self._rows = list(rows)

    def __iter__(self) -> Iterator[tuple[int]]:
        while self._rows:
            yield self._rows.pop(0)


@pytest.mark.parametrize("kind", [list, iter, OfADatabase])
def test_a_commit_of_the_table_that_fails_once_is_repeated_with_all_of_its_rows(
    kind: Callable[[list[tuple[int]]], Iterable[tuple[int]]], tmp_path: Path
) -> None:
    database = sqlite3.connect(tmp_path / "shop.db")
    database.execute("CREATE TABLE orders (number INTEGER)")
    failures = [sqlite3.OperationalError("deadlock detected")]

    def insert(cursor: sqlite3.Cursor, rows: Iterable[tuple[int]]) -> None:
        cursor.executemany("INSERT INTO orders VALUES (?)", rows)
        if failures:
            raise failures.pop()

    table = SqlTable(lambda: sqlite3.connect(tmp_path / "shop.db"), insert=insert, key="orders")
    table.create()
    collected = BatchTransaction("out", participant=table)
    collected.write_table(kind([(1,), (2,)]))
    kafka = Kafka(2)
    transaction = driver(kafka, table)
    transaction.table_rows = getattr(collected.table_rows(), "rows", None)
    report = commit_batch(transaction, batch(0), writing(transaction, [b"1", b"2"]), max_attempts=2, choice=BY_DRIVER)
    assert (report.outcome, len(report.redone), kafka.values) == ("committed", 1, [b"1", b"2"])
    assert database.execute("SELECT number FROM orders").fetchall() == [(1,), (2,)]
    database.close()


def cannot_unpersist() -> None:
    raise Py4JError("An error occurred while calling o1.unpersist.\njava.lang.InterruptedException")


def test_rows_that_spark_does_not_unpersist_hide_neither_a_commit_nor_the_batchs_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    frame: Any = SimpleNamespace(persist=lambda: None, unpersist=cannot_unpersist, storageLevel=StorageLevel.NONE)
    with _computed_once(frame):
        pass
    assert caplog.messages == [
        "the rows of a batch stay persisted until Spark drops them: An error occurred while calling o1.unpersist."
    ]
    with pytest.raises(CommitOutcomeUnknown), _computed_once(frame):
        raise CommitOutcomeUnknown("EndTxn had no answer")


def test_where_spark_persists_nothing_a_table_cannot_take_part() -> None:
    def refuses() -> None:
        raise PySparkException("[NOT_SUPPORTED_WITH_SERVERLESS] PERSIST TABLE")

    options = {"kafka.bootstrap.servers": "b:1", "kafka.transactional.id": "t", "topic": "out"}
    batch: Any = SimpleNamespace(persist=refuses, storageLevel=StorageLevel.NONE, sparkSession=SimpleNamespace())
    table: Any = Table()
    with (
        pytest.raises(ConfigurationError, match=r"'participant'.*refuses to: \[NOT_SUPPORTED.*Nothing was committed"),
        TransactionalWriter(options).transaction(batch, 0, participant=table),
    ):
        pytest.fail("the block ran")
