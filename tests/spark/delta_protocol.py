"""What Delta Lake has of its own, on real tables. test_delta.py runs this file on a release of Spark that Delta
supports.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_kafka_eos import TableVersion
from spark_kafka_eos.spark import delta as module
from tests.spark.delta_tables import DeltaTables


@pytest.fixture
def table(tables: DeltaTables, tmp_path: Path) -> str:
    return tables.create(tmp_path)


def test_the_keys_last_commit_is_found_further_back_in_the_log(tables: DeltaTables, table, monkeypatch) -> None:
    monkeypatch.setattr(module, "_FIRST_READ", 1)
    sales = tables.participant(table)
    sales.commit(tables.rows(1), "a token", after=0)
    for number in (2, 3):
        rows = tables.rows(number).write.format("delta").mode("append")
        rows.option("userMetadata", "a note").saveAsTable(table)
    assert sales.held() == TableVersion(version=1, token="a token")


def test_a_table_in_the_catalog_takes_part_by_its_name(tables: DeltaTables) -> None:
    tables.spark.sql("CREATE SCHEMA IF NOT EXISTS shop")
    tables.spark.sql("CREATE TABLE shop.sales (id BIGINT, seen STRING, day STRING) USING delta PARTITIONED BY (day)")
    sales = tables.participant("shop.sales")
    sales.commit(None, None, after=0)
    sales.commit(tables.rows(1).selectExpr("id", "seen", "'monday' AS day"), "a token", after=1)
    assert (sales.held(), tables.ids("shop.sales")) == (TableVersion(version=2, token="a token"), [1])


def test_nothing_is_written_once_delta_has_deleted_the_last_commit_from_its_log(tables: DeltaTables, tmp_path) -> None:
    name, log = f"delta.`{tmp_path}/sales`", tmp_path / "sales" / "_delta_log"
    properties = "TBLPROPERTIES ('delta.checkpointInterval' = '1')"
    tables.spark.sql(f"CREATE TABLE {name} (id BIGINT, seen STRING) USING delta {properties}")
    sales = tables.participant(name)
    sales.commit(None, "a token", after=0)
    for number in (1, 2):
        tables.rows(number).write.format("delta").mode("append").saveAsTable(name)
    for commit in (0, 1):
        for file in log.glob(f"*{commit:020}*"):
            file.unlink()
    assert sales.held() == TableVersion()
    with pytest.raises(RuntimeError, match=r"delta\.logRetentionDuration"):
        sales.commit(tables.rows(3), "a second token", after=0)
    assert tables.ids(name) == [1, 2]


def test_a_table_that_forgets_identifiers_is_refused(tables: DeltaTables, table) -> None:
    forgets = "'delta.setTransactionRetentionDuration' = 'interval 1 days'"
    tables.spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ({forgets})")
    with pytest.raises(RuntimeError, match="forgets fences"):
        tables.participant(table).held()


def test_a_merge_in_another_session_than_the_given_one_is_an_error(tables: DeltaTables, table) -> None:
    sales = tables.participant(table, merge=lambda _, rows: tables.merging(table)(tables.spark, rows))
    with pytest.raises(RuntimeError, match="in the session that it was given"):
        sales.commit(tables.rows(1), "a token", after=0)
