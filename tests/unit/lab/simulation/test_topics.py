"""The model's topics: how they come into being, and who leads them."""

from __future__ import annotations

import pytest
from kafka.protocol.admin import CreateTopicsRequest

from lab.simulation.chance import Seeded
from lab.simulation.topics import Topics
from spark_kafka_eos.kafka.partitions import TopicPartition
from tests.transacting import ModelSide

OUT = TopicPartition("out", 0)
Topic = CreateTopicsRequest.CreatableTopic


def create(side, name="ledger", partitions=3, replicas=1, *, validate_only=False):
    topic = Topic(name=name, num_partitions=partitions, replication_factor=replicas, assignments=[], configs=[])
    request = CreateTopicsRequest(topics=[topic], timeout_ms=1_000, validate_only=validate_only)
    (answer,) = side.kafka.handle(1, "CreateTopics", 7, request).topics
    return answer


@pytest.fixture
def side():
    return ModelSide(2)


def test_a_topic_that_is_created_is_there_with_an_id_of_its_own(side):
    answer = create(side)
    assert (answer.error_code, answer.num_partitions, answer.replication_factor) == (0, 3, 1)
    found = side.cluster.topic("ledger")
    assert (found.id, len(found.partitions)) == (answer.topic_id, 3)
    assert found.id != side.cluster.topic("out").id
    assert sorted(side.cluster.topic_names()) == ["ledger", "out"]
    side.topic = "ledger"
    _, *held = side.init("id")
    assert side.produce("id", held, 2, 0, [b"a"]) == (0, 0)


def test_what_is_there_is_not_created_again(side):
    before = side.cluster.topic("out")
    assert create(side, "out").error_code == 36
    assert create(side).error_code == 0
    assert create(side).error_code == 36
    side.cluster.refresh(["out"])
    assert side.cluster.topic("out") == before


@pytest.mark.parametrize(("partitions", "replicas", "code"), [(0, 1, 37), (1, 3, 38), (1, 0, 38), (-1, -1, 0)], ids=str)
def test_a_topic_has_partitions_and_no_more_replicas_than_there_are_brokers(side, partitions, replicas, code):
    assert create(side, partitions=partitions, replicas=replicas).error_code == code


def test_what_is_only_validated_is_not_created(side):
    assert create(side, validate_only=True).error_code == 0
    assert side.cluster.topic_names() == ["out"]


def test_a_leader_that_was_replaced_is_known_by_its_epoch():
    topics = Topics(2, {"out": 1})
    assert topics.refusal(0, OUT) == topics.refusal(0, OUT, 0) == 0
    assert topics.refusal(1, OUT) == 6
    assert topics.refusal(0, OUT, 1) == 75
    seeds = (Seeded(seed) for seed in range(100))
    while topics.leader[OUT] == 0:
        topics.move(next(seeds))
    assert topics.leader_epoch[OUT] == 1
    assert topics.refusal(1, OUT, 0) == 74
    assert topics.refusal(1, OUT, 1) == 0
    assert topics.refusal(0, TopicPartition("out", 1)) == 3
