"""How far a reader is behind, in a cluster that is ill."""

from __future__ import annotations

import pytest

from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.tools.operators.unread import log_ranges
from tests.model_kafka import CLIENT, KafkaModel, refused

TOPICS = [f"t{number}" for number in range(20)]
PARTITIONS = [TopicPartition(topic, number) for topic in TOPICS for number in (0, 1)]
KAFKA_STORAGE_ERROR, TOPIC_NOT_ALLOWED = 56, 29


class HalfSilent(KafkaModel):
    """Broker 1 is there for everybody but us: it answers no question about its logs."""

    waited = 0

    def handle(self, node, api, version, request):
        if (node, api) == (1, "ListOffsets"):
            self.waited += 1
            return None
        return super().handle(node, api, version, request)


def test_a_leader_that_is_silent_is_waited_for_once_and_hides_nothing_of_the_others():
    kafka = HalfSilent(topics=dict.fromkeys(TOPICS, 2))
    ranges, unknown = log_ranges(kafka.cluster(CLIENT.answering_within(1_000)), PARTITIONS)
    assert set(ranges) == {tp for tp in PARTITIONS if kafka.topics.leader[tp] != 1} != set()
    assert unknown.keys() == {tp for tp in PARTITIONS if kafka.topics.leader[tp] == 1}
    assert kafka.waited == 1, "not for each of 20 topics"


@pytest.mark.parametrize("code", [TOPIC_NOT_ALLOWED, KAFKA_STORAGE_ERROR], ids=["not described", "a failed disk"])
def test_a_topic_that_its_leader_refuses_hides_nothing_of_the_others(code):
    kafka = KafkaModel(topics=dict.fromkeys(TOPICS, 2))

    def refuses(request, answer):
        names = {topic.name for topic in request.topics}
        return refused(code)(request, answer) if "t3" in names else answer()

    kafka.meets["ListOffsets"] = refuses
    ranges, unknown = log_ranges(kafka.cluster(CLIENT.answering_within(1_000)), PARTITIONS)
    assert unknown.keys() == {TopicPartition("t3", 0), TopicPartition("t3", 1)}
    assert ranges.keys() == set(PARTITIONS) - unknown.keys()
