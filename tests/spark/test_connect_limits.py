"""A Spark Connect client that has no Spark of its own (pyspark-client), a server with the limits of serverless compute
(tests/serverless.py), and a server on another Python."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from kafka_eos_python import beside
from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from spark_kafka_eos.testing.ports import free_ports
from tests.connect_server import ConnectServer
from tests.pages import ROOT
from tests.producing import produce
from tests.reading import read_committed
from tests.serverless import Serverless
from tests.spark.test_standalone_cluster import another_python

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(900)]

JOB = Path(__file__).parent / "jobs" / "connect_limits.py"
CLIENT = "pyspark-client==4.2.0"  # the newest on PyPI in November 2026, when PySpark's was 4.3.0
TARGETS = ("paid", "sink", "foreach", "arrow", "batch", "table")
ORDERS, PAID = range(30), range(0, 30, 3)


def environment(python: str, name: str) -> Path:
    """An environment with PySpark's client and what this package depends on, made once; its Python."""
    folder = ROOT / "build" / f"{CLIENT.replace('==', '-')}{name}"
    found = folder / "bin" / "python"
    if not (folder / "ready").exists():
        subprocess.run([python, "-m", "venv", "--clear", folder], check=True)
        needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
        subprocess.run([found, "-m", "pip", "install", "--quiet", CLIENT, *needed], check=True)
        (folder / "ready").touch()
    return found


@pytest.fixture(scope="module")
def client_only() -> Path:
    """A Python like this one, without py4j and without a JVM's jars."""
    return environment(sys.executable, "")


@pytest.fixture(scope="module")
def topics(kafka: EmbeddedKafka) -> dict[str, str]:
    """Of the README's orders, and one for each query."""
    found = {name: kafka.create_topic(f"limits-{name}", 2) for name in ("orders", *TARGETS)}
    for number in ORDERS:
        paid = "false" if number % 3 else "true"
        produce(kafka.bootstrap, found["orders"], [b'{"paid": "%s"}' % paid.encode()], key=b"%d" % number)
    return found


@pytest.fixture(scope="module")
def found(
    kafka: EmbeddedKafka, topics: dict[str, str], client_only: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """What the job prints."""
    folder = tmp_path_factory.mktemp("limits")
    (port,) = free_ports(1)
    with Serverless(port) as limits:
        python = str(limits.python(folder, beside(sys.executable)))
        workers = {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python}
        with ConnectServer(folder / "server.log", env=workers, port=port) as server:
            arguments = [kafka.bootstrap, str(folder), *(topics[name] for name in ("orders", *TARGETS))]
            with server.client(JOB, arguments, log=folder / "client.log", python=client_only, url=limits.url) as client:
                client.wait(timeout=600)
        printed: dict[str, Any] = json.loads(
            next(line for line in (folder / "client.log").read_text().splitlines() if line.startswith("{"))
        )
        return printed


def numbers(kafka: EmbeddedKafka, topic: str) -> list[int]:
    return sorted(int(message.key() or b"") for message in read_committed(kafka.bootstrap, topic))


def test_the_client_has_neither_py4j_nor_a_spark_of_its_own(found: dict[str, Any]) -> None:
    assert found["classic"] is False


def test_the_client_reads_no_checkpoint_and_connects_to_no_broker(found: dict[str, Any]) -> None:
    assert found["reached"] == []


def test_the_readmes_example_writes_the_paid_orders_once(kafka, topics, found) -> None:
    assert found["readme"] is None
    assert numbers(kafka, topics["paid"]) == list(PAID)


@pytest.mark.parametrize("way", ["sink", "foreach", "batch"])
def test_each_way_to_write_writes_each_record_once(kafka, topics, found, way) -> None:
    assert found[way] is None
    assert numbers(kafka, topics[way]) == list(ORDERS)


def test_arrow_stream_whose_function_reads_kafka_fails_and_nothing_is_committed(kafka, topics, found) -> None:
    assert "no function reaches the network here" in found["arrow"]
    assert numbers(kafka, topics["arrow"]) == []


def test_a_batch_read_reads_each_record(found) -> None:
    assert found["read"] == len(ORDERS)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("trigger", "INFINITE_STREAMING_TRIGGER_NOT_SUPPORTED"),
        ("property", "CONFIG_NOT_AVAILABLE"),
        ("persist", "NOT_SUPPORTED_WITH_SERVERLESS"),
        ("context", "JVM_ATTRIBUTE_NOT_SUPPORTED"),
    ],
)
def test_the_server_has_the_limits(found, asked, told) -> None:
    assert told in found[asked]


def test_a_table_that_takes_part_says_what_it_needs_and_nothing_is_committed(kafka, topics, found) -> None:
    assert "'participant': a table can only take part if Spark persists the batch" in found["table"]
    assert "NOT_SUPPORTED_WITH_SERVERLESS" in found["table"]
    assert found["rows"] == 0
    assert numbers(kafka, topics["table"]) == []


COPY = JOB.with_name("connect_copy.py")


def copied(kafka, topics, folder: Path, python: str, way: str) -> tuple[str, list[int]]:
    """A copy of the orders by a server on that Python: what the client says, and what there is."""
    target = kafka.create_topic(f"limits-{way}-{folder.name}", 2)
    workers = {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python}
    arguments = [kafka.bootstrap, topics["orders"], target, str(folder / "checkpoint"), way, "100", target, "no"]
    with ConnectServer(folder / "server.log", env=workers) as server:
        with server.client(COPY, arguments, log=folder / "client.log") as client:
            try:
                client.wait(timeout=180)
            except ToolFailed as error:
                print(error)
        print((folder / "client.log").read_text())
    return (folder / "client.log").read_text(), numbers(kafka, target)


def test_a_server_on_another_python_copies_by_the_sink(kafka, topics, tmp_path) -> None:
    python = environment(another_python(), "-newer")
    said, there = copied(kafka, topics, tmp_path, str(python), "sink")
    assert said.endswith("ended\n")
    assert there == list(ORDERS)


@pytest.mark.parametrize("way", ["foreach", "arrow"])
def test_a_server_on_another_python_refuses_a_function_of_the_client(kafka, topics, tmp_path, way) -> None:
    said, there = copied(kafka, topics, tmp_path, str(environment(another_python(), "-newer")), way)
    assert "PYTHON_VERSION_MISMATCH" in said
    assert there == []


@pytest.mark.parametrize("way", ["sink", "foreach"])
def test_a_server_on_a_python_without_packages_says_what_it_lacks(kafka, topics, tmp_path, way) -> None:
    said, there = copied(kafka, topics, tmp_path, another_python(), way)
    assert "lacks" in said
    assert there == []
