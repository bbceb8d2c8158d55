"""The simulation's model of Kafka answers what real brokers answer, step by step, in both protocols.

Random short histories of requests, each under a transactional.id of its own: every answer, the coordinator's state and
epoch, the ends of the partitions and the group's offset must be equal.
"""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from lab.simulation.conditions import USUAL, Conditions
from spark_kafka_eos.kafka.producing.sequences import next_sequence
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from tests.conftest import KAFKA_39
from tests.transacting import NOBODY, ModelSide, RealSide

pytestmark = pytest.mark.broker

numbers = itertools.count(1)
SEEDS = 6
HISTORIES = 6  # of each seed
STEPS = 14
KAFKA_3 = Conditions(classic_groups=True)
NOT_VERIFYING = Conditions(classic_groups=True, verification=False)
CLUSTERS = {"TV2": ("kafka", USUAL), "TV1": ("kafka39", KAFKA_3), "TV1 without verification": (None, NOT_VERIFYING)}


@pytest.fixture(scope="module", params=CLUSTERS)
def compared(request):
    """A broker, and what the model must be told to be like it."""
    fixture, conditions = CLUSTERS[request.param]
    if fixture is not None:
        yield request.getfixturevalue(fixture), conditions
        return
    with EmbeddedKafka(KAFKA_39, config={"transaction.partition.verification.enable": "false"}) as kafka:
        yield kafka, conditions


@pytest.fixture
def either_kafka(compared):
    return compared[0]


def history(chance, name, group, version):
    """Random steps that mean something: mostly the identity at hand, now and then an older one.

    Yields each step's name, what it does on a side, and the list to which the identities it gave are to be added.
    """
    identities = [NOBODY]
    sequences: dict[Any, int] = {}  # of an identity, per partition, what comes next

    def held():
        return identities[-1] if chance.random() < 0.75 else chance.choice(identities[1:])

    def produce(at, partition):
        records = chance.randrange(1, 3)
        following = sequences.get((at, partition), 0)
        sequence = chance.choice([following, following, following, following, 0, following + 1])
        sequences[at, partition] = next_sequence(sequence, records)
        values = [f"{name}:{chance.randrange(10**9)}".encode() for _ in range(records)]
        return lambda side: side.produce(name, at, partition, sequence, values)

    def steps(kind):
        at, partition = held(), chance.randrange(2)
        joined = version < 2 and chance.random() < 0.8  # in TV1 a client says first what will be part of it
        match kind:
            case "init":
                at = chance.choice([NOBODY, at, identities[1]])
                yield kind, lambda side: side.init(name, at)
            case "end":
                commit = chance.random() < 0.6
                yield kind, lambda side: side.end(name, at, commit)
            case "offset":
                offset = chance.randrange(100)
                if joined:
                    yield "join", lambda side: side.join(name, at, group)
                yield kind, lambda side: side.offset(name, at, group, offset)
            case _:
                if joined:
                    yield "add", lambda side: side.add(name, at, partition)
                yield kind, produce(at, partition)

    yield "init", lambda side: side.init(name), identities
    for _ in range(STEPS):
        kind = chance.choice(("init", "offset", "offset", "offset", "end", "end", "end", *("produce",) * 7))
        yield from ((said, step, identities) for said, step in steps(kind))
    yield "last init", lambda side: side.init(name), identities


def compare(real, model, name, chance, seen):
    """One history on both sides, up to the first difference, which is returned with the steps that led to it."""
    told, group = [], f"group-{name}"
    for kind, step, identities in history(chance, name, group, real.version):
        found = step(model), model.state(name), model.fetch(group)
        expected = step(real), real.state(name), real.fetch_at_rest(group, found[-1])
        told.append(f"{kind}: {expected}")
        if found != expected:
            return "\n".join([*told, f"but the model: {found}"])
        answer = found[0]
        seen.add((kind, answer[0] if isinstance(answer, (tuple, list)) else answer))
        seen.add(("fetch", found[-1][0]))
        if kind in ("init", "end") and isinstance(answer, tuple) and len(answer) == 3:
            identities.append(answer[1:])
    return None


def test_the_model_answers_what_a_broker_answers(compared, cluster, consumed):
    kafka, conditions = compared
    seen: set[tuple[str, int]] = set()
    for seed in range(SEEDS):
        topic = kafka.create_topic(f"simulation-model-{next(numbers)}", 2)
        real = RealSide(cluster, topic)
        model = ModelSide(real.version, conditions, topic)
        assert model.version == real.version
        chance = random.Random(seed)
        for number in range(HISTORIES):
            different = compare(real, model, f"{topic}-{number}", chance, seen)
            assert different is None, different
        for partition, values in model.committed().items():
            assert values == consumed(topic, partition)
    refused = {("end", 48), ("end", 90), ("produce", 45), ("produce", 47), ("offset", 47), ("init", 90)}
    assert {("init", 0), ("end", 0), ("produce", 0), ("offset", 0), ("fetch", 0), ("fetch", 88)} | refused <= seen


def fencing(side, name, group):
    """The answers to a straggler before and after an empty transaction of the epoch that follows its own."""

    def step(answer):
        told.append((answer, side.state(name)))
        return answer

    def begun(*partitions):
        _, *held = step(side.init(name))
        step(side.add(name, held, *partitions))
        step(side.join(name, held, group))
        return held

    told: list[Any] = []
    old = begun(0)
    step(side.produce(name, old, 0, 0, [b"a"]))
    step(side.end(name, old, commit=False))
    step(side.produce(name, old, 0, 1, [b"late"]))
    step(side.produce(name, old, 1, 0, [b"late"]))
    step(side.offset(name, old, group, 7))
    fence = begun(0, 1)
    step(side.end(name, fence, commit=False))
    step(side.produce(name, old, 0, 2, [b"later"]))
    step(side.produce(name, old, 1, 1, [b"later"]))
    step(side.offset(name, old, group, 7))
    new = begun(0, 1)
    step(side.produce(name, new, 0, 0, [b"b"]))
    step(side.produce(name, new, 1, 0, [b"b"]))
    step(side.offset(name, new, group, 8))
    step(side.end(name, new, commit=True))
    return told


@pytest.mark.parametrize("compared", ["TV1", "TV1 without verification"], indirect=True)
def test_an_empty_transaction_of_the_new_epoch_fences_the_old_ones_stragglers_in_both(compared, cluster, consumed):
    kafka, conditions = compared
    topic = kafka.create_topic(f"simulation-model-{next(numbers)}", 2)
    real, model = RealSide(cluster, topic), ModelSide(1, conditions, topic)
    told = fencing(model, topic, f"group-{topic}")
    assert fencing(real, topic, f"group-{topic}") == told
    assert model.fetch(f"group-{topic}") == real.fetch_at_rest(f"group-{topic}", (0, 8)) == (0, 8)
    assert model.committed() == {0: [b"b"], 1: [b"b"]} == {n: consumed(topic, n) for n in (0, 1)}
