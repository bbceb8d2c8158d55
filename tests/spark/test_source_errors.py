"""What a user sees when something is wrong: our sentence, in Spark's exception, in bounded time."""

from __future__ import annotations

import time

import pytest
from pyspark.errors import PySparkException

from spark_kafka_eos.testing.ports import free_ports

pytestmark = [pytest.mark.spark, pytest.mark.broker]


@pytest.fixture
def messages(spark, tmp_path):
    """`messages(**options)`: what a batch read and a stream say when they fail with these options."""

    def run(**options):
        def stream():
            frame = spark.readStream.format("kafka-eos").options(**options).load()
            query = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
            query.awaitTermination(120)

        with pytest.raises(PySparkException) as in_batch:
            spark.read.format("kafka-eos").options(**options).load().count()
        with pytest.raises(PySparkException) as in_stream:
            stream()
        return [str(in_batch.value), str(in_stream.value)]

    return run


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"subscribe": "t", "maxOffsetPerTrigger": "5"}, "Did you mean maxOffsetsPerTrigger?"),
        ({}, "Set one of subscribe, subscribePattern, assign."),
        ({"subscribe": "t", "startingOffsets": '{"t": {"0": }}'}, "is not valid JSON"),
        ({"subscribe": "t", "startingOffsets": "committed"}, "committed requires kafka.group.id"),
    ],
)
def test_wrong_options_are_explained(bootstrap, messages, options, said):
    for message in messages(**{"kafka.bootstrap.servers": bootstrap}, **options):
        assert "ConfigurationError: option" in message
        assert said in message


def test_missing_brokers_are_named(messages):
    for message in messages(subscribe="t"):
        assert "option 'kafka.bootstrap.servers': is required" in message


def test_an_unknown_topic_is_named(bootstrap, messages):
    for message in messages(**{"kafka.bootstrap.servers": bootstrap}, subscribe="no-such-topic"):
        assert "errors.UnknownTopic: " in message
        assert "for topic 'no-such-topic'. Create the topic" in message
        assert "Nothing was committed" not in message, "only the sink knows, and it may be somebody else's"


def test_a_partition_that_does_not_exist_is_named(bootstrap, topic, messages):
    name = topic("one")
    for message in messages(**{"kafka.bootstrap.servers": bootstrap}, assign=f'{{"{name}": [0, 7]}}'):
        assert f"UnknownTopic: {name}-7" in message


def test_offsets_for_other_partitions_are_refused(bootstrap, topic, messages):
    name = topic("two", partitions=2)
    given = {"subscribe": name, "startingOffsets": f'{{"{name}": {{"0": 5}}}}'}
    for message in messages(**{"kafka.bootstrap.servers": bootstrap}, **given):
        assert f"does not list {name}-1" in message


def test_a_broker_that_does_not_answer_fails_the_query_in_bounded_time(messages):
    [port] = free_ports(1)
    began = time.monotonic()
    given = {"kafka.bootstrap.servers": f"127.0.0.1:{port}", "kafka.request.timeout.ms": "2000"}
    for message in messages(**given, subscribe="t"):
        assert f"cannot connect to any broker (kafka.bootstrap.servers=127.0.0.1:{port})" in message
    assert time.monotonic() - began < 60
