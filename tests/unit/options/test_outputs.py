"""The topics and partitions that a writer declares."""

import pytest

from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.options.outputs import OutputTopic, outputs_to_text
from spark_kafka_eos.options.parsers import output_topics


@pytest.mark.parametrize(
    ("value", "declared"),
    [
        ("alerts", {"alerts": None}),
        ("orders:3", {"orders": {3}}),
        ("orders:0-15, alerts,", {"orders": set(range(16)), "alerts": None}),
        ("orders:0-1,orders:1-2,orders:9", {"orders": {0, 1, 2, 9}}),
        ("alerts,alerts", {"alerts": None}),
        ("orders:7-7", {"orders": {7}}),
    ],
)
def test_a_topic_is_declared_whole_or_with_some_partitions(value, declared):
    found = {each.topic: None if each.partitions is None else set(each.partitions) for each in output_topics(value)}
    assert found == declared


@pytest.mark.parametrize("value", ["alerts", "orders:3", "orders:0-15,alerts", "a:0-1,a:5,a:7-9,b"])
def test_it_is_shown_as_it_is_written(value):
    assert ",".join(map(str, output_topics(value))) == value
    assert output_topics(outputs_to_text(output_topics(value))) == output_topics(value)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("", "must not be empty"),
        (",", "not a valid topic name"),
        ("orders:", "'orders:' is not a topic with a partition or a range"),
        ("orders:0-", "not a topic with a partition"),
        ("orders:-3", "not a topic with a partition"),
        ("orders:a", "not a topic with a partition"),
        ("orders:0:1", "not a topic with a partition"),
        ("orders:0-2000000000", "not a topic with a partition"),
        ("orders:5-3", "is an empty range: 3 comes before 5"),
        (":3", "not a valid topic name"),
        ("orders,orders:3", "orders is listed as a whole topic and with partitions"),
        ("orders:3,orders", "orders is listed as a whole topic and with partitions"),
    ],
)
def test_anything_else_is_refused_with_the_reason(value, why):
    with pytest.raises(ValueError, match=why):
        output_topics(value)


@pytest.mark.parametrize(
    ("one", "others", "within"),
    [
        ("a", "a,b", True),
        ("a:1", "a", True),
        ("a:1", "a:0-1", True),
        ("a:0-1", "a:0-1", True),
        ("a", "a:0-1", False),
        ("a:2", "a:0-1", False),
        ("a:1-2", "a:0-1", False),
        ("b", "a", False),
    ],
)
def test_what_a_transaction_declares_must_be_within_what_its_writer_does(one, others, within):
    (declared,) = output_topics(one)
    assert declared.within(output_topics(others)) is within
    assert not declared.within(output_topics("c"))


def test_only_named_partitions_are_listed():
    assert OutputTopic(topic="a", partitions=frozenset({2, 0})).named() == [
        TopicPartition("a", 0),
        TopicPartition("a", 2),
    ]
    assert OutputTopic(topic="a").named() == []
