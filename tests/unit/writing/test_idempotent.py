"""At-least-once: by which producer it appends, and which source offsets it commits to the group."""

import logging

import pytest

from spark_kafka_eos.errors import (
    AttemptsExhausted,
    AuthorizationFailed,
    BrokerError,
    ConfigurationError,
    TransactionAborted,
    UnknownTopic,
)
from spark_kafka_eos.ledger.entry import Written
from spark_kafka_eos.model import PLAIN, MicroBatch, ProducerIdentity, TopicPartition
from spark_kafka_eos.options import sink_options
from spark_kafka_eos.writing.commit import commit_batch
from spark_kafka_eos.writing.idempotent import IdempotentWrites
from spark_kafka_eos.writing.report import Appended
from tests.model_kafka import KafkaModel, refused

IN = TopicPartition("in", 0)
BATCH = MicroBatch(query_id="q", batch_id=0, digest="", start={IN: 0}, end={IN: 3})
WRITTEN = Written(records=3, bytes=300, milliseconds=1)
UNKNOWN_TOPIC, CLUSTER_AUTHORIZATION_FAILED, UNSUPPORTED_FOR_MESSAGE_FORMAT = 3, 31, 43
GIVEN = {"kafka.bootstrap.servers": "b:1", "deliveryGuarantee": "at-least-once", "kafka.group.id": "g"}


def writes(kafka: KafkaModel, idempotence: str | None = None, **options: str) -> IdempotentWrites:
    degree = {} if idempotence is None else {"kafka.enable.idempotence": idempotence}
    return IdempotentWrites(sink_options(GIVEN | degree | options), kafka.cluster())


def commit(kafka: KafkaModel, **options: str) -> None:
    writes(kafka, **options).commit(BATCH, written=WRITTEN)


def appended_by(writes: IdempotentWrites, *, old_format: bool = False) -> list[ProducerIdentity]:
    """The identities by which a batch was tried; a topic of an `old_format` takes none with a producer id."""
    tried = []

    def write(identity: ProducerIdentity) -> Appended:
        tried.append(identity)
        if old_format and identity.is_idempotent:
            raise BrokerError("Produce", UNSUPPORTED_FOR_MESSAGE_FORMAT, "UNSUPPORTED_FOR_MESSAGE_FORMAT", "in-0")
        return Appended(partitions=1, records=3, bytes=300)

    writes.begin(BATCH)
    writes.append(write)
    return tried


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


@pytest.mark.parametrize("degree", [None, "true", "required", "requested"])
def test_each_batch_has_a_producer_id_of_its_own_unless_told_otherwise(kafka, degree):
    own = writes(kafka, degree)
    assert all(identity.is_idempotent for identity in appended_by(own) + appended_by(own))
    assert len(kafka.sent("InitProducerId")) == 2


@pytest.mark.parametrize("degree", ["off", "false"])
def test_without_idempotence_no_producer_id_is_asked_for(kafka, degree):
    assert appended_by(writes(kafka, degree), old_format=True) == [PLAIN]
    assert kafka.sent("InitProducerId") == []


def test_who_is_refused_a_producer_id_goes_on_without_one_if_it_was_only_requested(kafka, caplog):
    kafka.meets["InitProducerId"] = refused(CLUSTER_AUTHORIZATION_FAILED)
    own = writes(kafka, "requested")
    assert appended_by(own) + appended_by(own) == [PLAIN, PLAIN]
    (warning,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert "without idempotence, because InitProducerId answered CLUSTER_AUTHORIZATION_FAILED (31)" in warning
    with pytest.raises(AuthorizationFailed):
        appended_by(writes(kafka, "required"))


def test_a_topic_of_an_old_format_is_written_without_a_producer_id_if_it_was_only_requested(kafka, caplog):
    own = writes(kafka, "requested")
    with_id, without = appended_by(own, old_format=True)
    assert with_id.is_idempotent and without == PLAIN
    assert "because Produce answered UNSUPPORTED_FOR_MESSAGE_FORMAT (43) for in-0" in caplog.text
    assert appended_by(own, old_format=True) == [PLAIN]
    with pytest.raises(BrokerError, match="UNSUPPORTED_FOR_MESSAGE_FORMAT"):
        appended_by(writes(kafka, "required"), old_format=True)


def test_another_error_is_not_answered_by_writing_without_idempotence(kafka):
    def write(identity: ProducerIdentity) -> Appended:
        raise BrokerError("Produce", 87, "INVALID_RECORD", "in-0")

    own = writes(kafka, "requested")
    own.begin(BATCH)
    with pytest.raises(BrokerError, match="INVALID_RECORD"):
        own.append(write)


def test_an_error_while_records_are_sent_does_not_say_that_nothing_is_visible(kafka):
    def fail(identity: ProducerIdentity) -> Appended:
        raise TransactionAborted("a task ran twice")

    own = writes(kafka)
    with pytest.raises(AttemptsExhausted, match="a task ran twice") as raised:
        commit_batch(own, BATCH, fail, max_attempts=2, append_mode="driver")
    assert raised.value.committed == "acknowledged"
    assert "Without a transaction, records that brokers acknowledged are visible" in str(raised.value)


@pytest.mark.parametrize("degree", ["requested", "off", "false"])
def test_exactly_once_needs_idempotence(degree):
    given = {"kafka.bootstrap.servers": "b:1", "kafka.transactional.id": "t", "topic": "out"}
    with pytest.raises(ConfigurationError, match=r"'kafka.enable.idempotence': exactly-once needs true or required"):
        sink_options(given | {"kafka.enable.idempotence": degree})
