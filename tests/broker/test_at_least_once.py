"""Writes without a transaction on real brokers: which producers the partitions remember, and what is written."""

from __future__ import annotations

import itertools
import time

import pyarrow as pa
import pytest
from kafka.protocol.producer.transaction import InitProducerIdRequest

from spark_kafka_eos.appending.append import append
from spark_kafka_eos.appending.append_task import append_attempt
from spark_kafka_eos.appending.blocks import Block
from spark_kafka_eos.appending.report import Appended
from spark_kafka_eos.errors import TransactionAborted
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.producers import producers
from spark_kafka_eos.kafka.protocol.transactions import idempotent_identity
from spark_kafka_eos.kafka.wire.encode import encode
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.options import sink_options
from spark_kafka_eos.transaction.commit import commit_batch
from spark_kafka_eos.transaction.idempotent import AtLeastOnceProducer
from tests.batches import BY_DRIVER

pytestmark = pytest.mark.broker

numbers = itertools.count(1)


@pytest.fixture
def topic(either_kafka):
    return either_kafka.create_topic(f"at-least-once-{next(numbers)}", 2)


@pytest.fixture
def writes(either_kafka, cluster, topic):
    """`writes()`: what writes the next batches of `topic`; a sink has a new one for each."""
    given = {"kafka.bootstrap.servers": either_kafka.bootstrap, "topic": topic, "deliveryGuarantee": "at-least-once"}
    return lambda: AtLeastOnceProducer(sink_options(given), cluster)


def block(value: bytes) -> bytearray:
    return encode(pa.array([None], pa.binary()), pa.array([value]), int(time.time() * 1000))


def by_driver(cluster, topic, identity, value):
    """A record for each of two partitions."""
    append(cluster, identity, [(TopicPartition(topic, number), 1, block(value)) for number in range(2)])


def by_executors(cluster, topic, identity, value):
    """Two append tasks, each with its partition."""
    for slot in range(2):
        blocks = [Block(partition=TopicPartition(topic, slot), task=0, number=0, records=1, data=block(value))]
        report = append_attempt(cluster, identity, blocks, stage_id=1, slot=slot, attempt=0, batch_id=0)
        assert report.error is None


def commit(writes, append_records, *, fail=0):
    """A batch whose first `fail` attempts end after their records were appended; returns the attempts' identities."""
    tried = []

    def write(identity):
        tried.append(identity)
        append_records(identity)
        if len(tried) <= fail:
            raise TransactionAborted("a task ran again")
        return Appended(partitions=2, records=2, bytes=2)

    batch = MicroBatch(query_id="q", batch_id=0, digest="")
    commit_batch(writes, batch, write, max_attempts=fail + 1, choice=BY_DRIVER)
    return tried


@pytest.mark.parametrize("way", [by_driver, by_executors], ids=["driver", "executors"])
def test_fifty_batches_leave_one_producer_id_in_each_partition(cluster, topic, writes, consumed, way):
    for number in range(50):
        commit(writes(), lambda identity, number=number: way(cluster, topic, identity, b"%d" % number))
    partitions = [TopicPartition(topic, number) for number in range(2)]
    remembered = producers(cluster, partitions)
    assert [len(remembered[tp]) for tp in partitions] == [1, 1]
    assert len({states[0].producer_id for states in remembered.values()}) == 1
    assert consumed(topic, 0) == consumed(topic, 1) == [b"%d" % number for number in range(50)]


def test_a_late_request_of_a_failed_attempt_makes_no_record_of_the_next_one_a_duplicate(
    cluster, topic, writes, consumed
):
    own, here = writes(), TopicPartition(topic, 0)

    def appended(identity):
        append(cluster, identity, [(here, 1, block(b"epoch %d" % identity.epoch))])

    first, second = commit(own, appended, fail=1)
    assert (second.producer_id, second.epoch) == (first.producer_id, first.epoch + 1)
    values = [b"epoch %d" % identity.epoch for identity in (first, second)]
    assert consumed(topic) == values
    with pytest.raises(TransactionAborted, match="INVALID_PRODUCER_EPOCH"):
        appended(first)
    append(cluster, first, [(TopicPartition(topic, 1), 1, block(b"late"))])  # where the next epoch has not written yet
    commit(own, lambda identity: by_driver(cluster, topic, identity, b"next"))
    assert (consumed(topic), consumed(topic, 1)) == ([*values, b"next"], [b"late", b"next"])


def test_a_broker_gives_a_new_producer_id_to_an_idempotent_producer_that_names_the_one_it_has(cluster):
    held = idempotent_identity(cluster)
    request = InitProducerIdRequest(
        transactional_id=None,
        transaction_timeout_ms=60_000,
        producer_id=held.producer_id,
        producer_epoch=held.epoch,
    )
    answer = cluster.call_any(request, lambda response: [("an idempotent producer", response.error_code)])
    assert answer.producer_id != held.producer_id and answer.producer_epoch == 0
