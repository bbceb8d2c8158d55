"""A group's coordinator that was paused tells the offsets of before, until it hears that it is one no more."""

from __future__ import annotations

import itertools
import threading
import time

import pytest

from spark_kafka_eos.appending.report import CommitReport
from spark_kafka_eos.model import TopicPartition
from spark_kafka_eos.protocol.cluster import Cluster
from spark_kafka_eos.protocol.groups import GroupCoordinator
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from spark_kafka_eos.testing.proxy import Proxy
from spark_kafka_eos.verify.verification import verify
from tests.broker.conftest import options_of
from tests.copying import Copy
from tests.producing import produce
from tests.reading import await_stable

pytestmark = [pytest.mark.broker, pytest.mark.slow]

numbers = itertools.count(1)
SECONDS = 60


@pytest.fixture(params=["TV2", "TV1"])
def three(request, kafka_version, tv1_version):
    with EmbeddedKafka(tv1_version if request.param == "TV1" else kafka_version, brokers=3) as kafka:
        source = kafka.create_topic("source", 2)
        for partition in (0, 1):
            produce(kafka.bootstrap, source, [b"x"] * 30, partition=partition)
        yield kafka


def target_of_two_coordinators(kafka: EmbeddedKafka) -> tuple[str, int]:
    """A topic whose copy's transactions and ledger have different coordinators, and the ledger's."""
    with Cluster(options_of(kafka.bootstrap)) as cluster:
        for number in numbers:
            name = f"target-{number}"
            ledgers = cluster.coordinator("group", f"id-{name}.ledger")
            if cluster.coordinator("transaction", f"id-{name}") != ledgers:
                return kafka.create_topic(name, 2), ledgers
    raise AssertionError


def await_markers(cluster: Cluster, bootstrap: str, target: str) -> None:
    """What the broker does not know when it is paused, it does not tell afterwards; it says that it waits for it."""
    GroupCoordinator(cluster, f"id-{target}.ledger").fetch_offsets([TopicPartition(target, 0)])
    GroupCoordinator(cluster, f"id-{target}").fetch_offsets([TopicPartition("source", 0)])
    await_stable(bootstrap, target)


def await_successor(bootstrap: str, group: str, former: int) -> None:
    deadline = time.monotonic() + SECONDS
    while True:
        with Cluster(options_of(bootstrap)) as cluster:
            if cluster.coordinator("group", group) != former:
                return
        assert time.monotonic() < deadline, f"broker {former} stays the coordinator"
        time.sleep(0.1)


def test_a_batch_is_committed_once_though_the_ledgers_coordinator_does_not_know_of_it(three: EmbeddedKafka) -> None:
    target, paused = target_of_two_coordinators(three)
    others = three.bootstrap_of("PLAINTEXT", [node for node in three.nodes if node != paused])
    reports: list[CommitReport] = []
    with (
        Proxy(three.bootstrap) as proxy,
        Cluster(options_of(proxy.bootstrap)) as old,
        Cluster(options_of(others)) as new,
    ):
        Copy(proxy.bootstrap, old, "source", target).run(0, 0, 10)
        await_markers(old, proxy.bootstrap, target)
        three.pause(paused)
        await_successor(others, f"id-{target}.ledger", paused)
        assert Copy(others, new, "source", target).run(1, 10, 20).outcome == "committed"
        # A driver that takes over then, and still knows the old coordinator: its question is the first thing that the
        # broker finds when it goes on.
        asked = proxy.add("OffsetFetch:*:delay=0")
        takes_over = Copy(proxy.bootstrap, old, "source", target)
        thread = threading.Thread(target=lambda: reports.append(takes_over.run(1, 10, 20)))
        thread.start()
        asked.wait_seen()
        three.resume(paused)
        thread.join(SECONDS)
        [report] = reports
    assert report.outcome == "skipped"
    assert ["that coordinator was outdated" in why for why in report.redone] == [True]
    three.await_ready()
    found = verify(
        three.bootstrap, target, source="source", transactional_id=f"id-{target}", history=takes_over.history
    )
    assert found.holds, found
    assert found.records == 40
