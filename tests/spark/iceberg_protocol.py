"""What Apache Iceberg has of its own, on real tables: snapshots, branches, tags. test_iceberg.py runs this file on a
release of Spark that Iceberg supports.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark_kafka_eos import IcebergParticipant, TableVersion
from spark_kafka_eos.errors import TableFailed
from spark_kafka_eos.spark.jvm import iceberg_table
from tests.spark.iceberg_tables import IcebergTables

TAG = "kafka-eos:sales"


@pytest.fixture
def table(tables: IcebergTables, tmp_path: Path) -> str:
    return tables.create(tmp_path)


def refs(tables: IcebergTables, table: str) -> set[str]:
    tables.spark.catalog.refreshTable(table)
    return {row.name for row in tables.spark.sql(f"SELECT name FROM {table}.refs").collect()}


def call(tables: IcebergTables, procedure: str, table: str, **arguments: str) -> None:
    given = ", ".join(f"{name} => {value}" for name, value in {"table": f"'{table}'", **arguments}.items())
    tables.spark.sql(f"CALL lake.system.{procedure}({given})").collect()


# -- others


def test_version_and_token_survive_the_expiry_of_snapshots(tables: IcebergTables, table) -> None:
    tables.spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('history.expire.max-ref-age-ms' = '1')")
    sales = tables.participant(table)
    sales.commit(tables.rows(1), "a token", after=0)
    sales.commit(tables.rows(2), "the last token", after=1)
    for number in (3, 4):
        tables.rows(number).writeTo(table).append()
    call(tables, "expire_snapshots", table, older_than="TIMESTAMP '2100-01-01 00:00:00'", retain_last="1")
    assert tables.spark.sql(f"SELECT * FROM {table}.snapshots").count() == 2, "main's and the tag's are left"
    assert sales.held() == TableVersion(version=2, token="the last token")
    sales.commit(tables.rows(5), "the next", after=2)
    assert tables.ids(table) == [1, 2, 3, 4, 5]


def test_a_batch_that_was_picked_keeps_its_files_when_snapshots_expire(tables: IcebergTables, table) -> None:
    sales = tables.interrupted(table)
    sales.before = tables.rows(1).writeTo(table).append
    sales.commit(tables.rows(2), "a token", after=0)
    sales.commit(None, "a token", after=1)
    call(tables, "expire_snapshots", table, older_than="TIMESTAMP '2100-01-01 00:00:00'", retain_last="1")
    sales.commit(tables.rows(3), "another", after=2)
    assert tables.ids(table) == [1, 2, 3]


def test_compaction_leaves_version_and_token_alone(tables: IcebergTables, table) -> None:
    sales = tables.interrupted(table, merge=tables.merging(table))
    sales.commit(tables.rows(1), "a token", after=0)
    sales.commit(tables.rows(2), "another", after=1)
    sales.before = lambda: call(tables, "rewrite_data_files", table, options="map('rewrite-all', 'true')")
    sales.commit(tables.rows(2, 3, seen="again"), "the last", after=2)
    assert sales.held() == TableVersion(version=3, token="the last")
    assert {row.id: row.seen for row in tables.read(table)} == {1: "", 2: "again", 3: "again"}


@pytest.mark.parametrize("way", ["rolled back", "replaced"])
def test_a_table_that_was_set_back_is_refused_until_it_is_set_forward(tables: IcebergTables, table, way) -> None:
    sales = tables.participant(table)
    tables.rows(1).writeTo(table).append()
    sales.commit(tables.rows(2), "a token", after=0)
    before, *_, last = tables.heads(table)
    if way == "rolled back":
        call(tables, "rollback_to_snapshot", table, snapshot_id=str(before))
    else:
        tables.spark.sql(f"CREATE OR REPLACE TABLE {table} USING iceberg AS SELECT 3L AS id, '' AS seen")
    with pytest.raises(TableFailed, match="rolled back or replaced"):
        sales.held()
    with pytest.raises(TableFailed, match="rolled back or replaced"):
        sales.commit(tables.rows(4), "another", after=1)
    assert tables.ids(table) == ([1] if way == "rolled back" else [3])
    call(tables, "set_current_snapshot", table, snapshot_id=str(last))
    assert (sales.held(), tables.ids(table)) == (TableVersion(version=1, token="a token"), [1, 2])


def test_a_new_table_of_the_same_name_has_no_version(tables: IcebergTables, table) -> None:
    sales = tables.participant(table)
    sales.commit(tables.rows(1), "a token", after=0)
    tables.spark.sql(f"DROP TABLE {table}")
    tables.spark.sql(f"CREATE TABLE {table} (id BIGINT, seen STRING) USING iceberg")
    assert sales.held() == TableVersion()


def test_a_tag_that_another_program_has_moved_is_refused(tables: IcebergTables, table) -> None:
    sales = tables.participant(table)
    sales.commit(tables.rows(1), "a token", after=0)
    tables.rows(2).writeTo(table).append()
    iceberg = iceberg_table(tables.spark, table)
    iceberg.manageSnapshots().replaceTag(TAG, iceberg.currentSnapshot().snapshotId()).commit()
    with pytest.raises(TableFailed, match="another program has moved it"):
        sales.held()


# -- staging


def test_a_commit_leaves_nothing_but_the_keys_tag(tables: IcebergTables, table) -> None:
    for key in ("sales", "sales:2`s"):
        sales = tables.participant(table, key=key)
        sales.commit(tables.rows(1), "a token", after=0)
        sales.commit(tables.rows(2), "another", after=1)
    assert refs(tables, table) == {"main", TAG, "kafka-eos:sales:2`s"}


def test_what_a_dead_driver_has_staged_goes_with_the_fence(tables: IcebergTables, table) -> None:
    def die() -> None:
        raise SystemExit

    sales, other = tables.interrupted(table), tables.interrupted(table, key="other")
    for each in (sales, other):
        each.before = die
        with pytest.raises(SystemExit):
            each.commit(tables.rows(1), "a token", after=0)
    assert len(refs(tables, table)) == 3
    sales.commit(None, None, after=0)
    assert len(left := refs(tables, table)) == 3
    assert left > {"main", TAG}, "the other key's batch is still staged"
    assert tables.ids(table) == []


def test_a_commit_that_was_applied_although_iceberg_says_it_failed_is_not_repeated(
    tables: IcebergTables, table
) -> None:
    class Wrong(IcebergParticipant):
        def _sent(self, table: object, transaction: object) -> bool:
            super()._sent(table, transaction)
            return False

        def _stage(self, *_: object) -> None:
            raise AssertionError("a fence stages nothing")

    fence = Wrong(tables.spark, table, key="sales")
    fence.commit(None, "a token", after=0)
    assert fence.held() == TableVersion(version=1, token="a token")


def test_other_programs_that_always_come_first_are_an_error(tables: IcebergTables, table, monkeypatch) -> None:
    monkeypatch.setattr("spark_kafka_eos.spark.iceberg._MOST_TRIES", 3)

    class Slow(IcebergParticipant):
        def _build(self, *given: Any) -> None:
            super()._build(*given)
            tables.participant(table, key="busy").commit(None, None, after=next(versions))

    versions = iter(range(9))
    with pytest.raises(RuntimeError, match="have committed to .* 3 times"):
        Slow(tables.spark, table, key="sales").commit(tables.rows(1), "a token", after=0)
    assert (tables.participant(table).held(), tables.ids(table)) == (TableVersion(), [])


def test_rows_are_not_lost_to_write_audit_publish(tables: IcebergTables, table) -> None:
    tables.spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('write.wap.enabled' = 'true')")
    tables.spark.conf.set("spark.wap.id", "audited")
    try:
        with pytest.raises(RuntimeError, match=r"spark\.wap\.id"):
            tables.participant(table).commit(tables.rows(1), "a token", after=0)
    finally:
        tables.spark.conf.unset("spark.wap.id")
    assert (tables.participant(table).held(), tables.ids(table)) == (TableVersion(), [])


@pytest.mark.parametrize("audited", [False, True])
def test_the_rows_go_to_main_whatever_branch_spark_is_told_to_write_to(tables: IcebergTables, table, audited) -> None:
    tables.spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('write.wap.enabled' = '{str(audited).lower()}')")
    tables.spark.conf.set("spark.wap.branch", "audit")
    try:
        tables.participant(table).commit(tables.rows(1), "a token", after=0)
    finally:
        tables.spark.conf.unset("spark.wap.branch")
    assert (tables.participant(table).held(), tables.ids(table)) == (TableVersion(version=1, token="a token"), [1])


# -- merge


def test_several_statements_are_one_commit_also_if_another_writer_comes_between(tables: IcebergTables, table) -> None:
    def merge(rows: object, table: str) -> None:
        tables.spark.sql(f"INSERT INTO {table} VALUES (10, 'inserted')")
        tables.spark.sql(f"DELETE FROM {table} WHERE id IN (1, 2)")
        tables.spark.sql(f"INSERT INTO {table} VALUES (11, 'inserted')")

    tables.rows(1).writeTo(table).append()
    sales = tables.interrupted(table, merge=merge)
    sales.before = tables.rows(2, 3).writeTo(table).append
    sales.commit(tables.rows(), "a token", after=0)
    assert (sales.held(), tables.ids(table)) == (TableVersion(version=1, token="a token"), [3, 10, 11])


def test_a_merge_into_another_table_than_the_given_one_is_an_error(tables: IcebergTables, table) -> None:
    sales = tables.participant(table, merge=lambda rows, _: tables.merging(table)(rows, table))
    with pytest.raises(RuntimeError, match="has not changed the table that it was given"):
        sales.commit(tables.rows(1), "a token", after=0)
    assert sales.held() == TableVersion()


# -- tables and catalogs


@pytest.mark.parametrize("version", [1, 2, 3], ids=lambda version: f"format {version}")
def test_a_partitioned_table_takes_part(tables: IcebergTables, version) -> None:
    name, properties = f"lake.shop.days_{version}", f"TBLPROPERTIES ('format-version' = '{version}')"
    columns = "(id BIGINT, seen STRING, day STRING) USING iceberg PARTITIONED BY (day)"
    tables.spark.sql(f"CREATE TABLE {name} {columns} {properties}")
    sales = tables.interrupted(name)
    rows = tables.rows(1, 2).selectExpr("id", "seen", "concat('day', id) AS day")
    sales.before = rows.writeTo(name).append
    sales.commit(rows, "a token", after=0)
    assert (sales.held(), tables.ids(name)) == (TableVersion(version=1, token="a token"), [1, 1, 2, 2])


def test_a_hadoop_catalog_whose_rename_replaces_files_is_refused(tables: IcebergTables, tmp_path) -> None:
    for name, value in {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".type": "hadoop",
        ".warehouse": str(tmp_path),
    }.items():
        tables.spark.conf.set(f"spark.sql.catalog.files{name}", value)
    tables.spark.sql("CREATE TABLE files.shop.sales (id BIGINT, seen STRING) USING iceberg")
    with pytest.raises(RuntimeError, match="Hadoop catalog on 'file'"):
        tables.participant("files.shop.sales").held()
