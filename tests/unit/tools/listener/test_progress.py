"""The progress listener without a query: events go in, figures and log lines come out."""

from __future__ import annotations

import json
import logging
import urllib.request
import uuid
from collections import Counter, defaultdict
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.streaming.listener import QueryIdleEvent, QueryProgressEvent, QueryStartedEvent, QueryTerminatedEvent

from spark_kafka_eos import ProgressListener
from spark_kafka_eos.errors import AuthorizationFailed, BrokerUnreachable, ConfigurationError
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol import retry
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.facts import LogEnds
from spark_kafka_eos.kafka.protocol.log_pace import LogPace
from spark_kafka_eos.observe import query_metrics, trace_file
from spark_kafka_eos.observe.lag import OpenTransaction
from spark_kafka_eos.source_offset import Origin, SourceOffset
from spark_kafka_eos.tools.listener.progress import Questions

QUERY, RUN = uuid.UUID(int=1), uuid.UUID(int=2)
T0 = TopicPartition("t", 0)
HELD = OpenTransaction(partition=T0, start_offset=4, producer_id=9, epoch=0, transactional_id="stuck")
STABLE, STUCK = LogEnds(last_stable_offset=9, high_watermark=9), LogEnds(last_stable_offset=4, high_watermark=9)


class Kafka(Questions):
    """The answers to the listener's requests; an exception is raised. `asked` counts the requests."""

    def __init__(self, options=None):
        self.answers = {"cluster": "here", "log_ends": STABLE, "held": HELD}
        self.asked = []

    def close(self):
        """There are no connections."""

    def cluster_id(self):
        return self._answer("cluster", ())

    def partitions(self):
        self.asked.append("read")
        return [T0]

    def log_ends(self, partitions):
        return self._answer("log_ends", partitions)

    def oldest_open(self, partitions, now_ms):
        return self._answer("held", partitions)

    def first_times(self, start, end):
        self.asked.append("oldest")
        return dict.fromkeys(start, 970_000)

    def _answer(self, what, partitions):
        self.asked.append(what)
        if isinstance(answer := self.answers[what], Exception):
            raise answer
        return answer if what == "cluster" else dict.fromkeys(partitions, answer)


class Listener(ProgressListener):
    questions = Kafka


@pytest.fixture
def kafka(listener):
    return listener._kafka


@pytest.fixture
def now():
    return SimpleNamespace(seconds=1_000.0)


@pytest.fixture
def listener(now):
    options = {"kafka.bootstrap.servers": "broker:9092", "subscribe": "t"}
    return Listener(options, clock=lambda: now.seconds)


def batch(number, *, sources=None, query=QUERY, phases=None):
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
                "id": str(query),
                "runId": str(RUN),
                "name": "copy",
                "timestamp": "2026-01-01T00:00:00.000Z",
                "batchId": number,
                "batchDuration": 10,
                "durationMs": phases or {},
                "stateOperators": [],
                "sources": [source] if sources is None else sources,
                "sink": {"description": "noop", "numOutputRows": -1},
            }
        }
    )


IDLE = QueryIdleEvent(id=QUERY, runId=RUN, timestamp="2026-01-01T00:00:00.000Z")


def of_cluster(name, end=4):
    """A source that reads T0 there, as the connector's own reports it."""
    end = SourceOffset(offsets={T0: end}, origin=Origin(cluster=name)).to_json()
    [source] = json.loads(batch(0).progress.json)["sources"]
    return {**source, "endOffset": end}


def test_each_batch_is_a_line_and_the_last_figures(listener, caplog):
    with caplog.at_level(logging.DEBUG, "spark_kafka_eos.spark.progress"):
        listener.onQueryProgress(batch(3))
        assert json.loads(caplog.messages[-1])["batch_id"] == 3
        listener.onQueryIdle(IDLE)
    assert [(record.levelno, json.loads(record.message)["batch_id"]) for record in caplog.records] == [
        (logging.INFO, 3),
        (logging.DEBUG, None),
    ]
    caplog.clear()
    with caplog.at_level(logging.INFO):
        listener.onQueryProgress(batch(3))
    figures = listener.last(QUERY)
    assert figures == listener.last(str(QUERY))
    assert (figures.name, figures.batch_id, figures.sources[0].rows, figures.held) == ("copy", 3, 4, False)
    assert str(figures) == caplog.messages[-1]


def test_with_trace_dir_the_phases_of_a_trigger_are_kept_for_the_command(now, tmp_path):
    options = {"kafka.bootstrap.servers": "broker:9092", "subscribe": "t", "traceDir": str(tmp_path)}
    listener = Listener(options, clock=lambda: now.seconds)
    listener.onQueryProgress(batch(3, phases={"addBatch": 5, "triggerExecution": 9}))
    listener.onQueryProgress(batch(4, phases={"latestOffset": 1}))  # a trigger without a batch
    began_ms = 1_767_225_600_000  # 2026-01-01
    assert trace_file.read_trigger(tmp_path, str(QUERY), 3) == (began_ms, {"addBatch": 5, "triggerExecution": 9})
    assert trace_file.read_trigger(tmp_path, str(QUERY), 4) is None


def test_the_figures_of_many_ended_queries_take_no_memory(listener):
    first, second, *others = (uuid.UUID(int=number) for number in range(10, 111))
    for query in (first, second, *others[:-1], first, others[-1]):
        listener.onQueryProgress(batch(0, query=query))
    assert [query for query in (first, second, *others) if listener.last(query) is None] == [second]


def test_a_query_without_kafka_is_left_alone(listener, kafka):
    listener.onQueryProgress(batch(0, sources=[]))
    listener.onQueryIdle(IDLE)
    assert (kafka.asked, listener.last(QUERY)) == ([], None)


def test_a_transaction_is_looked_for_when_its_hold_has_lasted_and_no_more_often(listener, kafka, now, caplog):
    kafka.answers["log_ends"] = STUCK
    listener.onQueryProgress(batch(0))
    assert not listener.last(QUERY).held
    for _ in range(4):
        now.seconds += 5.0
        listener.onQueryIdle(IDLE)
    assert kafka.asked.count("held") == 2, "after 10 and after 20 seconds"
    figures = listener.last(QUERY)
    assert (figures.batch_id, figures.sources[0].held_by, figures.sources[0].lso_lag) == (None, (HELD,), {T0: 5})
    assert caplog.records[-1].levelno == logging.WARNING
    assert '"transactional_id": "stuck"' in caplog.messages[-1]
    kafka.answers["log_ends"] = STABLE
    now.seconds += 5.0
    listener.onQueryIdle(IDLE)
    assert not listener.last(QUERY).held


def test_a_query_that_has_had_no_batch_is_assumed_to_read_what_the_options_name(listener, kafka):
    kafka.answers["log_ends"] = STUCK
    listener.onQueryIdle(IDLE)
    assert listener.last(QUERY).sources[0].lso_lag == {T0: 5}
    assert kafka.asked == ["read", "log_ends"]


def test_a_query_that_reads_another_cluster_has_no_lag_and_is_not_held_by_what_holds_a_topic_of_that_name(
    listener, kafka, now
):
    kafka.answers["log_ends"] = STUCK
    for _ in range(3):
        listener.onQueryProgress(batch(0, sources=[of_cluster("elsewhere"), of_cluster("here")]))
        now.seconds += 20.0
    far, near = listener.last(QUERY).sources
    assert (far.rows, far.lso_lag, far.held_by) == (4, None, ())
    assert (near.rows, near.lso_lag, near.held_by) == (4, {T0: 5}, (HELD,))
    listener.onQueryProgress(batch(1, sources=[of_cluster("elsewhere")]))
    assert shown(listener, query_metrics.LAG) == {}
    assert not listener.last(QUERY).held
    assert shown(listener, query_metrics.KAFKA_UP) == {(): 1}, "nothing was asked"
    listener.onQueryIdle(IDLE)
    assert listener.last(QUERY).sources[0].lso_lag is None


@pytest.mark.parametrize("ends", [(4, 9), (9, 4)])
def test_of_two_sources_that_read_one_topic_the_one_that_is_behind_counts(listener, ends):
    listener.onQueryProgress(batch(0, sources=[of_cluster("here", end) for end in ends]))
    assert shown(listener, query_metrics.LAG) == {("copy", "t"): 5}


def test_until_the_listeners_cluster_is_known_no_lag_is_that_of_a_query(listener, kafka, now):
    kafka.answers["cluster"] = BrokerUnreachable("nobody there")
    listener.onQueryProgress(batch(0, sources=[of_cluster("here")]))
    assert (listener.last(QUERY).sources[0].lso_lag, shown(listener, query_metrics.KAFKA_UP)) == (None, {(): 0})
    kafka.answers["cluster"] = "here"
    now.seconds += 31.0
    listener.onQueryProgress(batch(1, sources=[of_cluster("here")]))
    assert (listener.last(QUERY).sources[0].lso_lag, shown(listener, query_metrics.KAFKA_UP)) == ({T0: 0}, {(): 1})


def test_what_kafka_does_not_answer_is_logged_once_until_it_answers_again(listener, kafka, now, caplog):
    kafka.answers["log_ends"] = BrokerUnreachable("nobody there")
    for _ in range(3):
        listener.onQueryProgress(batch(0))
        now.seconds += 31.0
    assert kafka.asked.count("log_ends") == 3
    listener.onQueryProgress(batch(0))
    listener.onQueryProgress(batch(1))
    assert kafka.asked.count("log_ends") == 4, "not at every batch"
    assert listener.last(QUERY).sources[0].lso_lag is None
    kafka.answers["log_ends"] = STABLE
    now.seconds += 31.0
    listener.onQueryProgress(batch(2))
    assert listener.last(QUERY).sources[0].lso_lag == {T0: 0}
    kafka.answers["log_ends"] = BrokerUnreachable("nobody there")
    now.seconds += 1.0
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
    kafka.answers["log_ends"] = STUCK
    kafka.answers["held"] = AuthorizationFailed(
        "DescribeProducers", 29, "TOPIC_AUTHORIZATION_FAILED", "t-0", action="Grant Read."
    )
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


# -- metrics

STARTED = QueryStartedEvent(id=QUERY, runId=RUN, name="copy", timestamp="2026-01-01T00:00:00.000Z", jobTags=set())


def shown(listener, metric):
    return dict(listener._metrics.series(1_000.0).values(metric))


def ended(exception):
    return QueryTerminatedEvent(id=QUERY, runId=RUN, exception=exception, errorClassOnException=None)


def test_a_querys_life_is_in_the_metrics(listener, kafka, now):
    listener.onQueryStarted(STARTED)
    assert shown(listener, query_metrics.RUNNING) == {("copy",): 1}
    listener.onQueryProgress(batch(3))
    assert shown(listener, query_metrics.LAST_BATCH) == {("copy",): 1_000.0}
    assert shown(listener, query_metrics.RECORDS_READ) == {("copy",): 4}
    assert shown(listener, query_metrics.LAG) == {("copy", "t"): 5}, "the batch ended at 4, and 9 is stable"
    assert shown(listener, query_metrics.KAFKA_UP) == {(): 1}
    listener.onQueryTerminated(ended("boom"))
    assert shown(listener, query_metrics.RUNNING) == {("copy",): 0}
    assert shown(listener, query_metrics.FAILURES) == {("copy",): 1}
    assert shown(listener, query_metrics.FAILED) == {("copy",): 1}


def test_a_query_that_is_stopped_has_not_failed(listener):
    listener.onQueryStarted(STARTED)
    listener.onQueryTerminated(ended(None))
    assert shown(listener, query_metrics.FAILURES) == {("copy",): 0}
    assert shown(listener, query_metrics.FAILED) == {("copy",): 0}


def test_an_idle_query_without_a_batch_has_no_lag_that_is_known_but_is_held(listener, kafka, now):
    kafka.answers["log_ends"] = STUCK
    listener.onQueryStarted(STARTED)
    listener.onQueryIdle(IDLE)
    now.seconds += 20.0
    listener.onQueryIdle(IDLE)
    assert shown(listener, query_metrics.LAG) == {}
    assert shown(listener, query_metrics.LSO_LAG) == {("copy", "t"): 5}
    assert shown(listener, query_metrics.OPEN_AGE) == {("copy", "t"): 20.0}, "the coordinator does not say its age"


def test_an_answer_that_takes_long_counts_ten_times_as_long(listener, kafka, now, monkeypatch):
    def slow(partitions):
        kafka.asked.append("log_ends")
        now.seconds += 0.5
        return dict.fromkeys(partitions, STABLE)

    monkeypatch.setattr(kafka, "log_ends", slow)
    for number in range(110):
        listener.onQueryProgress(batch(number))
        now.seconds += 0.1
    assert kafka.asked.count("log_ends") == 3


def test_small_batches_do_not_ask_more_often_than_once_a_second(listener, kafka, now):
    for number in range(30):
        listener.onQueryProgress(batch(number))
        now.seconds += 0.125
    assert kafka.asked.count("log_ends") == 4
    assert shown(listener, query_metrics.LAG) == {("copy", "t"): 5}


def test_while_kafka_does_not_answer_the_metrics_say_so_and_show_no_lag(listener, kafka, now):
    listener.onQueryProgress(batch(0))
    now.seconds += 1.0
    kafka.answers["log_ends"] = BrokerUnreachable("nobody there")
    listener.onQueryProgress(batch(1))
    assert shown(listener, query_metrics.KAFKA_UP) == {(): 0}
    assert shown(listener, query_metrics.LAG) == {}
    assert shown(listener, query_metrics.RECORDS_READ) == {("copy",): 8}


def test_with_an_endpoint_the_oldest_unread_record_is_looked_up_now_and_then(now):
    options = {"kafka.bootstrap.servers": "broker:9092", "subscribe": "t"}
    listening = Listener(options | {"metricsPort": 0}, clock=lambda: now.seconds)
    kafka: Any = listening._kafka
    try:
        for number in range(3):
            listening.onQueryProgress(batch(number))
        assert kafka.asked.count("oldest") == 1
        assert shown(listening, query_metrics.LAG_SECONDS) == {("copy", "t"): 30.0}
        kafka.answers["log_ends"] = STUCK  # at 4, where the batch ended
        now.seconds += 1.0
        listening.onQueryIdle(IDLE)
        assert shown(listening, query_metrics.LAG_SECONDS) == {("copy", "t"): 0.0}
        asked = list(kafka.asked)
        with urllib.request.urlopen(f"http://{listening.metrics_address}/metrics") as response:
            assert b'kafka_eos_lag_seconds{query="copy",topic="t"} 0.0' in response.read()
        assert kafka.asked == asked, "a scrape asks nobody"
    finally:
        listening.close()


def test_without_an_endpoint_no_record_is_fetched(listener, kafka):
    listener.onQueryProgress(batch(0))
    assert "oldest" not in kafka.asked


def test_the_endpoint_is_opened_only_with_its_option_and_closed_with_the_listener(now):
    options = {"kafka.bootstrap.servers": "broker:9092", "subscribe": "t"}
    assert Listener(options).metrics_address is None
    listening = Listener(options | {"metricsPort": 0})
    host, _, port = str(listening.metrics_address).rpartition(":")
    assert host == "127.0.0.1", "nobody else, unless asked for"
    with pytest.raises(ConfigurationError, match="metricsPort"):
        Listener(options | {"metricsPort": port})
    listening.close()
    Listener(options | {"metricsPort": port}).close()


def test_an_hour_without_a_broker_is_a_line_a_minute_at_most(now, caplog, monkeypatch):
    monkeypatch.setattr(retry, "_paces", defaultdict(lambda: LogPace(lambda: now.seconds)))

    def refused(host, port, _):
        raise BrokerUnreachable(f"no connection to {host}:{port}")

    def sleep(seconds):
        now.seconds += seconds

    class Unanswered(Questions):
        def __init__(self, options):
            super().__init__(options)
            self._cluster = Cluster(options.client, connect=refused, clock=lambda: now.seconds, sleep=sleep)

    class Away(ProgressListener):
        questions = Unanswered

    listener = Away({"kafka.bootstrap.servers": "broker:9092", "subscribe": "t"}, clock=lambda: now.seconds)
    caplog.set_level(logging.INFO, "spark_kafka_eos")
    listener.onQueryProgress(batch(3))
    while now.seconds < 4_600:
        sleep(10)  # Spark's interval between two events of an idle query
        listener.onQueryIdle(IDLE)
    levels = Counter(record.levelno for record in caplog.records)
    assert levels[logging.WARNING] <= 62
    assert levels.total() <= 70
