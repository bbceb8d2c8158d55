"""Which partitions a batch is known to write before its rows are encoded."""

from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pytest

from spark_kafka_eos.appending.blocks import BlockEncoder, EncodeSettings, Target
from spark_kafka_eos.appending.encode_settings import encode_settings, known_partitions, target
from spark_kafka_eos.errors import ConfigurationError
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.facts import TopicLimits
from spark_kafka_eos.options import sink_options
from spark_kafka_eos.options.parsers import output_topics
from spark_kafka_eos.options.reserved import LEDGER, LEDGER_TOPIC
from tests.model_kafka import KafkaModel

TARGETS = {"a": Target(partitions=3), "b": Target(partitions=2)}


@pytest.mark.parametrize(
    ("topic", "declared", "rows", "chosen_by_rows", "known"),
    [
        ("a", None, 3, False, "a0 a1 a2"),
        ("a", None, 2, False, ""),  # may be too few for all partitions
        ("a", None, None, False, ""),
        ("a", None, 3, True, ""),
        (None, None, 9, False, ""),
        (None, "a,b", 9, False, ""),  # may write them, not does
        ("a", "a,b", 9, False, "a0 a1 a2"),
        ("a", "a:1-2", None, True, "a1 a2"),
        ("a", "a,b:0", 9, True, ""),
        (None, "a:2,b:0-1", 0, True, "a2 b0 b1"),
        (None, "a,b:1", None, False, "b1"),
    ],
)
def test_known_are_declared_partitions_or_all_of_the_one_topic(topic, declared, rows, chosen_by_rows, known):
    where = EncodeSettings(topic=topic, targets=TARGETS, output_topics=output_topics(declared) if declared else ())
    found = known_partitions(where, rows=rows, chosen_by_rows=chosen_by_rows)
    assert found == [TopicPartition(name[0], int(name[1])) for name in known.split()]


def test_a_declared_partition_that_does_not_exist_is_an_error_before_any_task_runs(monkeypatch):
    kafka = KafkaModel(2, {"a": 3})
    monkeypatch.setattr(
        "spark_kafka_eos.kafka.protocol.describe.topic_limits", lambda _, names: dict.fromkeys(names, TopicLimits())
    )
    given = {"kafka.bootstrap.servers": "b:1", "kafka.transactional.id": "id"}
    assert (
        encode_settings(sink_options(given | {"outputTopics": "a:0-2"}), None, kafka.cluster()).targets["a"].partitions
        == 3
    )
    with pytest.raises(ConfigurationError, match="declares a:0-3, but topic 'a' has 3 partitions"):
        encode_settings(sink_options(given | {"outputTopics": "a:0-3"}), None, kafka.cluster())


@pytest.mark.parametrize("ledger", [LEDGER_TOPIC, "own"])
def test_a_ledger_topic_that_a_gateway_gives_another_name_is_known_by_its_id(monkeypatch, ledger):
    kafka = KafkaModel(2, {ledger: 1, "alias": 1, "orders": 1})
    kafka.topics._ids["alias"] = kafka.topics._ids[ledger]
    monkeypatch.setattr(
        "spark_kafka_eos.kafka.protocol.describe.topic_limits", lambda _, names: dict.fromkeys(names, TopicLimits())
    )
    assert [target(kafka.cluster(), topic, ledger).reserved for topic in ("alias", "orders")] == [LEDGER, None]


def test_batches_of_a_few_rows_without_a_key_reach_all_partitions_evenly():
    options = sink_options({"kafka.bootstrap.servers": "b:1", "kafka.transactional.id": "id"})
    three = pa.record_batch([pa.nulls(3, pa.binary()), pa.array([b"v"] * 3)], ["key", "value"])
    found: Counter[int] = Counter()
    for number in range(1_000):
        where = replace(
            encode_settings(options, "t", batch_name=f"{number}-{'a' * 32}"), targets={"t": Target(partitions=12)}
        )
        encoder = BlockEncoder(where, 0, pytest.fail, lambda: 1)
        for block in [*encoder.add(three), *encoder.finish()]:
            found[block.partition.partition] += block.records
    assert found.keys() == set(range(12))
    assert all(200 < count < 300 for count in found.values()), found


def test_all_tasks_and_attempts_of_a_batch_begin_at_the_same_partition():
    options = sink_options({"kafka.bootstrap.servers": "b:1", "kafka.transactional.id": "id"})
    assert encode_settings(options, "t", batch_name="7-a") == encode_settings(options, "t", batch_name="7-a")
