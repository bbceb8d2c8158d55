"""A broker that is paused for longer than a transaction may last: what the driver says, wherever it notices it, and
that it writes the batch again.
"""

from __future__ import annotations

import itertools
import time

import pyarrow as pa
import pytest

from spark_kafka_eos.appending.append import append
from spark_kafka_eos.appending.append_task import append_attempt, judge
from spark_kafka_eos.appending.barrier import StageAttempts
from spark_kafka_eos.appending.blocks import Block
from spark_kafka_eos.appending.report import Appended
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.wire.encode import encode
from spark_kafka_eos.ledger.decide import decide_micro_batch
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.options import sink_options
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from spark_kafka_eos.transaction.commit import commit_batch
from spark_kafka_eos.transaction.shared import SharedTransaction
from tests.batches import BY_DRIVER, reads

pytestmark = pytest.mark.broker

TIMEOUT_MS = 2_000
numbers = itertools.count(1)


@pytest.fixture(scope="module", params=["kafka_version", "tv1_version"], ids=["TV2", "TV1"])
def either_kafka(request):
    """A broker of this module's own, to be paused."""
    with EmbeddedKafka(request.getfixturevalue(request.param)) as kafka:
        yield kafka


@pytest.fixture
def topic(either_kafka):
    return either_kafka.create_topic(f"paused-{next(numbers)}", 2)


@pytest.fixture
def pause(either_kafka, cluster, topic, await_state):
    """`pause()`: for longer than the transaction may last, and until the coordinator has noticed."""

    def pause():
        either_kafka.pause()
        try:
            time.sleep(TIMEOUT_MS / 1e3)
        finally:
            either_kafka.resume()
        either_kafka.await_ready()
        await_state(topic, "CompleteAbort")

    return pause


def record(value):
    return encode(pa.array([None], pa.binary()), pa.array([value]), int(time.time() * 1000))


def by_driver(cluster, identity, partitions, value):
    append(cluster, identity, [(tp, 1, record(value)) for tp in partitions], partitions=partitions)


def by_executors(cluster, identity, partitions, value):
    """As one append task, whose report the driver judges."""
    blocks = [Block(partition=tp, task=0, number=0, records=1, data=record(value)) for tp in partitions]
    report = append_attempt(cluster, identity, blocks, stage_id=1, slot=0, attempt=0, batch_id=0)
    if report.error is not None:
        judge([report], lambda _: {1: StageAttempts(current_attempt=0, completed_tasks=1, failed_tasks=0, num_tasks=1)})


def write_batch(monkeypatch, cluster, bootstrap, topic, way, *, pause, when):
    """A batch during which the broker is paused, in its first attempt; returns its report."""
    given = {"kafka.bootstrap.servers": bootstrap, "kafka.transactional.id": topic, "topic": topic}
    options = sink_options(given | {"kafka.transaction.timeout.ms": TIMEOUT_MS})
    transaction = SharedTransaction(options, cluster, decide_micro_batch(options))
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    tried = []

    def write(identity):
        tried.append(identity)
        number = b"%d" % len(tried)
        way(cluster, identity, [first], number)
        pausing = len(tried) == 1
        if pausing and when == "append":
            pause()
        way(cluster, identity, [second], number)
        if pausing and when == "commit":
            pause()
        return Appended(partitions=2, records=2, bytes=2)

    end = TopicPartition(topic, 0)
    batch = MicroBatch(query_id="q", batch_id=0, digest="", sources=reads({end: 0}, {end: 1}))
    if when == "end":
        send = transaction.steps.ledger.send

        def sent(*args, **kwargs):
            entry = send(*args, **kwargs)
            if len(tried) == 1:
                pause()
            return entry

        monkeypatch.setattr(transaction.steps.ledger, "send", sent)
    return commit_batch(transaction, batch, write, max_attempts=2, choice=BY_DRIVER)


@pytest.mark.parametrize(
    ("when", "way", "answered"),
    [
        ("append", by_driver, {"TV1": "AddPartitionsToTxn", "TV2": "Produce"}),
        ("append", by_executors, {"TV1": "AddPartitionsToTxn", "TV2": "Produce"}),
        ("commit", by_driver, {"TV1": "AddPartitionsToTxn", "TV2": "Produce"}),
        ("end", by_driver, {"TV1": "EndTxn", "TV2": "EndTxn"}),
    ],
)
def test_a_pause_beyond_the_timeout_is_named_and_the_batch_written_again(
    monkeypatch, cluster, either_kafka, topic, consumed, pause, when, way, answered
):
    report = write_batch(monkeypatch, cluster, either_kafka.bootstrap, topic, way, pause=pause, when=when)
    assert report.outcome == "committed"
    (why,) = report.redone
    protocol = "TV1" if either_kafka.version.startswith("3") else "TV2"
    told = f"the coordinator aborted the transaction after kafka.transaction.timeout.ms ({TIMEOUT_MS})"
    assert f"{told}: {answered[protocol]} answered " in why
    assert consumed(topic, 0) == consumed(topic, 1) == [b"2"]
