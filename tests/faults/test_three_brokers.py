"""The fault matrix on three brokers: a leader or a coordinator is lost in each state, or too few replicas are left."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from lab.soak.brokers import await_in_sync
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.metadata import PartitionDescription
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from spark_kafka_eos.testing.proxy import Proxy
from tests.faults.driver import PARTITIONS, RECORDS
from tests.faults.scene import SECONDS, STEP, Outcome, Scene, client_of
from tests.faults.states import STATES, State, is_old, of_victim, reach, resume
from tests.producing import produce

pytestmark = [pytest.mark.broker, pytest.mark.slow]

numbers = itertools.count(1)

# Without the ones in which nothing of the batch is with the brokers, or, held, nothing of it can be.
ROWS = [name for name, state in STATES.items() if state.end != "prepared" and state.point not in ("begun@1", "begun@2")]


def leader(scene: Scene) -> int:
    return scene.cluster.leader(TopicPartition(scene.target, 0))


def coordinator(scene: Scene) -> int:
    return scene.cluster.coordinator("transaction", f"id-{scene.target}")


def killed(find: Callable[[Scene], int]) -> Callable[[Scene, State], None]:
    def play(scene: Scene, state: State) -> None:
        scene.kafka.kill(find(scene))
        resume(scene, state)
        scene.ended("victim")

    return play


def paused(find: Callable[[Scene], int]) -> Callable[[Scene, State], None]:
    def play(scene: Scene, state: State) -> None:
        node = find(scene)
        scene.kafka.pause(node)
        resume(scene, state)
        scene.ended("victim")
        scene.kafka.resume(node)
        await_heard(scene, node)

    return play


def await_heard(scene: Scene, node: int) -> None:
    """Return when a broker that was paused knows who leads now: until then it answers with its log of before."""
    others = [other for other in scene.kafka.nodes if other != node]
    deadline = time.monotonic() + SECONDS
    while leaders(scene, [node]) != leaders(scene, others):
        assert time.monotonic() < deadline, f"broker {node} does not hear who leads"


def leaders(scene: Scene, told_by: list[int]) -> Mapping[int, PartitionDescription]:
    """The target's leaders and their epochs, as one of these brokers knows them."""
    bootstrap = scene.kafka.bootstrap_of("PLAINTEXT", told_by)
    with Cluster(client_of(bootstrap)) as cluster:
        return cluster.topic(scene.target).partitions


def replicas_lost(scene: Scene, state: State) -> None:
    """The target wants all three replicas, one is gone for a while: nothing can be appended, nor a marker."""
    node = next(node for node in scene.kafka.nodes if node not in (leader(scene), coordinator(scene)))
    scene.kafka.kill(node)
    resume(scene, state)
    scene.kafka.start(node)
    scene.ended("victim")


FAULTS: dict[str, Callable[[Scene, State], None]] = {
    "leader killed": killed(leader),
    "coordinator killed": killed(coordinator),
    "leader paused": paused(leader),
    "coordinator paused": paused(coordinator),
    "too few replicas": replicas_lost,
}


@pytest.fixture(scope="module")
def three(kafka_version: str) -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(kafka_version, brokers=3) as kafka:
        source = kafka.create_topic("source", PARTITIONS)
        for partition in range(PARTITIONS):
            produce(kafka.bootstrap, source, [b"%d" % n for n in range(RECORDS)], partition=partition)
        yield kafka


@pytest.fixture
def scene(three: EmbeddedKafka, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Scene]:
    """A new query whose batch 0 is committed; afterwards all brokers run and are in sync again."""
    replicas = 3 if request.node.callspec.params["fault"] == "too few replicas" else 2
    target = three.create_topic(f"target-{next(numbers)}", PARTITIONS, {"min.insync.replicas": replicas})
    patience: dict[str, object] = {
        "kafka.request.timeout.ms": 5_000,
        "kafka.socket.connection.setup.timeout.ms": 2_000,
    }
    with Proxy(three.bootstrap) as proxy:
        scene = Scene(kafka=three, proxy=proxy, source="source", target=target, folder=tmp_path, options=patience)
        scene.run("first", end=STEP)
        scene.await_stable()
        yield scene
        scene.close()
    three.resume()
    three.start()
    await_in_sync(three.bootstrap)


@pytest.mark.parametrize("state", ROWS)
@pytest.mark.parametrize("fault", FAULTS)
def test_the_driver_rides_through(scene, cell, state, fault):
    protocol = "TV1" if is_old(scene) else "TV2"
    cell(f"Fault matrix, three brokers, {protocol}", state, fault, Outcome.RIDES_THROUGH)
    reach(scene, STATES[state])
    FAULTS[fault](scene, STATES[state])
    scene.check(aborted=0)
    assert of_victim(scene, STATES[state]) is Outcome.RIDES_THROUGH
