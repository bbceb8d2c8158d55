"""Kafka's own tools before, after and beside a query, all of them killed: what they see is what was sent, once.

VerifiableProducer sends numbers; TransactionalMessageCopier copies them to the query's source and aborts some of its
transactions; the query, killed in the middle of a batch, copies them on; a second copier, killed too, copies them to
the last topic, which VerifiableConsumer reads.
"""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer

from spark_kafka_eos.testing.driver import Driver, Kill, committed_batches, python_environment
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from tests.kafka_tools import command, table, tool
from tests.reading import read_committed

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.timeout(900), pytest.mark.slow]

JOB = Path(__file__).parent / "jobs" / "copy_records.py"


@pytest.mark.parametrize(
    ("fixture", "way", "records", "kills"),
    [
        pytest.param(
            "kafka", "sink", 1_000, [Kill(point="all appended", batch=1)], id="TV2-sink", marks=pytest.mark.slow
        ),
        pytest.param(
            "kafka39",
            "executors",
            20_000,
            [Kill(point="all appended", batch=1), Kill(point="ended", batch=3)],
            id="TV1-executors",
        ),
    ],
)
def test_what_kafkas_own_tools_send_passes_a_killed_query_once_and_so_its_own_tools_read_it(
    request: pytest.FixtureRequest, fixture: str, way: str, records: int, kills: list[Kill], tmp_path: Path
) -> None:
    broker: EmbeddedKafka = request.getfixturevalue(fixture)
    name = f"witness-{way}"
    seed, target, last = (broker.create_topic(f"{name}-{part}") for part in ("seed", "target", "last"))
    source = broker.create_topic(f"{name}-source", 2)
    at = ["--bootstrap-server", broker.bootstrap]

    tool("VerifiableProducer", *at, "--topic", seed, "--max-messages", records)
    tool(*copier(broker, seed, source, records // 20), "--enable-random-aborts")

    for number, kill in enumerate([*kills, None]):
        with driver(broker, source, target, way, records // 5, tmp_path / str(number), kill) as query:
            if kill is None:
                query.wait(timeout=240)
            else:
                query.wait_until((tmp_path / str(number) / "reached").exists, timeout=180)
                query.kill()
                assert committed_batches(tmp_path / "checkpoint") == kill.batch

    with running(*copier(broker, target, last, records // 50)) as first:
        assert progress(first) < records, "it was killed on the way"
    if way == "sink":
        assert "committed: records=" in (tmp_path / str(len(kills)) / "driver.log").read_text()

    read = tmp_path / "consumer.properties"
    read.write_text("isolation.level=read_committed\n")
    with running(*copier(broker, target, last, records // 50)):
        reading = ["--topic", last, "--group-id", f"{name}-reader", "--max-messages", records, "--verbose"]
        events = tool("VerifiableConsumer", *at, *reading, "--command-config", read)
    javas = Counter(int(event["value"]) for event in lines(events) if event["name"] == "record_data")

    once = Counter(range(records))
    assert javas == once
    for topic in (source, target, last):
        assert Counter(int(message.value() or b"") for message in read_committed(broker.bootstrap, topic)) == once

    states = {
        row["TransactionalId"]: row["TransactionState"] for row in table(tool("TransactionsCommand", *at, "list"))
    }
    assert states[f"copy-{target}"] == "CompleteCommit"
    # Its coordinator would list an open transaction; a leader whose coordinator does not know it has a hanging one.
    hanging = ["find-hanging", "--broker-id", "1", "--max-transaction-timeout", "0"]
    assert table(tool("TransactionsCommand", *at, *hanging)) == []

    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(7):
        producer.produce(source, b"%d" % number, partition=1)
    assert producer.flush(30) == 0
    assert lag(broker, f"copy-{target}") == {(source, "0"): 0, (source, "1"): 7}


def driver(
    broker: EmbeddedKafka, source: str, target: str, way: str, batch: int, folder: Path, kill: Kill | None
) -> Driver:
    folder.mkdir()
    return Driver(
        JOB,
        [broker.bootstrap, source, target, str(folder.parent / "checkpoint"), way, str(batch)],
        conf=[
            *("--master", "local[2]", "--conf", "spark.ui.enabled=false"),
        ],
        env=python_environment() | (kill.environment(folder) if kill else {}),
        log=folder / "driver.log",
    )


def copier(broker: EmbeddedKafka, source: str, target: str, size: int) -> list[str]:
    """TransactionalMessageCopier from the only partition of `source`, `size` records a transaction."""
    ids = ["--transactional-id", f"copier-{target}", "--consumer-group", f"copier-{target}"]
    topics = ["--input-topic", source, "--input-partition", "0", "--output-topic", target]
    return [
        "TransactionalMessageCopier",
        "--broker-list",
        broker.bootstrap,
        *topics,
        *ids,
        "--transaction-size",
        str(size),
    ]


def lag(broker: EmbeddedKafka, group: str) -> dict[tuple[str, str], int]:
    """What `kafka-consumer-groups.sh --describe` says, by topic and partition."""
    described = tool(
        "consumer.group.ConsumerGroupCommand", "--bootstrap-server", broker.bootstrap, "--describe", "--group", group
    )
    return {(row["TOPIC"], row["PARTITION"]): int(row["LAG"]) for row in table(described)}


@contextmanager
def running(name: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """A tool that runs, and is killed with SIGKILL at the end."""
    with subprocess.Popen(
        command(name, *arguments), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def progress(copier: subprocess.Popen[str]) -> int:
    """How many records the copier has committed, as soon as there are any."""
    assert copier.stdout is not None
    for line in copier.stdout:
        if line.startswith("{") and (consumed := int(json.loads(line).get("consumed", 0))):
            return consumed
    raise AssertionError("the copier ended without a transaction")


def lines(printed: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
