"""What the process that commits a batch reports of it to the listener."""

from __future__ import annotations

import queue
from dataclasses import replace

import pytest
from pyspark import TaskContext

from spark_kafka_eos.appending.report import CommitReport
from spark_kafka_eos.kafka.protocol.trace import Request, Trace
from spark_kafka_eos.observe import datagrams
from spark_kafka_eos.observe.datagrams import Collector
from spark_kafka_eos.observe.observers import observer
from spark_kafka_eos.observe.outcomes import outcome_of
from spark_kafka_eos.observe.tallies import BatchOutcome
from spark_kafka_eos.options import sink_options, source_options
from spark_kafka_eos.reading import records
from spark_kafka_eos.spark import source

OPTIONS = sink_options({"kafka.bootstrap.servers": "b:1", "kafka.transactional.id": "orders", "topic": "out"})
END = Request(api="EndTxn", node="b:1", start=0.0, milliseconds=1.0)
REPORT = CommitReport(
    query_id="q",
    batch_id=7,
    outcome="committed",
    producer_id=1,
    epoch=4,
    append_mode="driver",
    records=10,
    bytes=500,
    milliseconds={"begin": 1.0, "end": 3.0},
    redone=("a task ran twice",),
    trace=Trace(began_ms=0.0, milliseconds=5.0, requests=(replace(END, error="NOT_COORDINATOR"), END)),
)


@pytest.fixture
def heard():
    """The collector's address, and what arrives there."""
    arrived: queue.SimpleQueue[BatchOutcome] = queue.SimpleQueue()
    collector = Collector(bind="127.0.0.1", host="127.0.0.1", committed=arrived.put)
    yield collector.address_and_key, lambda: arrived.get(timeout=30)
    collector.close()


def test_a_batch_is_reported_with_its_figures(heard):
    address, told = heard
    observer(OPTIONS, address)(REPORT)
    outcome = told()
    assert (outcome.query_id, outcome.batch_id, outcome.transactional_id) == ("q", 7, "orders")
    assert (outcome.outcome, outcome.error, outcome.aborted_attempts, outcome.epoch) == ("committed", "", 1, 4)
    assert outcome.retries == {"NOT_COORDINATOR": 1}
    assert (outcome.records, outcome.bytes, outcome.milliseconds) == (10, 500, {"begin": 1.0, "end": 3.0})


def test_a_batch_that_was_refused_before_it_had_an_epoch_has_none(heard):
    address, told = heard
    observer(OPTIONS, address)(replace(REPORT, outcome="refused", error="LedgerRefused", epoch=-1))
    outcome = told()
    committed = outcome_of(REPORT, "orders", outcome.ended_at)
    assert outcome == replace(committed, outcome="refused", error="LedgerRefused", epoch=None)


def test_a_listener_that_is_gone_fails_no_batch(heard):
    address, _ = heard
    host, _, key = address.rsplit(":", 2)
    for gone in (f"{host}:9:{key}", f"no.such.host.invalid:9:{key}"):
        observer(OPTIONS, gone)(REPORT)


def test_without_a_listener_neither_a_commit_nor_a_task_sends_anything(monkeypatch):
    class Context:
        def getLocalProperty(self, name):
            return None

    monkeypatch.setattr(datagrams, "_send", lambda *_: pytest.fail("somebody sends"))
    monkeypatch.setattr(TaskContext, "get", staticmethod(Context))
    monkeypatch.setattr(records, "read", lambda *_: iter(()))
    observer(OPTIONS)(REPORT)
    client = source_options({"kafka.bootstrap.servers": "b:1", "subscribe": "t"})
    assert list(source.read_records([], client)) == []
