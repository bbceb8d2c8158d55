"""Which source offsets at-least-once commits to the group."""

import logging

import pytest

from spark_kafka_eos.errors import UnknownTopic
from spark_kafka_eos.model import MicroBatch, TopicPartition, Written
from spark_kafka_eos.options import sink_options
from spark_kafka_eos.writing.idempotent import IdempotentWrites
from tests.model_kafka import KafkaModel, refused

IN = TopicPartition("in", 0)
BATCH = MicroBatch(query_id="q", batch_id=0, digest="", start={IN: 0}, end={IN: 3})
WRITTEN = Written(records=3, bytes=300, milliseconds=1)
UNKNOWN_TOPIC = 3


def commit(kafka: KafkaModel, **options: str) -> None:
    given = {"kafka.bootstrap.servers": "b:1", "deliveryGuarantee": "at-least-once", "kafka.group.id": "g"}
    IdempotentWrites(sink_options(given | options), kafka.cluster()).commit(BATCH, written=WRITTEN)


@pytest.fixture
def kafka() -> KafkaModel:
    return KafkaModel(2, {"in": 1})


def test_those_of_the_sinks_own_cluster(kafka):
    commit(kafka)
    (request,) = kafka.sent("OffsetCommit")
    assert request.topics[0].partitions[0].committed_offset == 3


def test_none_if_the_source_is_on_another_cluster_which_may_have_a_topic_of_the_same_name(kafka):
    commit(kafka, sourceClusters="there")
    assert kafka.sent("OffsetCommit") == []


def test_a_deleted_topic_fails_the_batch_unless_the_user_accepts_data_loss(kafka, caplog):
    kafka.meets["OffsetCommit"] = refused(UNKNOWN_TOPIC)
    with pytest.raises(UnknownTopic):
        commit(kafka)
    caplog.set_level(logging.WARNING, "spark_kafka_eos")
    commit(kafka, failOnDataLoss="false")
    assert "source offsets are not committed, because a topic no longer exists" in caplog.text
