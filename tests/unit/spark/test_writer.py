"""What TransactionalWriter refuses before it looks at the batch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import StorageLevel
from pyspark.errors import PySparkException

from spark_kafka_eos.errors import ConfigurationError, IllegalTransactionState
from spark_kafka_eos.participants.participant import TableVersion
from spark_kafka_eos.spark.writer import BatchTransaction, TransactionalWriter


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
