"""What a transactional.id meets when it lives long: it expires, and its epochs run out. On real brokers."""

from __future__ import annotations

import itertools
import struct
import time

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as RdTopicPartition

from spark_kafka_eos.appending.append import append
from spark_kafka_eos.appending.report import Appended
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol import describe
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from spark_kafka_eos.transaction.commit import commit_batch
from tests.batches import BY_DRIVER

pytestmark = pytest.mark.broker

LAST_EPOCH = 2**15 - 2  # the coordinator keeps 32767 for itself, to fence with
EXPIRING = {
    "transactional.id.expiration.ms": 2_000,
    "transaction.remove.expired.transaction.cleanup.interval.ms": 100,
}

numbers = itertools.count(1)


def brokers(config):
    """One of each protocol, this module's own."""
    versions = [("kafka_version", config), ("tv1_version", config)]
    return pytest.mark.parametrize("either_kafka", versions, indirect=True, ids=["TV2", "TV1"])


@pytest.fixture(scope="module")
def either_kafka(request):
    version, config = request.param
    with EmbeddedKafka(request.getfixturevalue(version), config=config) as kafka:
        yield kafka


@pytest.fixture
def topic(either_kafka):
    return either_kafka.create_topic(f"long-{next(numbers)}", 1)


@pytest.fixture
def run(cluster, topic, record_batch):
    """`run(transaction, number, records=1)`: the whole micro-batch `number`, that many records of its number."""

    def run(transaction, number, records=1):
        def write(identity):
            block = record_batch(None, 0, [b"%d" % number])
            append(cluster, identity, [(TopicPartition(topic, 0), 1, block)] * records)
            return Appended(partitions=records, records=records, bytes=records)

        batch = MicroBatch(query_id="query", batch_id=number, digest=f"digest {number}")
        return commit_batch(transaction, batch, write, max_attempts=2, choice=BY_DRIVER)

    return run


@brokers(EXPIRING)
@pytest.mark.parametrize("records", [1, 0], ids=["with records", "without records"])
def test_an_idle_owner_whose_id_expired_continues(owner, run, cluster, topic, consumed, records):
    transaction = owner()
    before = run(transaction, 0)
    deadline = time.monotonic() + 60
    while describe.transaction(cluster, f"id-{topic}", now_ms=0) is not None:
        assert time.monotonic() < deadline, "the id does not expire"
        time.sleep(0.1)
    after = run(transaction, 1, records)
    assert after.outcome == "committed"
    assert after.producer_id != before.producer_id, "it did not expire"
    run(transaction, 2)
    assert consumed(topic) == [b"0"] + [b"1"] * records + [b"2"]


@brokers({})
def test_when_the_epochs_run_out_a_new_producer_id_continues(either_kafka, owner, run, topic, consumed):
    before = run(owner(), 0)
    age(either_kafka, f"id-{topic}", LAST_EPOCH - 3)
    transaction = owner()
    reports = [run(transaction, number) for number in range(1, 7)]
    assert [report.outcome for report in reports] == ["committed"] * 6
    assert [report.redone for report in reports] == [()] * 6
    identities = [(report.producer_id, report.epoch) for report in reports]
    old, new = before.producer_id, reports[-1].producer_id
    assert identities == [(old, epoch) for epoch in range(LAST_EPOCH - 2, LAST_EPOCH + 1)] + [
        (new, n) for n in range(3)
    ]
    assert new != old
    assert consumed(topic) == [b"%d" % number for number in range(7)]


def age(kafka, transactional_id, epoch):
    """Let the transactional.id have `epoch`: its newest record in the coordinator's log again, with that epoch.

    32,000 epochs one by one would take half a minute.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "group.id": "nobody",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_uncommitted",
        }
    )
    log = RdTopicPartition("__transaction_state", 0, 0)
    consumer.assign([log])
    key = struct.pack(">hh", 0, len(transactional_id)) + transactional_id.encode()
    newest = bytearray()
    while (message := consumer.poll(20)) is not None and message.error() is None:
        if message.key() == key:
            newest = bytearray(message.value() or b"")
    consumer.close()
    assert newest, "the transactional.id is not in the log"
    struct.pack_into(">h", newest, 10, epoch)  # after the version and the producer id
    # Of all clients, only one of this name may write there.
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "client.id": "__admin_client", "log_level": 0})
    producer.produce("__transaction_state", value=bytes(newest), key=key, partition=0)
    assert producer.flush(20) == 0
    kafka.restart()  # the coordinator reads its log again
