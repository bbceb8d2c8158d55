"""What a query needs, by its options; tests/broker/test_acls.py tries it on a broker."""

import pytest

from spark_kafka_eos.options import sink_options
from spark_kafka_eos.preflight.rights import Right, commands, of_sink, of_source, optional

BASE = {"kafka.bootstrap.servers": "a:1", "topic": "out"}
ONCE = BASE | {"kafka.transactional.id": "t"}
TRANSACTION = {
    Right("Write", "transactional id", "t"),
    Right("Read", "group", "t.ledger"),
    Right("Write", "topic", "kafka-eos-ledger"),
    Right("Read", "topic", "kafka-eos-ledger"),
}
RELAXED = BASE | {"deliveryGuarantee": "at-least-once"}


@pytest.mark.parametrize(
    ("given", "needed"),
    [
        (ONCE, TRANSACTION | {Right("Write", "topic", "out"), Right("Read", "group", "t")}),
        (
            ONCE | {"topic": None, "outputTopics": "b,a", "kafka.group.id": "g"},
            TRANSACTION | {Right("Write", "topic", "a"), Right("Write", "topic", "b"), Right("Read", "group", "g")},
        ),
        (
            ONCE | {"twoPhaseCommit": "true"},
            TRANSACTION
            | {
                Right("TwoPhaseCommit", "transactional id", "t"),
                Right("Write", "topic", "out"),
                Right("Read", "group", "t"),
            },
        ),
        (RELAXED, {Right("Write", "topic", "out")}),
        (RELAXED | {"deadLetterTopic": "dead"}, {Right("Write", "topic", "out"), Right("Write", "topic", "dead")}),
        (RELAXED | {"kafka.group.id": "g"}, {Right("Write", "topic", "out"), Right("Read", "group", "g")}),
    ],
)
def test_a_sink_needs_what_its_options_say(given, needed):
    rights = of_sink(sink_options(given))
    assert set(rights) == needed and len(rights) == len(needed)


def test_a_source_needs_to_read():
    assert of_source(["a", "b"]) == [Right("Read", "topic", "a"), Right("Read", "topic", "b")]


def test_what_is_optional_is_not_required():
    for given in (ONCE, RELAXED):
        options = sink_options(given)
        assert set(optional(options)) & set(of_sink(options)) == set()
    assert optional(sink_options(RELAXED)) == [Right("DescribeConfigs", "topic", "out")]


def test_a_command_grants_the_same_operations_on_several_resources():
    rights = [
        Right("Write", "topic", "out"),
        Right("Read", "group", "of us"),
        Right("Write", "topic", "books"),
        Right("Read", "topic", "books"),
        Right("Write", "transactional id", "t"),
        Right("Write", "topic", "out"),
        Right("DescribeConfigs", "cluster", "kafka-cluster"),
    ]
    assert commands(rights) == [
        "--operation Write --topic out --transactional-id t",
        "--operation Read --group 'of us'",
        "--operation Read --operation Write --topic books",
        "--operation DescribeConfigs --cluster",
    ]


def test_in_real_time_a_prefixed_right_covers_all_buckets_and_has_a_command_of_its_own():
    options = sink_options(ONCE)
    (more,) = set(of_sink(options, real_time=True)) - set(of_sink(options))
    assert more == Right("Write", "transactional id", "t.bucket-", "prefixed")
    assert commands([Right("Write", "transactional id", "t"), more]) == [
        "--operation Write --transactional-id t",
        "--resource-pattern-type prefixed --operation Write --transactional-id t.bucket-",
    ]
