"""What the cluster says of itself, from a scripted broker: what is missing, hidden or forbidden is an answer."""

from __future__ import annotations

import pytest
from kafka.protocol.admin import (
    DescribeConfigsResponse,
    DescribeGroupsResponse,
    DescribeTransactionsResponse,
    ListGroupsResponse,
)
from kafka.protocol.metadata import MetadataResponse

from spark_kafka_eos.errors import BrokerError
from spark_kafka_eos.kafka.protocol import describe
from spark_kafka_eos.kafka.protocol.facts import GroupFacts, TopicFacts, TopicLimits, TransactionFacts, Unavailable

SETTINGS = ["min.insync.replicas"]


def configured(name, code=0, **values):
    result = DescribeConfigsResponse.DescribeConfigsResult
    entry = result.DescribeConfigsResourceResult
    configs = [entry(name=key.replace("_", "."), value=value) for key, value in values.items()]
    return DescribeConfigsResponse(results=[result(error_code=code, resource_name=name, configs=configs)])


def described_topic(name, *, code=0, replicas=((1, 2, 3),), in_sync=((1, 2, 3),), operations=None):
    partition = MetadataResponse.MetadataResponseTopic.MetadataResponsePartition
    return MetadataResponse.MetadataResponseTopic(
        name=name,
        error_code=code,
        partitions=[
            partition(partition_index=number, leader_id=1, replica_nodes=list(nodes), isr_nodes=list(isr))
            for number, (nodes, isr) in enumerate(zip(replicas, in_sync, strict=True))
        ],
        authorized_operations=operations,
    )


def metadata(*topics):
    broker = MetadataResponse.MetadataResponseBroker(node_id=1, host="broker", port=9092)
    return MetadataResponse(brokers=[broker], topics=list(topics))


def state_of(code=0, **fields):
    state = DescribeTransactionsResponse.TransactionState(error_code=code, transactional_id="copy", **fields)
    return DescribeTransactionsResponse(transaction_states=[state])


def group_of(code=0, state="Empty", members=(), operations=None):
    described = DescribeGroupsResponse.DescribedGroup(
        error_code=code, group_id="g", group_state=state, members=list(members), authorized_operations=operations
    )
    return DescribeGroupsResponse(groups=[described])


# -- topics


def test_a_topic_is_as_safe_as_its_weakest_partition(broker):
    topic = described_topic("orders", replicas=[(1, 2, 3), (1, 2)], in_sync=[(1,), (1, 2)], operations={3, 4, 7})
    broker.script["Metadata"].append(metadata(topic))
    broker.script["DescribeConfigs"].append(configured("orders", min_insync_replicas="2"))
    brokers, found = describe.topics(broker.cluster(), ["orders"], SETTINGS)
    assert brokers == 1
    assert found == {
        "orders": TopicFacts(
            partitions=2,
            replicas=2,
            in_sync=1,
            operations=frozenset({"Read", "Write"}),
            settings={"min.insync.replicas": "2"},
        )
    }
    (asked,) = broker.sent("DescribeConfigs")
    assert [(r.resource_type, r.resource_name, r.configuration_keys) for r in asked.resources] == [
        (2, "orders", SETTINGS)
    ]


def test_only_an_awaited_topic_is_waited_for(broker):
    broker.script["Metadata"] += [metadata(described_topic("__state", code=3))]
    assert describe.topics(broker.cluster(), ["__state"], SETTINGS) == (1, {"__state": None})
    assert broker.clock.slept == []


def test_a_topic_that_was_just_created_appears(broker):
    broker.script["Metadata"] += [metadata(described_topic("new", code=3)), metadata(described_topic("new"))]
    broker.script["DescribeConfigs"].append(configured("new", min_insync_replicas="2"))
    _, found = describe.topics(broker.cluster(), ["new"], SETTINGS, awaited=["new"])
    assert isinstance(found["new"], TopicFacts)


def test_a_topic_that_never_appears_does_not_exist(broker):
    broker.script["Metadata"] += [metadata(described_topic("typo", code=3))] * 100
    assert describe.topics(broker.cluster(request_timeout_ms=10_000), ["typo"], SETTINGS, awaited=["typo"]) == (
        1,
        {"typo": None},
    )
    assert 5 <= sum(broker.clock.slept) <= 6  # seconds; one pause may begin before the fifth is over
    assert broker.sent("DescribeConfigs") == []


def test_a_topic_that_may_not_be_described_is_unread(broker):
    broker.script["Metadata"].append(metadata(described_topic("secret", code=29)))
    _, found = describe.topics(broker.cluster(), ["secret"], SETTINGS)
    assert found["secret"] == Unavailable(
        reason="TOPIC_AUTHORIZATION_FAILED", grant="Describe and DescribeConfigs on Topic"
    )


@pytest.mark.parametrize(
    ("answer", "unread"),
    [
        (configured("orders", 29), Unavailable(reason="TOPIC_AUTHORIZATION_FAILED", grant="DescribeConfigs on Topic")),
        (configured("orders"), Unavailable(reason="the broker does not return min.insync.replicas")),
        (
            configured("orders", min_insync_replicas=None),
            Unavailable(reason="the broker does not return min.insync.replicas"),
        ),
    ],
)
def test_settings_that_are_forbidden_or_hidden_are_unread(broker, answer, unread):
    broker.script["Metadata"].append(metadata(described_topic("orders")))
    broker.script["DescribeConfigs"].append(answer)
    _, found = describe.topics(broker.cluster(), ["orders"], SETTINGS)
    topic = found["orders"]
    assert isinstance(topic, TopicFacts) and topic.settings == unread


def test_the_largest_record_batch_of_a_topic_is_asked_for_once_in_five_minutes(broker):
    broker.script["DescribeConfigs"] += [configured("orders", max_message_bytes=size) for size in ("1000", "2000")]
    cluster = broker.cluster()
    assert [describe.topic_limits(cluster, ["orders"])["orders"].max_message_bytes for _ in range(2)] == [1000] * 2
    broker.clock.now += 301
    assert describe.topic_limits(cluster, ["orders"]) == {"orders": TopicLimits(max_message_bytes=2000)}


@pytest.mark.parametrize("answer", [configured("orders", 29), configured("orders")], ids=["forbidden", "hidden"])
def test_the_largest_record_batch_may_be_unknown(broker, answer):
    broker.script["DescribeConfigs"].append(answer)
    assert describe.topic_limits(broker.cluster(), ["orders"]) == {"orders": TopicLimits()}


NO_LIMIT = str((1 << 63) - 1)


@pytest.mark.parametrize(
    ("settings", "limits"),
    [
        ({"before": NO_LIMIT, "after": "3600000"}, TopicLimits(after_ms=3_600_000)),  # Kafka 4's defaults
        ({"before": NO_LIMIT, "after": NO_LIMIT, "difference": NO_LIMIT}, TopicLimits()),  # 3.6 to 3.9
        ({"before": "7", "after": NO_LIMIT, "difference": "9"}, TopicLimits(before_ms=7, after_ms=9)),
        ({"difference": "9"}, TopicLimits(before_ms=9, after_ms=9)),  # before 3.6
        ({"after": "9", "type": "LogAppendTime"}, TopicLimits()),
        ({"cleanup": "compact"}, TopicLimits(needs_keys=True)),
        ({"cleanup": "delete,compact"}, TopicLimits(needs_keys=True)),
        ({"cleanup": "delete"}, TopicLimits()),
        ({"cleanup": "delete", "retention": "7"}, TopicLimits(retention_ms=7)),
        ({"cleanup": "compact,delete", "retention": "7"}, TopicLimits(needs_keys=True, retention_ms=7)),
        ({"cleanup": "delete", "retention": "-1"}, TopicLimits()),
        ({"cleanup": "compact", "retention": "7"}, TopicLimits(needs_keys=True)),
        ({"cleanup": "delete", "retention": "7", "type": "LogAppendTime"}, TopicLimits(retention_ms=7)),
    ],
)
def test_a_topics_limits_are_those_of_its_settings(settings, limits):
    named = {f"message.timestamp.{side}.max.ms": settings.get(side) for side in ("before", "after", "difference")}
    named |= {"message.timestamp.type": settings.get("type", "CreateTime"), "cleanup.policy": settings.get("cleanup")}
    named |= {"retention.ms": settings.get("retention")}
    assert describe.limits_of({name: value for name, value in named.items() if value is not None}) == limits


@pytest.mark.parametrize(
    ("limits", "kept"),
    [
        ({}, {0, 1, 89, 90, 95, 100}),
        ({"retention_ms": 10}, {90, 95, 100}),
        ({"before_ms": 10}, {90, 95, 100}),
        ({"before_ms": 10, "retention_ms": 5}, {95, 100}),
        ({"after_ms": 1}, {0, 1, 89, 90, 95, 100, 101}),
        ({"max_message_bytes": None}, set()),
    ],
)
def test_a_timestamp_is_kept_that_the_topic_takes_and_does_not_delete_the_record_for(limits, kept):
    topic = TopicLimits(**{"max_message_bytes": 1} | limits)
    assert {each for each in (-1, 0, 1, 89, 90, 95, 100, 101, 102) if topic.keeps(each, 100)} == kept


def test_the_limit_of_a_topic_that_was_just_created_is_waited_for(broker):
    broker.script["DescribeConfigs"] += [configured("new", 3), configured("new", max_message_bytes="1000")]
    assert describe.topic_limits(broker.cluster(), ["new"]) == {"new": TopicLimits(max_message_bytes=1000)}


# -- the transaction coordinator


def test_the_coordinator_is_asked_for_its_own_settings(broker):
    broker.script["DescribeConfigs"].append(configured("1", min_insync_replicas="2"))
    assert describe.coordinator_settings(broker.cluster(), "copy", SETTINGS) == {"min.insync.replicas": "2"}
    (asked,) = broker.sent("DescribeConfigs")
    assert [(r.resource_type, r.resource_name) for r in asked.resources] == [(4, "1")]


def test_settings_of_a_coordinator_that_may_not_be_found_are_unread(broker, answers):
    broker.script["FindCoordinator"].append(answers.FindCoordinator(error_code=53))
    assert describe.coordinator_settings(broker.cluster(), "copy", SETTINGS) == Unavailable(
        reason="TRANSACTIONAL_ID_AUTHORIZATION_FAILED", grant="Write on TransactionalId"
    )


def test_an_open_transaction_has_an_age(broker):
    answer = state_of(
        transaction_state="Ongoing",
        transaction_timeout_ms=60_000,
        transaction_start_time_ms=10_000,
        producer_id=9,
        producer_epoch=4,
    )
    broker.script["DescribeTransactions"].append(answer)
    found = describe.transaction(broker.cluster(), "copy", now_ms=12_500)
    assert found == TransactionFacts(
        transactional_id="copy",
        coordinator=1,
        state="Ongoing",
        producer_id=9,
        epoch=4,
        timeout_ms=60_000,
        started_ms=10_000,
        described_ms=12_500,
    )
    assert (found.age_ms, found.timeout_left_ms) == (2_500, 57_500)


@pytest.mark.parametrize(("started", "age"), [(-1, None), (99_000, 0)])
def test_an_age_is_never_negative_whatever_the_clocks_say(broker, started, age):
    broker.script["DescribeTransactions"].append(state_of(transaction_state="Empty", transaction_start_time_ms=started))
    found = describe.transaction(broker.cluster(), "copy", now_ms=12_500)
    assert isinstance(found, TransactionFacts) and found.age_ms == age


def test_an_unused_transactional_id_is_unknown(broker):
    broker.script["DescribeTransactions"].append(state_of(105))
    assert describe.transaction(broker.cluster(), "copy", now_ms=0) is None


def test_a_coordinator_that_is_still_loading_is_waited_for(broker):
    broker.script["DescribeTransactions"] += [state_of(14), state_of(16), state_of(105)]
    assert describe.transaction(broker.cluster(), "copy", now_ms=0) is None
    assert len(broker.sent("FindCoordinator")) == 2


def test_a_transactional_id_that_may_not_be_described_is_unread(broker):
    broker.script["DescribeTransactions"].append(state_of(53))
    assert isinstance(describe.transaction(broker.cluster(), "copy", now_ms=0), Unavailable)


def test_an_error_that_no_acl_mends_is_raised(broker):
    broker.script["DescribeTransactions"].append(state_of(42))
    with pytest.raises(BrokerError, match="INVALID_REQUEST"):
        describe.transaction(broker.cluster(), "copy", now_ms=0)


# -- groups


def test_a_group_shows_its_members_and_what_we_may_do(broker):
    member = DescribeGroupsResponse.DescribedGroup.DescribedGroupMember(client_id="app", client_host="/10.0.0.1")
    broker.script["DescribeGroups"].append(group_of(state="Stable", members=[member], operations={3, 8}))
    assert describe.group(broker.cluster(), "g") == GroupFacts(
        state="Stable", members=("app at 10.0.0.1",), operations=frozenset({"Read", "Describe"}), type="classic"
    )
    assert broker.sent("ListGroups") == []


@pytest.mark.parametrize(
    ("listed", "state", "kind"),
    [
        ({"g": ("Stable", "Consumer"), "other": ("Empty", "Share")}, "Stable", "consumer"),
        ({"g": ("Empty", "Share")}, "Empty", "share"),
        ({"g": ("Stable", None)}, "Stable", ""),
        ({"other": ("Stable", "Share")}, "Dead", ""),
    ],
)
def test_a_group_that_seems_dead_may_be_one_of_another_type(broker, listed, state, kind):
    broker.script["DescribeGroups"].append(group_of(state="Dead"))
    groups = [
        ListGroupsResponse.ListedGroup(group_id=name, group_state=at, group_type=of)
        for name, (at, of) in listed.items()
    ]
    broker.script["ListGroups"].append(ListGroupsResponse(groups=groups))
    assert describe.group(broker.cluster(), "g") == GroupFacts(state=state, members=(), operations=None, type=kind)


def test_a_group_that_may_not_be_described_is_unread(broker):
    broker.script["DescribeGroups"].append(group_of(30))
    assert describe.group(broker.cluster(), "g") == Unavailable(
        reason="GROUP_AUTHORIZATION_FAILED", grant="Read on Group"
    )
