"""What a REST catalog of Apache Iceberg makes of the participant's commits: it gets the changes and what they require,
not the metadata. test_iceberg_rest.py runs this file.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError

from spark_kafka_eos import TableVersion
from spark_kafka_eos.errors import TableFailed
from tests.spark.iceberg_rest_tables import IcebergRestTables


@pytest.fixture
def table(tables: IcebergRestTables, tmp_path: Path) -> str:
    return tables.create(tmp_path)


@pytest.mark.parametrize("way", ["append", "merge", "fence"])
def test_a_request_that_arrives_after_a_fence_is_refused_also_if_main_is_what_it_was(
    tables: IcebergRestTables, table, way
) -> None:
    tables.rows(1).writeTo(table).append()
    live, late = (
        tables.participant(table),
        tables.participant(table, merge=tables.merging(table) if way == "merge" else None),
    )
    main = tables.heads(table)[-1]

    def set_main(snapshot: int) -> None:
        named = table.removeprefix("rest.")
        tables.spark.sql(f"CALL lake.system.set_current_snapshot(table => '{named}', snapshot_id => {snapshot})")

    def overtake() -> None:
        live.commit(None, "a token", after=0)
        set_main(main)

    tables.catalog.refused.clear()
    tables.catalog.before = overtake
    with pytest.raises(TableFailed, match="rolled back"):  # what it finds when it looks again
        late.commit(None if way == "fence" else tables.rows(2), "late", after=0)
    assert any("kafka-eos:sales" in said for said in tables.catalog.refused), tables.catalog.refused
    assert tables.ids(table) == [1]
    set_main(tables.heads(table)[-2])
    assert (live.held(), tables.ids(table)) == (TableVersion(version=1, token="a token"), [1])


@pytest.mark.parametrize("status", [500, 503, 504])
def test_a_commit_whose_answer_is_an_error_of_the_server_is_there(tables: IcebergRestTables, table, status) -> None:
    sales = tables.participant(table)
    tables.catalog.answer = status
    with pytest.raises(Py4JJavaError):
        sales.commit(tables.rows(1), "a token", after=0)
    assert (sales.held(), tables.ids(table)) == (TableVersion(version=1, token="a token"), [1])


def test_a_commit_that_was_applied_but_is_answered_with_a_conflict_is_not_repeated(
    tables: IcebergRestTables, table
) -> None:
    sales = tables.participant(table)
    tables.catalog.answer = 409
    sales.commit(tables.rows(1), "a token", after=0)
    assert (sales.held(), tables.ids(table)) == (TableVersion(version=1, token="a token"), [1])


def test_while_the_catalog_is_down_nothing_is_known_and_nothing_is_committed(tables: IcebergRestTables, table) -> None:
    sales = tables.participant(table)
    sales.commit(tables.rows(1), "a token", after=0)
    with tables.catalog.down():
        with pytest.raises(Py4JJavaError):
            sales.held()
        with pytest.raises(Py4JJavaError):
            sales.commit(tables.rows(2), "another", after=1)
    assert (sales.held(), tables.ids(table)) == (TableVersion(version=1, token="a token"), [1])
    sales.commit(tables.rows(2), "another", after=1)
    assert (sales.held(), tables.ids(table)) == (TableVersion(version=2, token="another"), [1, 2])
