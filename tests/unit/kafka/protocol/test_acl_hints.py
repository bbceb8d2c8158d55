"""A missing right names itself: one row per request and kind of resource."""

import pytest

from spark_kafka_eos.errors import AuthorizationFailed
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.acl_hints import ResourceRef, missing
from spark_kafka_eos.kafka.protocol.error_codes import failure

EVERYTHING = ResourceRef(partition=TopicPartition("orders", 3), group="g", transactional_id="t")
ROWS = [
    ("Metadata", 29, "Describe on topic 'orders' to this principal; Read or Write includes it."),
    ("ListOffsets", 29, "Describe on topic 'orders' to this principal; Read or Write includes it."),
    ("OffsetFetch", 29, "Describe on topic 'orders' to this principal; Read or Write includes it."),
    ("Fetch", 29, "Read on topic 'orders' to this principal."),
    ("Produce", 29, "Write on topic 'orders' to this principal."),
    ("AddPartitionsToTxn", 29, "Write on topic 'orders' to this principal."),
    ("OffsetCommit", 29, "Read on topic 'orders' to this principal."),
    (
        "TxnOffsetCommit",
        29,
        "Read on topic 'orders' to this principal: committing a topic's offsets requires Read on it",
    ),
    ("FindCoordinator", 30, "Describe on group 'g' to this principal; Read includes it."),
    ("OffsetFetch", 30, "Describe on group 'g' to this principal; Read includes it."),
    ("OffsetCommit", 30, "Read on group 'g' to this principal."),
    ("AddOffsetsToTxn", 30, "Read on group 'g' to this principal."),
    ("TxnOffsetCommit", 30, "Read on group 'g' to this principal."),
    ("FindCoordinator", 53, "Write on transactional id 't' to this principal."),
    ("DescribeTransactions", 53, "Describe on transactional id 't' to this principal; Write includes it."),
    ("InitProducerId", 53, "Write on transactional id 't' to this principal."),
    ("AddPartitionsToTxn", 53, "Write on transactional id 't' to this principal."),
    ("AddOffsetsToTxn", 53, "Write on transactional id 't' to this principal."),
    ("Produce", 53, "Write on transactional id 't' to this principal."),
    ("TxnOffsetCommit", 53, "Write on transactional id 't' to this principal."),
    ("EndTxn", 53, "Write on transactional id 't' to this principal."),
    ("InitProducerId", 31, "Write on any topic to this principal, or IdempotentWrite on the cluster."),
    ("ListGroups", 31, "ClusterAction on the cluster to this principal."),
]


@pytest.mark.parametrize(("api", "code", "grant"), ROWS, ids=[f"{api}-{code}" for api, code, _ in ROWS])
def test_each_refusal_names_the_operation_and_the_resource(api, code, grant):
    error = failure(api, code, EVERYTHING)
    assert type(error) is AuthorizationFailed
    assert error.action.startswith(f"Grant {grant}")
    assert "Nothing was committed." in str(error)


def test_a_topic_is_named_without_a_partition_too():
    assert "Describe on topic 'orders'" in missing("Metadata", 29, ResourceRef(topic="orders"))


@pytest.mark.parametrize(("code", "kind"), [(29, "topic"), (30, "group"), (53, "transactional id")])
@pytest.mark.parametrize("subject", ["some text", ResourceRef()])
def test_an_unnamed_resource_is_at_least_of_a_kind(code, kind, subject):
    assert f"Describe on the {kind} to" in missing("AnyApi", code, subject)


@pytest.mark.parametrize(
    ("subject", "shown"),
    [
        (EVERYTHING, "orders-3, group 'g', transactional id 't'"),
        (ResourceRef(topic="orders"), "topic 'orders'"),
        (ResourceRef(partition=TopicPartition("orders", 0), note=" at offset 5"), "orders-0 at offset 5"),
        (
            ResourceRef(partition=TopicPartition("orders", 0), transactional_id="t", note=", 5 bytes: too many"),
            "orders-0, 5 bytes: too many, transactional id 't'",
        ),
    ],
)
def test_a_subject_reads_as_what_it_names(subject, shown):
    assert str(subject) == shown
