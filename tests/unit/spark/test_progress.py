"""The progress listener without a query: events go in, figures and log lines come out."""

from __future__ import annotations

import json
import logging
import uuid
from types import SimpleNamespace

import pytest
from pyspark.sql.streaming.listener import QueryIdleEvent, QueryProgressEvent

from spark_kafka_eos import ProgressListener
from spark_kafka_eos.core.lag import Marks, OpenTransaction
from spark_kafka_eos.errors import AuthorizationFailed, BrokerUnreachable
from spark_kafka_eos.model import TopicPartition
from spark_kafka_eos.spark import progress

QUERY, RUN = uuid.UUID(int=1), uuid.UUID(int=2)
T0 = TopicPartition("t", 0)
HELD = OpenTransaction(partition=T0, start_offset=4, producer_id=9, epoch=0, transactional_id="stuck")
STABLE, STUCK = Marks(last_stable_offset=9, high_watermark=9), Marks(last_stable_offset=4, high_watermark=9)


class Kafka:
    """What the listener is told when it asks; an exception is raised. `asked` counts the questions."""

    def __init__(self, monkeypatch):
        self.marks, self.held = STABLE, {T0: HELD}
        self.asked = []
        monkeypatch.setattr(
            "spark_kafka_eos.broker.offsets.marks", lambda _, tps: self._answer("marks", tps, self.marks)
        )
        monkeypatch.setattr(progress, "oldest_open", lambda _, tps, now_ms: self._answer("held", tps, self.held))
        monkeypatch.setattr(
            progress, "Positions", lambda options, _: SimpleNamespace(partitions=lambda: self._answer("read", [T0], T0))
        )

    def _answer(self, what, partitions, answer):
        self.asked.append(what)
        if isinstance(answer, Exception):
            raise answer
        return answer if what == "held" else dict.fromkeys(partitions, answer)


@pytest.fixture
def kafka(monkeypatch):
    return Kafka(monkeypatch)


@pytest.fixture
def now():
    return SimpleNamespace(seconds=1_000.0)


@pytest.fixture
def listener(kafka, now):
    options = {"kafka.bootstrap.servers": "broker:9092", "subscribe": "t"}
    return ProgressListener(options, clock=lambda: now.seconds)


def batch(number, *, sources=None):
    source = {
        "description": "s",
        "startOffset": {"t": {"0": 0}},
        "endOffset": {"t": {"0": 4}},
        "latestOffset": {"t": {"0": 4}},
        "numInputRows": 4,
        "inputRowsPerSecond": 1.0,
        "processedRowsPerSecond": 1.0,
    }
    return QueryProgressEvent.fromJson(
        {
            "progress": {
                "id": str(QUERY),
                "runId": str(RUN),
                "name": "copy",
                "timestamp": "2026-01-01T00:00:00.000Z",
                "batchId": number,
                "batchDuration": 10,
                "stateOperators": [],
                "sources": [source] if sources is None else sources,
                "sink": {"description": "noop", "numOutputRows": -1},
            }
        }
    )


IDLE = QueryIdleEvent(id=QUERY, runId=RUN, timestamp="2026-01-01T00:00:00.000Z")


def test_each_batch_is_a_line_and_the_last_figures(listener, caplog):
    with caplog.at_level(logging.INFO):
        listener.onQueryProgress(batch(3))
    assert json.loads(caplog.messages[-1])["batch"] == 3
    found = listener.last(QUERY)
    assert found == listener.last(str(QUERY))
    assert (found.name, found.batch_id, found.sources[0].rows, found.held) == ("copy", 3, 4, False)
    assert str(found) == caplog.messages[-1]


def test_a_query_without_kafka_is_left_alone(listener, kafka):
    listener.onQueryProgress(batch(0, sources=[]))
    listener.onQueryIdle(IDLE)
    assert (kafka.asked, listener.last(QUERY)) == ([], None)


def test_a_transaction_is_looked_for_when_its_hold_has_lasted_and_no_more_often(listener, kafka, now, caplog):
    kafka.marks = STUCK
    listener.onQueryProgress(batch(0))
    assert not listener.last(QUERY).held
    for _ in range(4):
        now.seconds += 5.0
        listener.onQueryIdle(IDLE)
    assert kafka.asked.count("held") == 2, "after 10 and after 20 seconds"
    found = listener.last(QUERY)
    assert (found.batch_id, found.sources[0].held_by, found.sources[0].lso_lag) == (None, (HELD,), {T0: 5})
    assert caplog.records[-1].levelno == logging.WARNING
    assert '"transactionalId": "stuck"' in caplog.messages[-1]
    kafka.marks = STABLE
    listener.onQueryIdle(IDLE)
    assert not listener.last(QUERY).held


def test_a_query_that_has_had_no_batch_is_taken_to_read_what_the_options_name(listener, kafka):
    kafka.marks = STUCK
    listener.onQueryIdle(IDLE)
    assert listener.last(QUERY).sources[0].lso_lag == {T0: 5}
    assert kafka.asked == ["read", "marks"]


def test_what_kafka_does_not_answer_is_logged_once_until_it_answers_again(listener, kafka, now, caplog):
    kafka.marks = BrokerUnreachable("nobody there")
    for _ in range(3):
        listener.onQueryProgress(batch(0))
        now.seconds += 31.0
    assert kafka.asked.count("marks") == 3
    listener.onQueryProgress(batch(0))
    listener.onQueryProgress(batch(1))
    assert kafka.asked.count("marks") == 4, "not at every batch"
    assert listener.last(QUERY).sources[0].lso_lag is None
    kafka.marks = STABLE
    now.seconds += 31.0
    listener.onQueryProgress(batch(2))
    assert listener.last(QUERY).sources[0].lso_lag == {T0: 0}
    kafka.marks = BrokerUnreachable("nobody there")
    listener.onQueryProgress(batch(3))
    assert (
        len(
            [
                message
                for message in caplog.messages
                if "cannot get the lag from Kafka (the query is not affected): nobody there" in message
            ]
        )
        == 2
    )


def test_a_missing_right_hides_the_name_and_not_the_lag(listener, kafka, now, caplog):
    kafka.marks = STUCK
    kafka.held = AuthorizationFailed("DescribeProducers", 29, "TOPIC_AUTHORIZATION_FAILED", "t-0", action="Grant Read.")
    for _ in range(6):
        listener.onQueryProgress(batch(0))
        now.seconds += 20.0
    assert listener.last(QUERY).sources[0].lso_lag == {T0: 5}
    assert not listener.last(QUERY).held
    assert len([message for message in caplog.messages if "Grant Read" in message]) == 1


def test_a_broker_that_is_not_there_keeps_spark_waiting_for_seconds_at_most():
    options = {"kafka.bootstrap.servers": "broker:9092", "subscribe": "t"}
    client = ProgressListener(options)._options.client
    assert (
        max(client.request_timeout_ms, client.socket_connection_setup_timeout_ms, client.delivery_timeout_ms) == 5_000
    )
