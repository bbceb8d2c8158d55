"""The ledger topic is created once, whoever comes first."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from spark_kafka_eos.errors import AuthorizationFailed, BrokerError, KafkaEosError
from spark_kafka_eos.ledger.create import SETTINGS, create_ledger, refusal
from tests.model_kafka import CLIENT, KafkaModel

TOPIC_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED, INVALID_REPLICATION_FACTOR, POLICY_VIOLATION = 29, 31, 38, 44


def answering(kafka: KafkaModel, code: int, message: str | None) -> None:
    """The controller creates nothing."""
    topic = SimpleNamespace(name="ledger", error_code=code, error_message=message)
    kafka.meets["CreateTopics"] = lambda _request, _answer: SimpleNamespace(topics=[topic])


@pytest.mark.parametrize(("nodes", "replicas", "in_sync"), [(1, 1, "1"), (2, 2, "1"), (3, 3, "2"), (5, 3, "2")])
def test_it_is_compacted_and_has_three_replicas_if_there_are_three_brokers(nodes, replicas, in_sync):
    kafka = KafkaModel(nodes=nodes)
    create_ledger(kafka.cluster(), "ledger")
    (request,) = kafka.sent("CreateTopics")
    (topic,) = request.topics
    assert (topic.name, topic.num_partitions, topic.replication_factor) == ("ledger", 1, replicas)
    assert {each.name: each.value for each in topic.configs} == {**SETTINGS, "min.insync.replicas": in_sync}
    assert not request.validate_only
    assert request.timeout_ms < CLIENT.request_timeout_ms, "the controller answers before the client gives up"


def test_it_does_not_matter_if_another_query_has_created_it_meanwhile():
    kafka = KafkaModel()
    for _ in range(2):
        create_ledger(kafka.cluster(), "ledger")
    assert len(kafka.sent("CreateTopics")) == 2


def test_why_it_cannot_be_created_is_said_in_the_brokers_words():
    kafka = KafkaModel()
    answering(kafka, INVALID_REPLICATION_FACTOR, "too few brokers")
    with pytest.raises(BrokerError, match=r"INVALID_REPLICATION_FACTOR.*\(too few brokers\)"):
        create_ledger(kafka.cluster(), "ledger")
    answering(kafka, INVALID_REPLICATION_FACTOR, None)
    with pytest.raises(BrokerError) as refused:
        create_ledger(kafka.cluster(), "ledger")
    assert "None" not in str(refused.value)


def test_who_may_not_create_it_is_told_the_command():
    kafka = KafkaModel(nodes=3)
    answering(kafka, TOPIC_AUTHORIZATION_FAILED, None)
    with pytest.raises(AuthorizationFailed) as refused:
        create_ledger(kafka.cluster(), "ledger")
    assert "kafka-topics.sh --create --topic ledger --partitions 1 --replication-factor 3" in refused.value.action
    assert "--config cleanup.policy=compact" in refused.value.action
    assert "--config min.insync.replicas=2" in refused.value.action


def test_whether_it_can_be_created_is_asked_without_creating_it():
    kafka = KafkaModel(nodes=3)
    assert refusal(kafka.cluster(), "ledger") is None
    (asked,) = kafka.sent("CreateTopics")
    create_ledger(kafka.cluster(), "ledger")
    _, created = kafka.sent("CreateTopics")
    assert (asked.validate_only, created.validate_only) == (True, False)
    assert asked.topics == created.topics


@pytest.mark.parametrize("code", [TOPIC_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED, POLICY_VIOLATION])
def test_what_would_refuse_it_is_known_before(code):
    kafka = KafkaModel()
    answering(kafka, code, "no")
    with pytest.raises(KafkaEosError) as raised:
        create_ledger(kafka.cluster(), "ledger")
    refused = refusal(kafka.cluster(), "ledger")
    assert str(refused) == str(raised.value)
