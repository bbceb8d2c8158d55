"""The stage of the fault matrix: the sink's broker behind a proxy, the source beside it or on a cluster of its own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_kafka_eos.testing.embedded import EmbeddedKafka
from spark_kafka_eos.testing.ports import free_ports
from spark_kafka_eos.testing.proxy import Proxy
from tests.faults.driver import PARTITIONS, RECORDS
from tests.faults.scene import STEP, Scene
from tests.faults.states import OPEN, UNHEARD, UNNOTED
from tests.producing import produce

numbers = itertools.count(1)

# TV1 has one state of each kind in every run, and the one that only its requests lead to. What a new query finds is the
# ledger's to say, of each protocol the same (tests/unit/ledger/test_verdicts.py).
OF_LEDGER = {"checkpoint lost", "checkpoint older"}
OF_TV1 = {"3 partitions added", OPEN, UNHEARD, UNNOTED}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        cell = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        if cell.get("behind_proxy") != "tv1_version" or "fault" not in cell:
            continue
        if cell["state"] not in OF_TV1 or (cell["fault"] in OF_LEDGER and cell["state"] == "3 partitions added"):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="module", params=["kafka_version", "tv1_version"], ids=["TV2", "TV1"])
def behind_proxy(request: pytest.FixtureRequest) -> Iterator[tuple[EmbeddedKafka, Proxy]]:
    """A broker that is reached through a proxy alone, even by itself."""
    direct, advertised = free_ports(2)
    config = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{advertised}"}
    with Proxy() as proxy:
        proxy.relay(1, advertised, to=direct)
        with EmbeddedKafka(request.getfixturevalue(request.param), port=direct, config=config) as kafka:
            fill(kafka, "source", "here")
            kafka.create_topic("source-of-trouble")
            yield kafka, proxy


@pytest.fixture(scope="module")
def origin() -> EmbeddedKafka | None:
    """The source's cluster, where a file has it on another one."""
    return None


@pytest.fixture
def scene(behind_proxy: tuple[EmbeddedKafka, Proxy], origin: EmbeddedKafka | None, tmp_path: Path) -> Iterator[Scene]:
    """A new query whose batch 0 is committed."""
    kafka, proxy = behind_proxy
    target = kafka.create_topic(f"target-{next(numbers)}", PARTITIONS)
    scene = Scene(kafka=kafka, proxy=proxy, source="source", target=target, folder=tmp_path, origin=origin)
    scene.run("first", end=STEP)
    scene.await_stable()
    yield scene
    scene.close()


def fill(kafka: EmbeddedKafka, topic: str, where: str) -> None:
    """A source of `RECORDS` in each partition."""
    kafka.create_topic(topic, PARTITIONS)
    for partition in range(PARTITIONS):
        values = [f"{where}-{partition}-{n}".encode() for n in range(RECORDS)]
        produce(kafka.bootstrap, topic, values, partition=partition)
