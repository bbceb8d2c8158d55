"""Half an hour of faults while each micro-batch writes 5,000 records a second to a topic and to a table: both have each
record once.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from lab.soak.check import judge_numbers
from tests.spark.soaking import SECONDS, Soak, soaked

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(3_600)]


@pytest.fixture
def soak(kafka_version: str, tmp_path: Path) -> Iterator[Soak]:
    with (
        closing(sqlite3.connect(tmp_path / "table.db")) as database,
        soaked(kafka_version, tmp_path, "soak_table.py", str(tmp_path / "table.db")) as soak,
    ):
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("CREATE TABLE numbers (part INTEGER, number INTEGER)")
        yield soak


def test_half_an_hour_of_faults_leaves_each_record_once_in_topic_and_table(soak: Soak, cell) -> None:
    ran = soak.run()
    with closing(sqlite3.connect(soak.argument)) as database:
        rows = database.execute("SELECT part, number FROM numbers ORDER BY rowid")
        table = judge_numbers(ran.produced, rows)
    told = ran.told | {"rows": f"{table.found:,}", "rows lost": table.lost, "rows duplicated": table.duplicated}
    for name, figure in told.items():
        cell("Soak with a table", f"{SECONDS} s", name, figure)
    print(told)
    assert ran.outcome.holds, ran.outcome
    assert ran.outcome.found == ran.outcome.expected
    assert (table.lost, table.duplicated, table.wrong) == (0, 0, 0)
    assert table.found == table.expected
