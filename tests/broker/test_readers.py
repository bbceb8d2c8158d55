"""What other clients deliver of a topic with committed, aborted and open transactions, set to read committed records
only: docs/brokers.md has the table. Go and npm fetch and build them; pip has those of Python.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from spark_kafka_eos.kafka.partitions import IsolationLevel
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from spark_kafka_eos.testing.ports import free_ports
from spark_kafka_eos.testing.read_offsets import group_offsets
from spark_kafka_eos.testing.topic_reader import read_topic
from tests.kafka_tools import admin_tool, command, tool
from tests.pages import ROOT
from tests.platforms import CONNECT, MIRROR_MAKER, of_flink, of_kafka, properties, running
from tests.producing import transact
from tests.waiting import until

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(1_800)]

SOURCES = ROOT / "tests/readers"
ENDS, RECORDS = ("commit", "abort", "abort", "commit", "abort", "commit"), 20
COMMITTED = RECORDS * ENDS.count("commit")
NPM = ("kafkajs@2.2.4", "@platformatic/kafka@2.12.1")
PYPI = ("aiokafka==0.14.0", "kafka-python==3.0.12")


@pytest.fixture(scope="module")
def filled(kafka: EmbeddedKafka) -> Iterator[tuple[str, str]]:
    """Where the topic is: transactions of one producer, each of which is committed or aborted, and one that is open."""
    topic = kafka.create_topic("readers")
    for number, end in enumerate(ENDS):
        values = [b"%s %d" % (end.encode(), number * RECORDS + n) for n in range(RECORDS)]
        transact(kafka.bootstrap, topic, values, end, transactional_id="ended")  # type: ignore[arg-type]
    left = transact(kafka.bootstrap, topic, [b"open %d" % n for n in range(RECORDS)], "leave open")
    yield kafka.bootstrap, topic
    left.abort_transaction(30)


def kinds(values: str) -> Counter[str]:
    """How many of the printed values were committed, aborted, left open, or are none of the records."""
    return Counter(
        kind[1] if (kind := re.fullmatch(r'"?(commit|abort|open) \d+"?', line)) else "other"
        for line in values.splitlines()
        if line.strip()
    )


def printed(*words: str | Path, cwd: Path = ROOT, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        words, cwd=cwd, env=os.environ | (env or {}), capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    return done.stdout


def java(bootstrap: str, topic: str, *_: Path) -> str:
    where = ["--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning", "--timeout-ms", "15000"]
    return printed(*command("consumer.ConsoleConsumer", *where, "--isolation-level", "read_committed"))


def librdkafka(bootstrap: str, topic: str, *_: Path, **setting: str) -> str:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "rd", **setting})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values = [message.value() or b"" for message in consumer.consume(1_000, timeout=10)]
    consumer.close()
    return b"\n".join(values).decode()


PYTHONS = {
    "kafka-python": """
from kafka import KafkaConsumer
consumer = KafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=10_000,
                         group_id=None, isolation_level="read_committed")
for message in consumer:
    print(message.value.decode())
""",
    "aiokafka": """
import asyncio
from aiokafka import AIOKafkaConsumer
async def main():
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest",
                                isolation_level="read_committed")
    await consumer.start()
    while batches := await consumer.getmany(timeout_ms=10_000):
        for messages in batches.values():
            for message in messages:
                print(message.value.decode())
    await consumer.stop()
asyncio.run(main())
""",
}


def pythons(client: str) -> Callable[..., str]:
    def read(bootstrap: str, topic: str, folder: Path) -> str:
        libraries = folder / "python"
        if not libraries.exists():
            printed(sys.executable, "-m", "pip", "install", "--quiet", "--target", libraries, *PYPI)
        program = f"import sys; bootstrap, topic = sys.argv[1:]\n{PYTHONS[client]}"
        return printed(sys.executable, "-c", program, bootstrap, topic, env={"PYTHONPATH": str(libraries)})

    return read


def gos(client: str) -> Callable[..., str]:
    def read(bootstrap: str, topic: str, folder: Path) -> str:
        program = folder / "go-readers"
        if not program.exists():
            environment = {"GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly"}
            printed("go", "build", "-o", program, ".", cwd=SOURCES, env=environment)
        return printed(program, client, bootstrap, topic)

    return read


def nodes(client: str) -> Callable[..., str]:
    def read(bootstrap: str, topic: str, folder: Path) -> str:
        place = folder / "node"
        if not place.exists():
            place.mkdir()
            shutil.copy(SOURCES / "read.mjs", place)
            printed("npm", "install", "--silent", "--ignore-scripts", *NPM, cwd=place)
        return printed("node", "read.mjs", client, bootstrap, topic, cwd=place)

    return read


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("clients")


@pytest.mark.parametrize(
    "read",
    [
        pytest.param(java, id="Java"),
        pytest.param(partial(librdkafka, **{"isolation.level": "read_committed"}), id="librdkafka"),
        pytest.param(librdkafka, id="librdkafka by default"),
        *(pytest.param(pythons(client), id=client) for client in PYTHONS),
        *(pytest.param(gos(client), id=client) for client in ("franz-go", "sarama")),
        pytest.param(nodes("kafkajs"), id="kafkajs"),
        pytest.param(nodes("kafkajs by default"), id="kafkajs by default"),
    ],
)
def test_a_client_that_reads_committed_records_delivers_all_of_them_and_no_other(
    filled: tuple[str, str], folder: Path, read: Callable[..., str]
) -> None:
    assert kinds(read(*filled, folder)) == {"commit": COMMITTED}


@pytest.mark.parametrize(
    "read", [pytest.param(gos("kafka-go"), id="kafka-go"), pytest.param(nodes("platformatic"), id="platformatic")]
)
def test_a_client_delivers_aborted_records_although_it_is_set_to_read_committed_ones(
    filled: tuple[str, str], folder: Path, read: Callable[..., str]
) -> None:
    """Once it no longer does, the page can recommend it."""
    found = kinds(read(*filled, folder))
    assert found["commit"] == COMMITTED, found
    assert found["abort"] > 0, found
    print(found)  # what is in the table besides: markers as messages


COMMITTED_ALONE = {"commit": COMMITTED}
EVERYTHING = {"commit": COMMITTED, "abort": RECORDS * ENDS.count("abort"), "open": RECORDS}


def delivered(log: Path, expected: Mapping[str, int], bootstrap: str, topic: str, group: str) -> Counter[str]:
    """What a running program delivers, once that is what is expected or it has read beyond: as far as the group's
    offset, to where the last record is that it may see.
    """
    level: IsolationLevel = "read_committed" if expected == COMMITTED_ALONE else "read_uncommitted"
    *_, last = read_topic(bootstrap, topic, level)
    offset = last.offset() or 0
    until(lambda: group_offsets(bootstrap, group, topic).get(0, 0) > offset, seconds=180)
    return kinds(log.read_text())


@pytest.mark.parametrize(
    ("of_worker", "of_connector", "expected"),
    [
        pytest.param({"consumer.isolation.level": "read_committed"}, {}, COMMITTED_ALONE, id="worker"),
        pytest.param({}, {"consumer.override.isolation.level": "read_committed"}, COMMITTED_ALONE, id="connector"),
        pytest.param({}, {}, EVERYTHING, id="default"),
    ],
)
def test_a_sink_connector_delivers_committed_records_only_once_its_consumer_is_set_to_read_them(
    filled: tuple[str, str],
    tmp_path: Path,
    of_worker: dict[str, str],
    of_connector: dict[str, str],
    expected: Mapping[str, int],
) -> None:
    bootstrap, topic = filled
    (port,) = free_ports(1)
    name, copy = f"copy-{port}", tmp_path / "copy"
    copy.touch()
    worker = properties(
        tmp_path / "worker.properties",
        {
            "bootstrap.servers": bootstrap,
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "offset.storage.file.filename": tmp_path / "offsets",
            "offset.flush.interval.ms": 1_000,
            "listeners": f"http://127.0.0.1:{port}",
        },
        of_worker,
    )
    connector = properties(
        tmp_path / "connector.properties",
        {
            "name": name,
            "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
            "topics": topic,
            "file": copy,
        },
        of_connector,
    )
    with running(of_kafka(), CONNECT, worker, connector, log=tmp_path / "connect.log"):
        assert delivered(copy, expected, bootstrap, topic, f"connect-{name}") == expected


@pytest.mark.parametrize(
    ("guarantee", "expected"), [("exactly_once_v2", COMMITTED_ALONE), ("at_least_once", EVERYTHING)]
)
def test_kafka_streams_delivers_committed_records_only_with_its_own_exactly_once(
    filled: tuple[str, str], tmp_path: Path, guarantee: str, expected: Mapping[str, int]
) -> None:
    bootstrap, topic = filled
    group, log = f"streams-{guarantee}", tmp_path / "streams.log"
    arguments = [bootstrap, topic, group, guarantee, str(tmp_path / "state")]
    with running(of_kafka(), SOURCES / "Streams.java", *arguments, log=log):
        assert delivered(log, expected, bootstrap, topic, group) >= Counter(expected)
    found = kinds(log.read_text())
    assert {kind: found[kind] for kind in EVERYTHING if found[kind]} == expected  # the rest is what Streams logs


@pytest.mark.parametrize(("level", "expected"), [("read_committed", COMMITTED_ALONE), ("read_uncommitted", EVERYTHING)])
def test_flink_delivers_committed_records_only_once_its_source_is_set_to_read_them(
    filled: tuple[str, str], tmp_path: Path, level: str, expected: Mapping[str, int]
) -> None:
    bootstrap, topic = filled
    group, log = f"flink-{level}", tmp_path / "flink.log"
    with running(of_flink(), SOURCES / "Flink.java", bootstrap, topic, group, level, log=log):
        delivered(log, expected, bootstrap, topic, group)
    found = kinds(log.read_text())
    assert {kind: found[kind] for kind in EVERYTHING if found[kind]} == expected  # the rest is what Flink logs


@pytest.mark.parametrize(
    ("source", "setting", "expected"),
    [
        ("A", ["A.consumer.isolation.level"], COMMITTED_ALONE),
        ("C", ["C->B.consumer.isolation.level"], COMMITTED_ALONE),
        ("D", ["isolation.level"], EVERYTHING),
        ("E", [], EVERYTHING),
    ],
)
def test_mirror_maker_copies_committed_records_only_once_the_source_clusters_consumer_is_set_to_read_them(
    filled: tuple[str, str],
    elsewhere: EmbeddedKafka,
    tmp_path: Path,
    source: str,
    setting: list[str],
    expected: Mapping[str, int],
) -> None:
    """The source cluster's alias is in the copy's name: each has its own."""
    bootstrap, topic = filled
    copy = f"{source}.{topic}"
    internal = ("config.storage", "offset.storage", "status.storage", "checkpoints.topic", "heartbeats.topic")
    file = properties(
        tmp_path / "mm2.properties",
        {
            "clusters": f"{source}, B",
            f"{source}.bootstrap.servers": bootstrap,
            "B.bootstrap.servers": elsewhere.bootstrap,
            f"{source}->B.enabled": "true",
            f"{source}->B.topics": topic,
            "replication.factor": 1,
            "offset-syncs.topic.replication.factor": 1,
        },
        {f"{name}.replication.factor": 1 for name in internal},
        dict.fromkeys(setting, "read_committed"),
    )

    def copied() -> Counter[str]:
        messages = read_topic(elsewhere.bootstrap, copy, "read_uncommitted")
        return kinds("\n".join((message.value() or b"").decode() for message in messages))

    with running(of_kafka(), MIRROR_MAKER, file, log=tmp_path / "mirror-maker.log"):
        until(lambda: copy in elsewhere.topics() and copied() >= Counter(expected), seconds=180)
    assert copied() == expected


def test_a_share_group_delivers_committed_records_only_once_its_isolation_level_is_set(
    filled: tuple[str, str],
) -> None:
    bootstrap, topic = filled

    def read(group: str, *settings: str) -> Counter[str]:
        where = ["--bootstrap-server", bootstrap]
        configured = ",".join(["share.auto.offset.reset=earliest", *settings])
        entity = ["--entity-type", "groups", "--entity-name", group]
        admin_tool("ConfigCommand", *where, *entity, "--alter", "--add-config", configured)
        options = ["--topic", topic, "--group", group, "--timeout-ms", "15000"]
        return kinds(tool("consumer.ConsoleShareConsumer", *where, *options))

    refused = subprocess.run(
        command(
            "consumer.ConsoleShareConsumer",
            *("--bootstrap-server", bootstrap, "--topic", topic, "--timeout-ms", "5000"),
            *("--command-property", "isolation.level=read_committed"),
        ),
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert "ConfigException" in refused.stderr and "isolation.level" in refused.stderr, refused
    assert read("share-default") == {
        "commit": COMMITTED,
        "abort": RECORDS * ENDS.count("abort"),
        "open": RECORDS,
    }
    assert read("share-committed", "share.isolation.level=read_committed") == {"commit": COMMITTED}
