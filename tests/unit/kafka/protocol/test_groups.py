"""A consumer group's offsets against a scripted broker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from spark_kafka_eos.errors import BrokerError, BrokerUnreachable, ProducerFenced, UnknownTopic
from spark_kafka_eos.kafka.partitions import OffsetAndMetadata, TopicPartition
from spark_kafka_eos.kafka.producer import ProducerIdentity
from spark_kafka_eos.kafka.protocol import groups
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.groups import GroupCoordinator, group_ids, stored_in

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)
IDENTITY = ProducerIdentity(transactional_id="orders", producer_id=9, epoch=4)


def offsets_of(answers, *partitions, error_code=0):
    topic = answers.OffsetFetch.OffsetFetchResponseTopic
    return answers.OffsetFetch(
        error_code=error_code,
        topics=[topic(name="orders", partitions=[topic.OffsetFetchResponsePartition(**p) for p in partitions])],
    )


def committed(answers, response, *codes):
    topic = getattr(response, f"{response.__name__}Topic")
    partition = getattr(topic, f"{response.__name__}Partition")
    partitions = [partition(partition_index=number, error_code=code) for number, code in enumerate(codes)]
    return response(topics=[topic(name="orders", partitions=partitions)])


def test_a_partition_without_an_offset_is_none(broker, answers):
    broker.script["OffsetFetch"].append(
        offsets_of(
            answers,
            {"partition_index": 0, "committed_offset": 17, "metadata": "m", "error_code": 0},
            {"partition_index": 1, "committed_offset": -1, "metadata": None, "error_code": 0},
        )
    )
    found = GroupCoordinator(broker.cluster(), "g").fetch_offsets([FIRST, SECOND])
    assert found == {FIRST: OffsetAndMetadata(offset=17, metadata="m"), SECOND: None}
    (request,) = broker.sent("OffsetFetch")
    assert request.require_stable is True


def test_an_offset_about_to_be_committed_is_waited_for_and_never_taken_for_none(broker, answers):
    unstable = {"partition_index": 0, "committed_offset": -1, "metadata": None, "error_code": 88}
    stable = {"partition_index": 0, "committed_offset": 18, "metadata": "", "error_code": 0}
    broker.script["OffsetFetch"] += [offsets_of(answers, unstable), offsets_of(answers, unstable)]
    broker.script["OffsetFetch"].append(offsets_of(answers, stable))
    found = GroupCoordinator(broker.cluster(), "g").fetch_offsets([FIRST])
    assert found == {FIRST: OffsetAndMetadata(offset=18)}


def test_an_offset_that_stays_unstable_is_an_error_that_names_the_partition(broker, answers):
    unstable = {"partition_index": 0, "committed_offset": -1, "metadata": None, "error_code": 88}
    broker.script["OffsetFetch"] += [offsets_of(answers, unstable)] * 100
    with pytest.raises(BrokerError, match="UNSTABLE_OFFSET_COMMIT.*orders-0, group 'g'"):
        GroupCoordinator(broker.cluster(), "g").fetch_offsets([FIRST])


def test_the_coordinator_is_found_again_when_it_moved(broker, answers):
    found = {"partition_index": 0, "committed_offset": 18, "metadata": "", "error_code": 0}
    broker.script["OffsetFetch"] += [offsets_of(answers, error_code=16), offsets_of(answers, found)]
    GroupCoordinator(broker.cluster(), "g").fetch_offsets([FIRST])
    assert len(broker.sent("FindCoordinator")) == 2
    assert {request.key_type for request in broker.sent("FindCoordinator")} == {0}


@pytest.mark.parametrize(("transaction_version", "version"), [(2, 5), (1, 4), (0, 4)])
def test_each_transaction_version_has_its_own_offset_commit(broker, answers, transaction_version, version):
    broker.script["TxnOffsetCommit"].append(committed(answers, answers.TxnOffsetCommit, 0))
    GroupCoordinator(broker.cluster(), "g").commit_in_transaction(
        IDENTITY, {FIRST: OffsetAndMetadata(offset=3, metadata="{}")}, transaction_version=transaction_version
    )
    assert broker.versions("TxnOffsetCommit") == [version]
    (request,) = broker.sent("TxnOffsetCommit")
    partition = request.topics[0].partitions[0]
    assert (partition.partition_index, partition.committed_offset, partition.committed_metadata) == (0, 3, "{}")
    assert (request.producer_id, request.producer_epoch, request.transactional_id) == (9, 4, "orders")
    assert [(found.key, found.key_type) for found in broker.sent("FindCoordinator")] == [("g", 0)]


def test_a_fatal_error_of_one_partition_outweighs_a_passing_one_of_another(broker, answers):
    broker.script["TxnOffsetCommit"].append(committed(answers, answers.TxnOffsetCommit, 14, 90))
    offsets = {tp: OffsetAndMetadata(offset=3) for tp in (FIRST, SECOND)}
    with pytest.raises(ProducerFenced, match="orders-1, group 'g'"):
        GroupCoordinator(broker.cluster(), "g").commit_in_transaction(IDENTITY, offsets, transaction_version=2)


def test_a_timeout_of_an_offset_commit_finds_the_coordinator_again(broker, answers):
    broker.script["TxnOffsetCommit"] += [committed(answers, answers.TxnOffsetCommit, code) for code in (7, 0)]
    offsets = {FIRST: OffsetAndMetadata(offset=3)}
    GroupCoordinator(broker.cluster(), "g").commit_in_transaction(IDENTITY, offsets, transaction_version=2)
    assert len(broker.sent("FindCoordinator")) == 2


def test_a_group_with_members_is_refused(broker, answers):
    broker.script["OffsetCommit"].append(committed(answers, answers.OffsetCommit, 25))
    with pytest.raises(BrokerError, match="Another client is a member"):
        GroupCoordinator(broker.cluster(), "g").commit_offsets({FIRST: OffsetAndMetadata(offset=3)})


def test_silence_about_a_partition_is_not_taken_for_no_offset(broker, answers):
    other = {"partition_index": 1, "committed_offset": 3, "metadata": "", "error_code": 0}
    found = {"partition_index": 0, "committed_offset": 18, "metadata": "", "error_code": 0}
    broker.script["OffsetFetch"] += [offsets_of(answers), offsets_of(answers, other), offsets_of(answers, found)]
    assert GroupCoordinator(broker.cluster(), "g").fetch_offsets([FIRST]) == {FIRST: OffsetAndMetadata(offset=18)}
    assert len(broker.sent("OffsetFetch")) == 3


def test_silence_about_an_offset_is_not_taken_for_its_commit(broker, answers):
    broker.script["TxnOffsetCommit"] += [committed(answers, answers.TxnOffsetCommit)] * 100
    with pytest.raises(BrokerUnreachable, match="TxnOffsetCommit does not contain orders-0"):
        GroupCoordinator(broker.cluster(), "g").commit_in_transaction(
            IDENTITY, {FIRST: OffsetAndMetadata(offset=3)}, transaction_version=2
        )


def test_offsets_of_a_topic_that_is_gone_are_given_up_within_seconds(broker, answers):
    gone = committed(answers, answers.TxnOffsetCommit, 3)
    broker.script["TxnOffsetCommit"] += [gone] * 1_000
    cluster = broker.cluster(delivery_timeout_ms=120_000)
    cluster.topic("orders")
    start = broker.clock.now
    with pytest.raises(UnknownTopic, match="UNKNOWN_TOPIC_OR_PARTITION.*orders-0, group 'g'"):
        GroupCoordinator(cluster, "g").commit_in_transaction(
            IDENTITY, {FIRST: OffsetAndMetadata(offset=3)}, transaction_version=2
        )
    assert 4 < broker.clock.now - start < 10, "a topic that was just created may not be known everywhere"


@pytest.mark.parametrize(
    ("group_id", "partition"),
    # Java's "…".hashCode(): 3355, 0, -2147483648 and 955242171
    [("id", 5), ("", 0), ("polygenelubricants", 0), ("copy-😀", 21)],
)
def test_a_group_is_stored_by_javas_hash_code(group_id, partition):
    assert stored_in(group_id, 50) == partition


def test_the_groups_of_the_brokers_that_answer_are_listed_and_the_others_are_named(monkeypatch):
    def listed(_cluster, node):
        if node == 2:
            raise BrokerUnreachable("broker 2 does not answer")
        return [f"group {node}", "of both"]

    monkeypatch.setattr(groups, "_group_ids", listed)
    monkeypatch.setattr(groups, "leaderless", lambda *_: {})
    cluster = cast("Cluster", SimpleNamespace(nodes=lambda: [1, 2, 3]))
    assert group_ids(cluster) == (["group 1", "group 3", "of both"], {2: "broker 2 does not answer"})


def test_a_broker_that_is_down_and_has_groups_that_no_other_one_has_is_named_too(broker, monkeypatch):
    monkeypatch.setattr(groups, "_group_ids", lambda *_: ["group"])
    broker.topics |= {"__consumer_offsets": 2}
    assert group_ids(broker.cluster()) == (["group"], {})
    broker.down["__consumer_offsets"] = 2
    reason = "without it, partition 0, 1 of __consumer_offsets has no leader"
    assert group_ids(broker.cluster()) == (["group"], {2: reason})
