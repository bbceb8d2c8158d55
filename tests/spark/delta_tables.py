"""A pytest plugin: tables of Delta Lake for table_protocol.py and delta_protocol.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from spark_kafka_eos import DeltaParticipant
from spark_kafka_eos.testing.jars import files
from tests.held import UNDECIDED
from tests.spark.own_spark import delta_lake
from tests.spark.tables import Interrupted, Tables, session


class InterruptedDelta(Interrupted, DeltaParticipant):
    def _write(self, rows: Any, own: Any) -> None:
        self.interrupt(lambda: super(InterruptedDelta, self)._write(rows, own))


class DeltaTables(Tables):
    participant_class = DeltaParticipant
    interrupted_class = InterruptedDelta
    overtaken = "ConcurrentTransactionException"
    kill_at = UNDECIDED

    def create(self, folder: Path, columns: str = "id BIGINT NOT NULL, seen STRING") -> str:
        name = f"delta.`{folder}/table`"
        self.spark.sql(f"CREATE TABLE {name} ({columns}) USING delta")
        return name

    def merging(self, table: str) -> Callable[..., object]:
        def merge(session: SparkSession, rows: DataFrame) -> object:
            target = DeltaTable.forName(session, table).alias("t")
            matched = target.merge(rows.alias("s"), "t.id = s.id").whenMatchedUpdateAll()
            return matched.whenNotMatchedInsertAll().execute()

        return merge


@pytest.fixture(scope="session")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeltaTables]:
    conf = {
        "spark.ui.enabled": "false",
        "spark.jars": ",".join(map(str, files(delta_lake(pyspark.__version__)))),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.shuffle.partitions": "1",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
    }
    spark = session(conf)
    yield DeltaTables(spark, conf)
    spark.stop()
