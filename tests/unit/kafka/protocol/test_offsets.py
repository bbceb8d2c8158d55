"""ListOffsets against a scripted broker: requests, errors that are retried, errors that are raised."""

from __future__ import annotations

import pytest

from spark_kafka_eos.errors import AuthorizationFailed, BrokerError, BrokerUnreachable, UnknownTopic
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.offsets import at_times, earliest, latest

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.fixture
def listed(answers):
    """`listed({partition: offset}, error_code=0)`: an answer about the topic orders."""
    topic = answers.ListOffsets.ListOffsetsTopicResponse

    def answer(offsets, *, error_code=0):
        found = [
            topic.ListOffsetsPartitionResponse(partition_index=number, error_code=error_code, offset=offset)
            for number, offset in offsets.items()
        ]
        return answers.ListOffsets(topics=[topic(name="orders", partitions=found)])

    return answer


def test_nothing_is_asked_about_no_partitions(broker):
    assert latest(broker.cluster(), []) == {}
    assert broker.requests == []


def test_a_leader_is_asked_once_for_all_its_partitions(broker, listed):
    broker.script["ListOffsets"].append(listed({0: 5, 1: 7}))
    assert latest(broker.cluster(), [SECOND, FIRST]) == {FIRST: 5, SECOND: 7}
    [request] = broker.sent("ListOffsets")
    assert [p.partition_index for p in request.topics[0].partitions] == [0, 1]


def test_the_end_is_the_last_stable_offset_unless_uncommitted_records_are_wanted(broker):
    latest(broker.cluster(), [FIRST])
    latest(broker.cluster(), [FIRST], isolation_level="read_uncommitted")
    assert [request.isolation_level for request in broker.sent("ListOffsets")] == [1, 0]


def test_each_request_names_the_leader_epoch_known(broker):
    earliest(broker.cluster(), [FIRST])
    [request] = broker.sent("ListOffsets")
    assert request.topics[0].partitions[0].current_leader_epoch == 5


@pytest.mark.parametrize("bound", [earliest, latest])
def test_no_offset_and_no_error_is_not_taken_for_a_position(broker, listed, bound):
    broker.script["ListOffsets"].append(listed({0: 5, 1: -1}))
    with pytest.raises(BrokerUnreachable, match="neither an offset nor an error for orders-1"):
        bound(broker.cluster(), [FIRST, SECOND])


def test_a_time_after_the_last_record_has_no_offset(broker, listed):
    broker.script["ListOffsets"].append(listed({0: 5, 1: -1}))
    assert at_times(broker.cluster(), {FIRST: 1_000, SECOND: 2_000}) == {FIRST: 5, SECOND: None}
    [request] = broker.sent("ListOffsets")
    assert [p.timestamp for p in request.topics[0].partitions] == [1_000, 2_000]


# 74 FENCED_LEADER_EPOCH, 75 UNKNOWN_LEADER_EPOCH; 78 while a new leader's high watermark lags behind (KIP-207), when
# any offset would lie before one that was answered already.
@pytest.mark.parametrize(("code", "lookups"), [(5, 2), (6, 2), (74, 2), (75, 2), (78, 1)])
def test_a_moved_leader_is_looked_up_and_asked_again(broker, listed, code, lookups):
    broker.script["ListOffsets"] += [listed({0: -1}, error_code=code), listed({0: 5})]
    assert latest(broker.cluster(), [FIRST]) == {FIRST: 5}
    assert len(broker.sent("Metadata")) == lookups


def test_a_lost_connection_is_made_again(broker, listed, lost):
    broker.script["ListOffsets"] += [lost, listed({0: 5})]
    assert latest(broker.cluster(), [FIRST]) == {FIRST: 5}


def test_a_leader_epoch_that_stays_unknown_is_an_error_once_time_is_up(broker, listed):
    broker.script["ListOffsets"] += [listed({0: -1}, error_code=75)] * 1_000
    with pytest.raises(BrokerError, match=r"UNKNOWN_LEADER_EPOCH \(75\) for orders-0.*retried"):
        latest(broker.cluster(), [FIRST])


def test_a_missing_acl_names_the_partition(broker, listed):
    broker.script["ListOffsets"].append(listed({0: -1}, error_code=29))
    with pytest.raises(AuthorizationFailed, match="orders-0"):
        latest(broker.cluster(), [FIRST])


def test_a_deleted_topic_is_unknown_after_a_few_seconds(broker, listed):
    cluster = broker.cluster(delivery_timeout_ms=120_000)
    cluster.topic("orders")
    del broker.topics["orders"]
    broker.script["ListOffsets"].append(listed({0: -1}, error_code=3))
    with pytest.raises(UnknownTopic, match="'orders'"):
        latest(cluster, [FIRST])
    assert sum(broker.clock.slept) < 7
