"""A pytest plugin: tables of Apache Iceberg for table_protocol.py and iceberg_protocol.py, in a JDBC catalog."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import DataFrame

from spark_kafka_eos import IcebergParticipant
from spark_kafka_eos.testing.jars import files
from tests.held import UNDECIDED
from tests.spark.own_spark import iceberg
from tests.spark.tables import Interrupted, Tables, session

_numbers = itertools.count(1)


class InterruptedIceberg(Interrupted, IcebergParticipant):
    _built: Any = None

    def _build(self, transaction: Any, *others: Any) -> None:
        super()._build(transaction, *others)
        self._built = transaction

    def _sent(self, table: Any, transaction: Any) -> bool:
        send = super()._sent
        if transaction is not self._built:  # a staging branch
            return send(table, transaction)
        answer: bool = self.interrupt(lambda: send(table, transaction))
        return answer


class IcebergTables(Tables):
    participant_class = IcebergParticipant
    interrupted_class = InterruptedIceberg
    overtaken = ""
    kill_at = (*UNDECIDED, "table half committed")

    def create(self, folder: Path, columns: str = "id BIGINT NOT NULL, seen STRING") -> str:
        name = f"lake.shop.table_{next(_numbers)}"
        self.spark.sql(f"CREATE TABLE {name} ({columns}) USING iceberg")
        return name

    def merging(self, table: str) -> Callable[..., object]:
        def merge(rows: DataFrame, table: str) -> object:
            rows.createOrReplaceTempView("news")
            return rows.sparkSession.sql(
                f"MERGE INTO {table} t USING news s ON t.id = s.id "
                "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
            )

        return merge

    def read(self, table: str) -> list[Any]:
        self.spark.catalog.refreshTable(table)  # the session's catalog may have an older state, for a while
        return super().read(table)

    def heads(self, table: str) -> list[int]:
        """The snapshots that main has been at, oldest first."""
        self.spark.catalog.refreshTable(table)
        history = self.spark.sql(f"SELECT snapshot_id FROM {table}.history ORDER BY made_current_at")
        return [row.snapshot_id for row in history.collect()]


def in_jdbc(folder: Path) -> dict[str, str]:
    """A Spark with the catalog `lake` in this folder."""
    return {
        "spark.ui.enabled": "false",
        "spark.jars": ",".join(map(str, files(iceberg(pyspark.__version__)))),
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "jdbc",
        "spark.sql.catalog.lake.uri": f"jdbc:sqlite:{folder}/catalog.db",
        "spark.sql.catalog.lake.warehouse": f"{folder}/warehouse",
        "spark.sql.shuffle.partitions": "1",
    }


@pytest.fixture(scope="session")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IcebergTables]:
    conf = in_jdbc(tmp_path_factory.mktemp("lake"))
    spark = session(conf)
    yield IcebergTables(spark, conf)
    spark.stop()
