"""A query that writes to a topic and to a table in SQLite, killed with SIGKILL and started again: both have the same
rows, once."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from spark_kafka_eos.participants.sql import SqlTable
from spark_kafka_eos.testing.driver import Driver, Kill, committed_batches, python_environment
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from spark_kafka_eos.testing.topic_reader import read_topic
from tests.producing import produce
from tests.reading import await_stable

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.timeout(900)]

JOB = Path(__file__).parent / "jobs" / "write_both.py"
RECORDS, BATCH = 3_000, 1_000

# One kill per batch, so that one query meets them all.
ALL = [
    Kill(point="table half committed", batch=0),
    Kill(point="offsets committed", batch=1),
    Kill(point="table committed", batch=2),
]


@pytest.mark.parametrize(
    ("fixture", "mode", "kills"),
    [
        pytest.param("kafka", "driver", ALL[2:], id="TV2-driver"),
        pytest.param("kafka", "executors", ALL, id="TV2-executors", marks=pytest.mark.slow),
        pytest.param("kafka39", "driver", ALL, id="TV1-driver", marks=pytest.mark.slow),
    ],
)
def test_topic_and_table_have_the_same_rows_once_whenever_the_driver_is_killed(
    request: pytest.FixtureRequest, fixture: str, mode: str, kills: list[Kill], tmp_path: Path
) -> None:
    broker: EmbeddedKafka = request.getfixturevalue(fixture)
    source = broker.create_topic(f"both-in-{mode}", 2)
    target = broker.create_topic(f"both-out-{mode}", 3)
    for partition in range(2):
        values = [b"%d" % number for number in range(partition, RECORDS, 2)]
        produce(broker.bootstrap, source, values, partition=partition)
    database, checkpoint = tmp_path / "rows.db", tmp_path / "checkpoint"
    connection = sqlite3.connect(database)
    connection.execute("CREATE TABLE rows (row TEXT)")
    connection.commit()
    SqlTable(lambda: sqlite3.connect(database), insert="", key="").create()

    def driver(kill: Kill | None = None, name: str = "last") -> Driver:
        folder = tmp_path / name
        folder.mkdir()
        return Driver(
            JOB,
            [broker.bootstrap, source, target, str(database), str(checkpoint), mode, str(BATCH)],
            conf=["--master", "local[2]", "--conf", "spark.ui.enabled=false"],
            env=python_environment() | (kill.environment(folder) if kill else {}),
            log=tmp_path / "driver.log",
        )

    for number, kill in enumerate(kills):
        with driver(kill, str(number)) as killed:
            killed.wait_until((tmp_path / str(number) / "reached").exists, timeout=180)
            assert killed.kill() >= 2, "the JVM and at least one Python process were alive"
        assert committed_batches(checkpoint) == kill.batch, "Spark had not noted the batch"
    with driver() as last:
        last.wait(timeout=240)
    await_stable(broker.bootstrap, target)
    in_topic = sorted(
        bytes(each.value() or b"").decode() for each in read_topic(broker.bootstrap, target, "read_committed")
    )
    in_table = sorted(row for (row,) in connection.execute("SELECT row FROM rows"))
    connection.close()
    assert in_topic == in_table
    assert sorted(int(row.split()[0]) for row in in_table) == list(range(RECORDS))
