"""A query killed with SIGKILL in each state of its transaction, and started again: nothing lost, nothing twice, nothing
half. Every tenth record is a dead letter: output and dead letters together are the source. And a topic that is deleted
in two of these states."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Producer

from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.testing.driver import Driver, Kill, committed_batches, python_environment
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from spark_kafka_eos.testing.topic_reader import read_topic
from tests import held
from tests.matrix import Cell
from tests.producing import produce as send
from tests.reading import await_stable

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.timeout(900)]

JOB = Path(__file__).parent / "jobs" / "set_aside.py"
COPY = JOB.with_name("copy_records.py")
RECORDS, BATCH = 6_000, 1_000

# One kill per batch, so that one query meets them all; the state that each leaves behind is another.
KILLS = [
    Kill(point="before append", batch=0),
    Kill(point="half appended", batch=1),
    Kill(point="all appended", batch=2),
    Kill(point="offsets committed", batch=3),
    Kill(point="ended", batch=4),
]
# What leaves a transaction open with some of its records, and with all that it needs.
FEW = [Kill(point="half appended", batch=0), Kill(point="offsets committed", batch=1)]
# Of the fault matrix.
ROWS = {
    "before append": "2 initialised",
    "half appended": "4 half appended",
    "all appended": "5 all appended",
    "offsets committed": "6 offsets committed",
    "ended": "8 end answered",
}


SLOW = pytest.mark.slow


# A driver for each kill and one more, a minute and more: the usual run has one, with few kills.
@pytest.mark.parametrize(
    ("fixture", "way", "kills"),
    [
        pytest.param("kafka", "sink", KILLS, id="TV2-sink", marks=SLOW),
        pytest.param("kafka39", "executors", FEW, id="TV1-executors-few"),
        pytest.param("kafka39", "executors", KILLS, id="TV1-executors", marks=SLOW),
        pytest.param("kafka", "arrow-driver", KILLS, id="TV2-arrow-driver", marks=SLOW),
        pytest.param("kafka39", "arrow-executors", KILLS, id="TV1-arrow-executors", marks=SLOW),
        pytest.param("kafka", "sql-executors", KILLS, id="TV2-sql-executors", marks=SLOW),
        pytest.param("kafka39", "sql-driver", FEW, id="TV1-sql-driver-few", marks=SLOW),
        pytest.param("kafka", "driver", KILLS, id="TV2-driver", marks=SLOW),
        pytest.param("kafka", "executors", KILLS, id="TV2-executors", marks=SLOW),
        pytest.param("kafka39", "driver", KILLS, id="TV1-driver", marks=SLOW),
        pytest.param("kafka39", "sink", KILLS, id="TV1-sink", marks=SLOW),
    ],
)
def test_a_query_killed_in_every_state_writes_each_record_once(
    request: pytest.FixtureRequest, fixture: str, way: str, kills: list[Kill], tmp_path: Path, cell: Cell
) -> None:
    for kill in kills:
        cell(
            f"Fault matrix, {'TV2' if fixture == 'kafka' else 'TV1'}",
            ROWS[kill.point],
            "driver SIGKILL",
            "skipped" if kill.point == "ended" else "redone",
        )
    broker: EmbeddedKafka = request.getfixturevalue(fixture)
    source = broker.create_topic(f"crash-in-{way}-{len(kills)}", 2)
    target = broker.create_topic(f"crash-out-{way}-{len(kills)}", 3)
    dead = broker.create_topic(f"crash-dead-{way}-{len(kills)}", 2)
    produce(broker.bootstrap, source)
    checkpoint = tmp_path / "checkpoint"

    def driver(kill: Kill | None = None, name: str = "last") -> Driver:
        folder = tmp_path / name
        folder.mkdir()
        return Driver(
            JOB,
            [broker.bootstrap, source, target, dead, str(checkpoint), way, str(BATCH)],
            conf=[
                *("--master", "local[2, 2]", "--conf", "spark.ui.enabled=false"),
            ],
            env=python_environment() | (kill.environment(folder) if kill else {}),
            log=tmp_path / "driver.log",
        )

    for number, kill in enumerate(kills):
        with driver(kill, str(number)) as killed:
            killed.wait_until((tmp_path / str(number) / "reached").exists, timeout=180)
            assert killed.kill() >= 2, "the JVM and at least one Python process were alive"
        assert committed_batches(checkpoint) == kill.batch, "Spark had not noted the batch"
        if kill.point == "ended":  # from the others a transaction is still open
            await_stable(broker.bootstrap, target)
            await_stable(broker.bootstrap, dead)
        done = kill.batch + (kill.point == "ended")
        assert_once(committed(broker.bootstrap, target) + committed(broker.bootstrap, dead), at_most=done * BATCH)
    with driver() as last:
        last.wait(timeout=240)
    await_stable(broker.bootstrap, target)
    await_stable(broker.bootstrap, dead)
    good, aside = committed(broker.bootstrap, target), committed(broker.bootstrap, dead)
    assert_once(good + aside, at_most=RECORDS)
    assert good.keys() | aside.keys() == set(range(RECORDS))
    assert aside.keys() == set(range(0, RECORDS, 10))


@pytest.mark.slow
@pytest.mark.parametrize("named_by", ["option", "row"])
def test_a_topic_that_is_deleted_while_the_sink_commits_its_batch_is_written_again_or_lost_aloud(
    kafka: EmbeddedKafka, tmp_path: Path, named_by: str
) -> None:
    """With `row`, each row names one of two topics, of which one is deleted."""
    source = kafka.create_topic(f"deleted-in-{named_by}")
    topics = [kafka.create_topic(f"deleted-out-{named_by}-{number}", 2) for number in range(1 + (named_by == "row"))]

    def driver(name: str, kill: Kill | None = None) -> Driver:
        (tmp_path / name).mkdir()
        return Driver(
            COPY,
            [kafka.bootstrap, source, ",".join(topics), str(tmp_path / "checkpoint"), "sink", "100"],
            conf=["--master", "local[2]", "--conf", "spark.ui.enabled=false"],
            env=python_environment() | (kill.environment(tmp_path / name) if kill else {}),
            log=tmp_path / name / "log",
        )

    def create_again(held_driver: Driver, name: str) -> None:
        held_driver.wait_until(lambda: held.reached(tmp_path / name), timeout=180)
        kafka.delete_topic(topics[0])
        kafka.create_topic(topics[0], 2)
        held.release(tmp_path / name)

    def numbers(first: int, last: int) -> list[Counter[int]]:
        """Those of each topic."""
        return [Counter(range(first + number, last, len(topics))) for number in range(len(topics))]

    send(kafka.bootstrap, source, [b"%d" % number for number in range(200)])
    with driver("appended", Kill(point="all appended", batch=1)) as writes_again:
        create_again(writes_again, "appended")
        writes_again.wait(timeout=180)
    there = [numbers(100, 200)[0], *numbers(0, 200)[1:]]  # the first batch of a topic that was deleted is gone with it
    assert [committed(kafka.bootstrap, topic) for topic in topics] == there

    send(kafka.bootstrap, source, [b"%d" % number for number in range(200, 300)])
    lost = f"OutputLost: batch 2 .* lost are {100 // len(topics)} records in [12] partitions of topic '{topics[0]}'"
    with driver("lost", Kill(point="offsets committed", batch=2)) as loses:
        create_again(loses, "lost")
        with pytest.raises(ToolFailed, match="ended with exit code 1\\b"):
            loses.wait(timeout=180)
    assert re.search(lost, (tmp_path / "lost" / "log").read_text())
    with driver("refused") as refused, pytest.raises(ToolFailed, match="ended with exit code 1\\b"):
        refused.wait(timeout=180)
    assert "LedgerRefused: batch 2 is incomplete" in (tmp_path / "refused" / "log").read_text()
    there = [Counter(), *numbers(0, 300)[1:]]
    assert [committed(kafka.bootstrap, topic) for topic in topics] == there
    assert committed_batches(tmp_path / "checkpoint") == 2, "Spark has not noted the one that is incomplete"


def produce(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(RECORDS):
        producer.produce(topic, key=b"%d" % (number % 97), value=b"%d" % number, partition=number % 2)
    assert producer.flush(30) == 0


def committed(bootstrap: str, topic: str) -> Counter[int]:
    return Counter(int(message.value() or b"") for message in read_topic(bootstrap, topic, "read_committed"))


def assert_once(values: Counter[int], *, at_most: int) -> None:
    assert [value for value, count in values.items() if count > 1] == []
    assert len(values) == at_most
