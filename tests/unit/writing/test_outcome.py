"""What the process that commits a batch reports of it to the listener."""

from __future__ import annotations

import queue

import pytest

from spark_kafka_eos.broker.datagrams import Collector
from spark_kafka_eos.core.outcome import BatchOutcome
from spark_kafka_eos.errors import AttemptsExhausted, KafkaEosError, LedgerRefused, ProducerFenced
from spark_kafka_eos.model import MicroBatch
from spark_kafka_eos.options import sink_options
from spark_kafka_eos.writing.outcome import failed, telling
from spark_kafka_eos.writing.report import CommitReport

OPTIONS = sink_options({"kafka.bootstrap.servers": "b:1", "kafka.transactional.id": "orders", "topic": "out"})
BATCH = MicroBatch(query_id="q", batch_id=7, digest="", start={}, end={})
REPORT = CommitReport(
    query_id="q",
    batch_id=7,
    outcome="committed",
    producer_id=1,
    epoch=4,
    append_mode="driver",
    records=10,
    bytes=500,
    milliseconds={"end": 3.0},
    redone=("a task ran twice",),
)


@pytest.fixture
def heard():
    """The collector's address, and what arrives there."""
    arrived: queue.SimpleQueue[BatchOutcome] = queue.SimpleQueue()
    collector = Collector(bind="127.0.0.1", host="127.0.0.1", committed=arrived.put)
    yield collector.address_and_key, lambda: arrived.get(timeout=30)
    collector.close()


def test_a_batch_that_is_committed_is_reported_with_its_figures(heard):
    address, told = heard
    assert telling(address, OPTIONS, BATCH, lambda: REPORT) is REPORT
    outcome = told()
    assert (outcome.query_id, outcome.batch_id, outcome.transactional_id) == ("q", 7, "orders")
    assert (outcome.outcome, outcome.error, outcome.redone, outcome.epoch) == ("committed", "", 1, 4)
    assert (outcome.records, outcome.bytes, outcome.milliseconds) == (10, 500, {"end": 3.0})


def test_an_error_is_reported_by_its_class_alone_and_raised(heard):
    address, told = heard

    def refuse():
        raise LedgerRefused("the ledger of 'secret' has another batch")

    with pytest.raises(LedgerRefused):
        telling(address, OPTIONS, BATCH, refuse)
    outcome = told()
    assert (outcome.outcome, outcome.error) == ("refused", "LedgerRefused")
    assert "secret" not in str(outcome)


@pytest.mark.parametrize(
    ("error", "redone"),
    [(ProducerFenced("x"), 0), (AttemptsExhausted("x"), 2), (KafkaEosError("x"), 0), (OSError(), 0)],
)
def test_any_other_error_is_a_batch_that_failed(error, redone):
    outcome = failed(OPTIONS, BATCH, error, 5.0)
    assert (outcome.outcome, outcome.error, outcome.redone) == ("failed", type(error).__name__, redone)


def test_without_a_listener_nothing_is_reported():
    assert telling(None, OPTIONS, BATCH, lambda: REPORT) is REPORT


def test_a_listener_that_is_gone_fails_no_batch(heard):
    address, _ = heard
    host, _, key = address.rsplit(":", 2)
    assert telling(f"{host}:9:{key}", OPTIONS, BATCH, lambda: REPORT) is REPORT
    assert telling(f"no.such.host.invalid:9:{key}", OPTIONS, BATCH, lambda: REPORT) is REPORT
