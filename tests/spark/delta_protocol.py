"""What Delta Lake has of its own, on real tables. test_delta.py runs this file on a release of Spark that Delta
supports.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from delta.tables import DeltaTable
from pyspark.sql import DataFrame, Row, SparkSession

from spark_kafka_eos import TableVersion
from spark_kafka_eos.errors import TableFailed
from spark_kafka_eos.spark import delta as module
from spark_kafka_eos.spark.jvm import cloned
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


@pytest.fixture
def two_commits(tables: DeltaTables, table: str) -> str:
    """A table with rows 1 and 2, of the key's two commits, which are its versions 1 and 2."""
    sales = tables.participant(table)
    for version, number in enumerate((1, 2)):
        sales.commit(tables.rows(number), f"token {number}", after=version)
    return table


def test_a_table_that_is_restored_to_before_the_keys_last_commit_is_refused_until_it_has_it_again(
    tables: DeltaTables, two_commits: str
) -> None:
    sales = tables.participant(two_commits)
    tables.spark.sql(f"RESTORE TABLE {two_commits} TO VERSION AS OF 1")
    assert tables.ids(two_commits) == [1]
    with pytest.raises(
        TableFailed, match=r"restored or replaced: version 2 of the key 'sales' \(the table's version 2\)"
    ):
        sales.held()
    with pytest.raises(TableFailed, match="rows that Kafka has may be missing"):
        sales.commit(tables.rows(3), "token 3", after=2)
    tables.spark.sql(f"RESTORE TABLE {two_commits} TO VERSION AS OF 2")
    assert sales.held() == TableVersion(version=2, token="token 2")
    sales.commit(tables.rows(3), "token 3", after=2)
    tables.spark.sql(f"RESTORE TABLE {two_commits} TO VERSION AS OF 5")
    assert (sales.held(), tables.ids(two_commits)) == (TableVersion(version=3, token="token 3"), [1, 2, 3])


@pytest.mark.parametrize("way", ["append", "merge", "fence"])
def test_a_restore_that_comes_while_a_batch_is_committed_is_noticed_before_the_next_one(
    tables: DeltaTables, two_commits: str, way: str
) -> None:
    merge = tables.merging(two_commits) if way == "merge" else None
    sales, rows = tables.interrupted(two_commits, merge=merge), None if way == "fence" else tables.rows(3)
    sales.before = lambda: tables.spark.sql(f"RESTORE TABLE {two_commits} TO VERSION AS OF 1")
    sales.commit(rows, "token 3", after=2)
    expected = [1] if rows is None else [1, 3]
    assert tables.ids(two_commits) == expected
    for refused in (sales.held, lambda: sales.commit(tables.rows(4), "token 4", after=3)):
        with pytest.raises(TableFailed, match=r"while version 3 was committed: version 2 .*\(the table's version 2\)"):
            refused()
    assert tables.ids(two_commits) == expected
    anew = tables.participant(two_commits, key="sales again")
    anew.commit(tables.rows(4), "token", after=0)
    assert (anew.held(), tables.ids(two_commits)) == (TableVersion(version=1, token="token"), [*expected, 4])


def test_a_restore_that_keeps_the_keys_commits_and_comes_while_a_batch_is_committed_changes_nothing(
    tables: DeltaTables, two_commits: str
) -> None:
    sales = tables.interrupted(two_commits)

    def set_back() -> None:
        tables.rows(7).writeTo(two_commits).append()
        tables.spark.sql(f"RESTORE TABLE {two_commits} TO VERSION AS OF 2")

    sales.before = set_back
    sales.commit(tables.rows(3), "token 3", after=2)
    sales.commit(tables.rows(4), "token 4", after=3)
    assert (sales.held().version, tables.ids(two_commits)) == (4, [1, 2, 3, 4])


def test_a_new_key_goes_on_in_a_table_that_was_restored(tables: DeltaTables, two_commits: str) -> None:
    tables.spark.sql(f"RESTORE TABLE {two_commits} TO VERSION AS OF 1")
    anew = tables.participant(two_commits, key="sales again")
    assert anew.held() == TableVersion()
    anew.commit(tables.rows(2), "token", after=0)
    assert (anew.held(), tables.ids(two_commits)) == (TableVersion(version=1, token="token"), [1, 2])


def test_a_table_that_is_replaced_or_restored_to_a_time_is_refused(tables: DeltaTables, two_commits: str) -> None:
    sales, path = tables.participant(two_commits), two_commits.removeprefix("delta.").strip("`")
    then = tables.spark.sql(f"DESCRIBE HISTORY {two_commits}").where("version = 1").first()
    assert then is not None
    tables.spark.sql(f"RESTORE TABLE {two_commits} TO TIMESTAMP AS OF '{then.timestamp}'")
    with pytest.raises(TableFailed, match="restored or replaced"):
        sales.held()
    tables.spark.sql(f"RESTORE TABLE {two_commits} TO VERSION AS OF 2")
    assert sales.held().version == 2
    tables.rows(1, 2).writeTo(f"delta.`{path}`").using("delta").createOrReplace()
    with pytest.raises(TableFailed, match="restored or replaced"):
        sales.held()


def test_what_others_delete_and_overwrite_is_their_own(tables: DeltaTables, two_commits: str) -> None:
    tables.spark.sql(f"DELETE FROM {two_commits} WHERE id = 1")
    tables.spark.sql(f"INSERT OVERWRITE {two_commits} VALUES (7, '')")
    assert tables.participant(two_commits).held() == TableVersion(version=2, token="token 2")


def test_a_table_that_forgets_identifiers_is_refused(tables: DeltaTables, table) -> None:
    forgets = "'delta.setTransactionRetentionDuration' = 'interval 1 days'"
    tables.spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ({forgets})")
    with pytest.raises(TableFailed, match="forgets fences"):
        tables.participant(table).held()


def test_a_merge_in_another_session_than_the_given_one_is_an_error(tables: DeltaTables, table) -> None:
    sales = tables.participant(table, merge=lambda _, rows: tables.merging(table)(tables.spark, rows))
    with pytest.raises(RuntimeError, match="in the session that it was given"):
        sales.commit(tables.rows(1), "a token", after=0)


def test_a_merge_has_the_settings_and_the_temporary_views_of_the_rows_session(
    tables: DeltaTables, tmp_path: Path
) -> None:
    """And what a commit sets for its MERGE stays there."""
    table, spark = tables.create(tmp_path, "id BIGINT, day STRING"), cloned(tables.spark)
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    spark.conf.set("spark.databricks.delta.schema.autoMerge.enabled", "true")
    spark.sql("SELECT 'monday' AS day").createOrReplaceTempView("weekdays")

    def merge(session: SparkSession, rows: DataFrame) -> None:
        news = rows.crossJoin(session.table("weekdays")).selectExpr("id", "day", "date_format(at, 'HH') AS hour")
        target = DeltaTable.forName(session, table).alias("t")
        target.merge(news.alias("s"), "t.id = s.id").whenNotMatchedInsertAll().execute()

    rows = spark.sql("SELECT 1L AS id, TIMESTAMP '2026-01-01 03:00:00' AS at")
    for version in range(2):
        tables.participant(table, merge=merge).commit(rows, f"token {version}", after=version)
    assert spark.table(table).collect() == [Row(id=1, day="monday", hour="03")]
    assert "txnAppId" not in str(spark.conf.getAll)
