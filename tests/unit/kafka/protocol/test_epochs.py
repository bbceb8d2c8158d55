"""OffsetForLeaderEpoch against a scripted broker."""

from __future__ import annotations

import pytest
from kafka.protocol.consumer.offsets import OffsetForLeaderEpochResponse

from spark_kafka_eos.errors import AuthorizationFailed, BrokerError, UnknownTopic
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.epochs import log_ends

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


def ends(offsets, *, error_code=0):
    topic = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
    found = [
        topic.EpochEndOffset(error_code=error_code, partition=number, leader_epoch=3, end_offset=offset)
        for number, offset in offsets.items()
    ]
    return OffsetForLeaderEpochResponse(topics=[topic(topic="orders", partitions=found)])


def test_a_leader_is_asked_once_for_all_its_partitions_and_what_it_does_not_know_is_left_out(broker):
    broker.script["OffsetForLeaderEpoch"].append(ends({0: 20, 1: -1}))
    assert log_ends(broker.cluster(), {FIRST: 3, SECOND: 4}) == {FIRST: 20}
    [request] = broker.sent("OffsetForLeaderEpoch")
    [topic] = request.topics
    assert topic.topic == "orders"
    asked = [(each.partition, each.leader_epoch, each.current_leader_epoch) for each in topic.partitions]
    assert asked == [(0, 3, 5), (1, 4, 5)]


@pytest.mark.parametrize("code", [6, 74, 75])
def test_a_broker_that_does_not_lead_any_more_is_asked_again(broker, code):
    broker.script["OffsetForLeaderEpoch"] += [ends({0: -1}, error_code=code), ends({0: 20})]
    assert log_ends(broker.cluster(), {FIRST: 3}) == {FIRST: 20}


@pytest.mark.parametrize(("code", "error"), [(29, AuthorizationFailed), (3, UnknownTopic)])
def test_what_a_broker_refuses_is_raised(broker, code, error):
    broker.script["OffsetForLeaderEpoch"] += [ends({0: -1}, error_code=code)] * 1_000
    with pytest.raises(error, match="orders"):
        log_ends(broker.cluster(), {FIRST: 3})


def test_brokers_that_do_not_offer_the_request_know_nothing(broker):
    lacking = BrokerError("ApiVersions", 35, "UNSUPPORTED_VERSION", "OffsetForLeaderEpoch: it does not support it")

    def raises(_request):
        raise lacking

    broker.script["OffsetForLeaderEpoch"].append(raises)
    assert log_ends(broker.cluster(), {FIRST: 3}) == {}
