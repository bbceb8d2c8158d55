"""Executors in processes of their own append to one transaction (`local-cluster`: a real cluster on one machine)."""

from __future__ import annotations

import itertools
import json
import sqlite3
from collections import defaultdict
from contextlib import closing
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer

from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.kafka.fetching.fetch import Fetcher
from spark_kafka_eos.kafka.partitions import OffsetRange, TopicPartition
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.offsets import latest
from spark_kafka_eos.kafka.wire.batch_header import RecordBatchHeader
from spark_kafka_eos.options import source_options
from spark_kafka_eos.participants.sql import SqlTable
from spark_kafka_eos.testing.driver import Driver, python_environment, spark_submit
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from spark_kafka_eos.testing.process_tree import process_tree
from tests.producing import produce
from tests.reading import read_committed

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.timeout(300)]

JOB = Path(__file__).parent / "jobs" / "copy_records.py"
SAVE = JOB.with_name("save_rows.py")
RECORDS, PARTITIONS = 4_000, 4


def test_executors_in_processes_of_their_own_append_to_one_transaction(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    source, target = kafka.create_topic("cluster-in", 2), kafka.create_topic("cluster-out", PARTITIONS)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for number in range(RECORDS):
        producer.produce(source, key=b"%d" % number, value=b"%d" % number, partition=number % 2)
    assert producer.flush(30) == 0
    events = tmp_path / "events"
    events.mkdir()
    settings = {
        "spark.ui.enabled": "false",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": str(events),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        # As docs/security.md asks for.
        "spark.authenticate": "true",
        "spark.authenticate.secret": "of this test",
        "spark.network.crypto.enabled": "true",
        "spark.io.encryption.enabled": "true",
    }
    environment = python_environment()
    with Driver(
        JOB,
        [
            *(kafka.bootstrap, source, target, str(tmp_path / "checkpoint"), "executors", str(RECORDS // 2)),
            str(tmp_path / "figures.json"),
        ],
        conf=[
            *("--master", "local-cluster[2,1,1024]"),
            *(word for pair in settings.items() for word in ("--conf", "=".join(pair))),
            *("--conf", f"spark.executorEnv.PYTHONPATH={environment['PYTHONPATH']}"),
        ],
        env=environment | {"SPARK_HOME": str(spark_submit().parent.parent)},
        log=tmp_path / "driver.log",
    ) as driver:
        driver.wait(timeout=240)

    values = sorted(int(m.value() or b"") for m in read_committed(kafka.bootstrap, target))
    assert values == list(range(RECORDS))
    appenders = executors_of_append_stages(events)
    assert len(appenders) == 2, "two micro-batches, each with one append stage"
    assert all(len(executors) == 2 for executors in appenders), "both executors appended in each"
    identities = identities_of(kafka.bootstrap, target)
    assert len(identities) == 2, "one producer id and epoch per micro-batch"
    assert all(partitions == set(range(PARTITIONS)) for partitions in identities.values()), "shared by all partitions"
    [told] = json.loads((tmp_path / "figures.json").read_text())["sources"]
    assert (told["rows"], told["rows_aborted"], told["complete"]) == (RECORDS // 2, 0, True), "by both executors"
    assert told["bytes_read"] > RECORDS


@pytest.mark.slow
def test_a_batch_write_needs_no_shared_disk_unless_its_tasks_are_large(
    kafka: EmbeddedKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver's temporary directory depends on the process's working directory: executors have another one."""
    target = kafka.create_topic("saved", 2)
    (tmp_path / "tmp").mkdir()
    monkeypatch.chdir(tmp_path)
    environment = python_environment()
    with Driver(
        SAVE,
        [kafka.bootstrap, target, str(tmp_path / "shared"), str(tmp_path / "result.json")],
        conf=[
            *("--master", "local-cluster[2,1,1024]", "--conf", "spark.ui.enabled=false"),
            *("--conf", f"spark.executorEnv.PYTHONPATH={environment['PYTHONPATH']}"),
        ],
        env=environment | {"SPARK_HOME": str(spark_submit().parent.parent), "TMPDIR": "/proc/self/cwd/tmp"},
        log=tmp_path / "driver.log",
    ) as driver:
        driver.wait(timeout=240)

    result = json.loads((tmp_path / "result.json").read_text())
    assert json.loads(result["seen"]) == [False] * 4
    assert result["small"] == result["shared"] == ""
    assert "StagingLost" in result["large"] and "Nothing was committed" in result["large"]
    assert "Set the option stagingDir" in result["large"]
    counts = {"small": 2 * (1 << 20) // 100_000, "shared": 40 * (1 << 20) // 100_000}
    keys = sorted((m.key() or b"").decode() for m in read_committed(kafka.bootstrap, target))
    assert keys == sorted(f"{name}:{number}" for name, count in counts.items() for number in range(count))
    assert json.loads(result["left"]) == []
    assert [path for path in (tmp_path / "shared").rglob("*") if path.is_file()] == []


@pytest.mark.slow
def test_rows_of_a_local_checkpoint_that_are_lost_with_an_executor_are_in_neither_topic_nor_table(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    source, target = kafka.create_topic("lost-in", 2), kafka.create_topic("lost-out", 1)
    produce(kafka.bootstrap, source, [b"%d" % number for number in range(100)])
    database = tmp_path / "rows.db"
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("CREATE TABLE rows (row TEXT)")
    SqlTable(lambda: sqlite3.connect(database), insert="", key="").create()

    def both() -> tuple[list[str], list[str]]:
        in_topic = sorted((m.value() or b"").decode() for m in read_committed(kafka.bootstrap, target))
        with closing(sqlite3.connect(database)) as connection:
            return in_topic, sorted(row for (row,) in connection.execute("SELECT row FROM rows"))

    for kill in ("kill", ""):
        with Driver(
            JOB.with_name("lose_executors.py"),
            [kafka.bootstrap, source, target, str(database), str(tmp_path / "checkpoint"), kill],
            conf=["--master", "local-cluster[2,1,1024]", "--conf", "spark.ui.enabled=false"],
            env=python_environment() | {"SPARK_HOME": str(spark_submit().parent.parent)},
            log=tmp_path / f"driver{kill}.log",
        ) as driver:
            if kill:
                with pytest.raises(ToolFailed, match="exit code 1"):
                    driver.wait(timeout=240)
                log = (tmp_path / "driverkill.log").read_text()
                assert "AttemptsExhausted: " in log
                assert "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND" in log, "Spark cannot compute them again"
                assert both() == ([], [])
            else:
                driver.wait(timeout=240)
    in_topic, in_table = both()
    assert in_topic == in_table
    assert sorted(int(row.split()[0]) for row in in_table) == list(range(100))


def executors_of_append_stages(events: Path) -> list[set[str]]:
    """The executor ids that ran each append stage, from Spark's event log: the last stage of each two-stage job."""
    (log,) = (path for path in events.iterdir() if path.is_file())
    stages: dict[int, set[str]] = defaultdict(set)
    results = set()
    for line in log.read_text().splitlines():
        event = json.loads(line)
        if event["Event"] == "SparkListenerJobStart" and len(event["Stage IDs"]) == 2:
            results.add(max(event["Stage IDs"]))
        if event["Event"] == "SparkListenerTaskEnd":
            stages[event["Stage ID"]].add(event["Task Info"]["Executor ID"])
    return [stages[stage] for stage in sorted(results)]


def identities_of(bootstrap: str, topic: str) -> dict[tuple[int, int], set[int]]:
    """(producer id, epoch) -> partitions it appended data to."""
    options = source_options({"kafka.bootstrap.servers": bootstrap, "subscribe": topic})
    found: dict[tuple[int, int], set[int]] = defaultdict(set)
    with Cluster(options.client) as cluster:
        for partition, header in headers(cluster, topic):
            if not header.is_control:
                assert header.is_transactional
                found[header.producer_id, header.producer_epoch].add(partition)
    return found


def headers(cluster: Cluster, topic: str) -> list[tuple[int, RecordBatchHeader]]:
    partitions = [TopicPartition(topic, number) for number in cluster.topic(topic).partitions]
    ranges = [OffsetRange(partition=tp, start=0, end=end) for tp, end in latest(cluster, partitions).items()]
    return [
        (fetched.partition.partition, header)
        for fetched in Fetcher(cluster).fetch(ranges)
        for header in fetched.batches
    ]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_executor_that_is_killed_in_real_time_is_replaced_and_each_record_is_written_once(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    """Its Python worker may live on for a while, with an open transaction: the bucket's next epoch fences it."""
    source, target = kafka.create_topic("real-time-in", PARTITIONS), kafka.create_topic("real-time-out", PARTITIONS)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 0})
    numbers = itertools.count()

    def produce() -> None:
        for number in itertools.islice(numbers, 20):
            producer.produce(source, b"%d" % number, partition=number % PARTITIONS)
        producer.flush()

    def written() -> list[int]:
        return [int(message.value() or b"") for message in read_committed(kafka.bootstrap, target)]

    def executors() -> list[psutil.Process]:
        tree = process_tree(driver.pid)
        return [process for process in tree if "CoarseGrainedExecutorBackend" in " ".join(process.cmdline())]

    environment = python_environment()
    with Driver(
        JOB.with_name("real_time.py"),
        [kafka.bootstrap, source, target, str(tmp_path / "checkpoint"), "on"],
        conf=[
            *("--master", "local-cluster[2,2,1024]", "--conf", "spark.ui.enabled=false"),
            *("--conf", f"spark.executorEnv.PYTHONPATH={environment['PYTHONPATH']}"),
        ],
        env=environment | {"SPARK_HOME": str(spark_submit().parent.parent)},
        log=tmp_path / "driver.log",
    ) as driver:
        driver.wait_until(lambda: len(written()) >= 100, meanwhile=produce, timeout=240)
        for _ in range(3):
            victim = executors()[0]
            victim.kill()
            victim.wait(30)
            count = len(written()) + 400
            driver.wait_until(lambda: len(written()) >= count, meanwhile=produce, timeout=120)  # noqa: B023 - in time
        produced = next(numbers)
        driver.wait_until(lambda: len(written()) >= produced, timeout=120)
        assert len(executors()) == 2
    assert sorted(written()) == list(range(produced))
