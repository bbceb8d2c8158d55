"""The metrics of a session's queries, from events and outcomes to values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.observe import query_metrics as m
from spark_kafka_eos.observe.metrics import BUCKETS, MOST_TOPICS, OTHER_TOPICS, Series, by_topic
from spark_kafka_eos.observe.progress import QueryFigures, SourceFigures
from spark_kafka_eos.observe.query_metrics import MOST_QUERIES, QUERY_METRICS, QueryMetrics
from spark_kafka_eos.observe.tallies import BatchOutcome, IntervalTally

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def outcome(**given):
    fields: dict[str, Any] = {
        "query_id": "id",
        "batch_id": 7,
        "transactional_id": "orders",
        "outcome": "committed",
        "ended_at": 1_000.0,
    }
    return BatchOutcome(**(fields | given))


def figures(*sources):
    return QueryFigures(query_id="id", run_id="run", name="copy", batch_id=7, sources=sources)


@pytest.fixture
def metrics():
    queries = QueryMetrics()
    queries.started("id", "copy", now=10.0)
    return queries


def values(metrics, metric):
    return dict(metrics.series(1_000.0).values(metric))


def test_a_committed_batch_is_counted_with_its_figures(metrics):
    batch = outcome(
        records=10, bytes=500, epoch=3, aborted_attempts=1, milliseconds={"begin": 4.0, "end": 20.0}, retries={"X": 2}
    )
    metrics.committed(batch)
    metrics.committed(batch)
    assert values(metrics, m.BATCHES) == {("copy", "committed"): 2}
    assert values(metrics, m.ABORTED) == {("copy",): 2}
    assert values(metrics, m.RECORDS_WRITTEN) == {("copy",): 20}
    assert values(metrics, m.BYTES_WRITTEN) == {("copy",): 1_000}
    assert values(metrics, m.RETRIES) == {("copy", "X"): 4}
    assert values(metrics, m.EPOCH) == {("copy",): 3}
    assert values(metrics, m.LEDGER_BATCH) == {("copy",): 7}
    assert values(metrics, m.LAST_COMMIT) == {("copy",): 1_000.0}
    assert values(metrics, m.INFO) == {("copy", "id", "orders"): 1}
    begin = metrics.series(1_000.0).durations(m.STEP)["copy", "begin"]
    assert dict(begin.cumulated()) == dict.fromkeys([*map(str, BUCKETS), "+Inf"], 2)
    assert begin.total == pytest.approx(0.008)


def test_dead_letters_are_counted_by_cause_and_a_users_own_causes_together(metrics):
    metrics.committed(outcome(dead_letters={"undecodable": 3, "late": 1, "cheap": 1}))
    metrics.committed(outcome(dead_letters={"undecodable": 1}))
    assert values(metrics, m.DEAD_LETTERS) == {("copy", "undecodable"): 4, ("copy", "other"): 2}


def test_a_refused_batch_moves_neither_ledger_nor_epoch(metrics):
    metrics.committed(outcome())
    metrics.committed(outcome(batch_id=8, outcome="refused", error="LedgerRefused", ended_at=2_000.0))
    metrics.committed(outcome(batch_id=8, outcome="failed", error="BrokerUnreachable", ended_at=3_000.0))
    assert values(metrics, m.BATCHES) == {
        ("copy", "committed"): 1,
        ("copy", "refused"): 1,
        ("copy", "failed"): 1,
    }
    assert values(metrics, m.ERRORS) == {("copy", "LedgerRefused"): 1, ("copy", "BrokerUnreachable"): 1}
    assert values(metrics, m.LEDGER_BATCH) == {("copy",): 7}
    assert values(metrics, m.LAST_COMMIT) == {("copy",): 1_000.0}
    assert values(metrics, m.EPOCH) == {}


def test_a_skipped_batch_is_in_the_ledger_but_was_not_committed_now(metrics):
    metrics.committed(outcome(outcome="skipped"))
    assert (values(metrics, m.LEDGER_BATCH), values(metrics, m.LAST_COMMIT)) == ({("copy",): 7}, {})


def test_without_a_ledger_there_is_no_batch_of_it(metrics):
    metrics.committed(outcome(transactional_id=""))
    assert (values(metrics, m.LEDGER_BATCH), values(metrics, m.LAST_COMMIT)) == ({}, {("copy",): 1_000.0})


def test_a_trigger_is_a_duration_and_its_phases(metrics):
    metrics.completed("id", "copy", now=50.0, phases={"triggerExecution": 400, "addBatch": 300})
    assert values(metrics, m.LAST_BATCH) == {("copy",): 50.0}
    assert values(metrics, m.PHASE) == {("copy", "addBatch"): 0.3}
    assert metrics.series(1_000.0).durations(m.TRIGGER)["copy",].total == pytest.approx(0.4)


def test_an_idle_query_moves_its_last_event_and_not_its_last_batch(metrics):
    assert values(metrics, m.LAST_EVENT) == {("copy",): 10.0}, "its start"
    metrics.completed("id", "copy", now=50.0, phases={})
    metrics.idle("id", now=60.0)
    assert (values(metrics, m.LAST_EVENT), values(metrics, m.LAST_BATCH)) == ({("copy",): 60.0}, {("copy",): 50.0})


def test_lags_are_those_of_a_topics_partitions_together(metrics):
    source = SourceFigures(rows=5, bytes_read=100, rows_aborted=2, lso_lag={T0: 3, T1: 4, U0: 0})
    metrics.read(
        figures(source), lag={T0: 1, T1: 2, U0: 0}, waits_since={T0: 990.0, T1: 980.0}, open_age={T0: 20.0, T1: 30.0}
    )
    assert values(metrics, m.LAG) == {("copy", "t"): 3, ("copy", "u"): 0}
    assert values(metrics, m.LAG_SECONDS) == {("copy", "t"): 20.0, ("copy", "u"): 0.0}
    assert metrics.series(1_005.0).values(m.LAG_SECONDS)["copy", "t"] == 25.0, "it grows until the next event"
    assert values(metrics, m.LSO_LAG) == {("copy", "t"): 7, ("copy", "u"): 0}
    assert values(metrics, m.OPEN_AGE) == {("copy", "t"): 30.0}
    assert values(metrics, m.RECORDS_READ) == {("copy",): 5}
    assert values(metrics, m.BYTES_READ) == {("copy",): 100}
    assert values(metrics, m.RECORDS_ABORTED) == {("copy",): 2}


def test_how_late_a_topic_is_is_not_known_while_the_time_of_an_unread_record_is_not(metrics):
    metrics.read(figures(SourceFigures()), lag={T0: 0, T1: 500_000, U0: 0}, waits_since={}, open_age={})
    assert values(metrics, m.LAG) == {("copy", "t"): 500_000, ("copy", "u"): 0}
    assert values(metrics, m.LAG_SECONDS) == {("copy", "u"): 0.0}


def test_a_topic_is_at_least_as_late_as_its_partitions_whose_unread_records_have_a_known_time(metrics):
    metrics.read(figures(SourceFigures()), lag={T0: 100, T1: 2}, waits_since={T0: 100.0}, open_age={})
    assert values(metrics, m.LAG_SECONDS) == {("copy", "t"): 900.0}


def test_what_kafka_no_longer_answers_is_not_shown(metrics):
    metrics.read(figures(SourceFigures(lso_lag={T0: 3})), lag={T0: 1}, waits_since={T0: 990.0}, open_age={T0: 20.0})
    metrics.read(figures(SourceFigures(lso_lag=None)), lag={}, waits_since={}, open_age={})
    metrics.kafka_answered(False)
    assert [values(metrics, gauge) for gauge in (m.LAG, m.LAG_SECONDS, m.LSO_LAG, m.OPEN_AGE)] == [{}] * 4
    assert values(metrics, m.KAFKA_UP) == {(): 0}


def test_a_query_that_ends_keeps_its_counters_and_loses_its_lag(metrics):
    metrics.committed(outcome())
    metrics.read(figures(SourceFigures(lso_lag={T0: 3})), lag={T0: 1}, waits_since={T0: 990.0}, open_age={})
    metrics.ended("id", failed=True)
    assert values(metrics, m.RUNNING) == {("copy",): 0}
    assert values(metrics, m.FAILURES) == {("copy",): 1}
    assert values(metrics, m.BATCHES) == {("copy", "committed"): 1}
    assert (values(metrics, m.LAG), values(metrics, m.LAG_SECONDS), values(metrics, m.LSO_LAG)) == ({}, {}, {})
    metrics.started("id", "copy", now=10.0)
    assert (values(metrics, m.RUNNING), values(metrics, m.FAILURES)) == ({("copy",): 1}, {("copy",): 1})


def test_a_query_has_failed_until_it_starts_again_and_not_because_it_failed_once(metrics):
    assert values(metrics, m.FAILED) == {("copy",): 0}
    metrics.ended("id", failed=True)
    assert values(metrics, m.FAILED) == {("copy",): 1}
    metrics.started("id", "copy", now=20.0)
    assert values(metrics, m.FAILED) == {("copy",): 0}
    metrics.ended("id", failed=False)
    assert (values(metrics, m.FAILED), values(metrics, m.FAILURES)) == ({("copy",): 0}, {("copy",): 1})


@pytest.mark.parametrize(
    "sign_of_life",
    [
        lambda metrics: metrics.idle("id", now=30.0),
        lambda metrics: metrics.completed("id", "copy", now=30.0, phases={}),
    ],
    ids=["idle", "a batch"],
)
def test_a_query_runs_although_the_end_of_its_last_run_was_reported_after_its_start(metrics, sign_of_life):
    metrics.started("id", "copy", now=20.0)  # Spark reports starts at once, the rest through a queue
    metrics.ended("id", failed=True)
    sign_of_life(metrics)
    assert (values(metrics, m.RUNNING), values(metrics, m.FAILED)) == ({("copy",): 1}, {("copy",): 0})


def test_the_last_batchs_error_is_shown_until_a_batch_ends_well_or_the_query_starts_again(metrics):
    refused = outcome(batch_id=8, outcome="refused", error="LedgerRefused")
    metrics.committed(outcome(outcome="failed", error="BrokerUnreachable"))
    metrics.committed(refused)
    assert values(metrics, m.LAST_ERROR) == {("copy", "LedgerRefused"): 1}
    metrics.committed(outcome(outcome="skipped"))
    assert values(metrics, m.LAST_ERROR) == {}
    metrics.committed(refused)
    metrics.ended("id", failed=True)
    assert values(metrics, m.LAST_ERROR) == {("copy", "LedgerRefused"): 1}
    metrics.started("id", "copy", now=20.0)
    assert values(metrics, m.LAST_ERROR) == {}


def test_a_query_without_a_name_is_shown_by_its_id_even_if_its_commit_reports_first():
    metrics = QueryMetrics()
    metrics.committed(outcome())
    metrics.started("id", None, now=10.0)
    assert values(metrics, m.BATCHES) == {("id", "committed"): 1}
    assert values(metrics, m.RUNNING) == {("id",): 1}


def test_many_queries_and_topics_have_a_bounded_number_of_series():
    metrics = QueryMetrics()
    for number in range(MOST_QUERIES + 5):
        metrics.started(f"id-{number}", f"query-{number}", now=10.0)
    running = values(metrics, m.RUNNING)
    assert len(running) == MOST_QUERIES
    assert ("query-4",) not in running
    lag = by_topic({TopicPartition(f"t{number:03}", 0): float(number) for number in range(MOST_TOPICS + 2)}, sum)
    assert len(lag) == MOST_TOPICS + 1
    assert (lag["t101"], lag[OTHER_TOPICS]) == (101.0, 0.0 + 1.0)


def test_a_scrape_is_not_changed_by_what_comes_later(metrics):
    metrics.committed(outcome(milliseconds={"end": 1.0}))
    scraped = metrics.series(1_000.0)
    metrics.committed(outcome(milliseconds={"end": 1.0}))
    assert scraped.values(m.BATCHES) == {("copy", "committed"): 1}
    assert scraped.durations(m.STEP)["copy", "end"].counts[0] == 1


def test_a_duration_on_a_bound_is_within_it():
    series = Series()
    for seconds in (BUCKETS[0], BUCKETS[-1], BUCKETS[-1] + 1):
        series.observe(m.TRIGGER, "q", seconds=seconds)
    cumulated = list(series.durations(m.TRIGGER)["q",].cumulated())
    assert (cumulated[0], cumulated[-2], cumulated[-1]) == (("0.005", 1), ("300.0", 2), ("+Inf", 3))


@pytest.mark.parametrize("metric", QUERY_METRICS, ids=lambda metric: metric.name)
def test_a_metrics_name_says_its_unit_and_kind(metric):
    assert metric.name.startswith("kafka_eos_")
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert metric.name.endswith("_seconds") or metric.kind != "histogram"
    assert metric.help.endswith(".")
    assert metric.labels[:1] in (("query",), ())


def test_a_query_in_real_time_is_counted_by_intervals_and_not_by_the_ends_of_its_batches(metrics):
    tally = IntervalTally(
        query_id="id",
        batch_id=0,
        transactional_id="orders",
        reporter="query",
        number=1,
        milliseconds=10_000.0,
        records_read=12,
        records=10,
        bytes=500,
        transactions=4,
        dead_letters={"undecodable": 2, "mine": 1},
        latencies=[[8.0, 10], [40.0, 2]],
        commits=[[4.0, 4]],
        unread={"t": 7},
        held={"t": 3},
    )
    metrics.in_real_time(tally, now=990.0)
    metrics.in_real_time(replace(tally, unread=None, held=None, transactions=0), now=1_000.0)
    assert values(metrics, m.LAG) == values(metrics, m.LSO_LAG) == {}, "unknown"
    metrics.in_real_time(tally, now=1_000.0)
    assert values(metrics, m.RECORDS_READ) == {("copy",): 36}
    assert values(metrics, m.RECORDS_WRITTEN) == {("copy",): 30}
    assert values(metrics, m.BYTES_WRITTEN) == {("copy",): 1_500}
    assert values(metrics, m.TRANSACTIONS) == {("copy",): 8}
    assert values(metrics, m.DEAD_LETTERS) == {("copy", "undecodable"): 6, ("copy", "other"): 3}
    assert values(metrics, m.LAST_COMMIT) == values(metrics, m.LAST_EVENT) == {("copy",): 1_000.0}
    latencies = dict(metrics.series(1_000.0).durations(m.LATENCY)["copy",].cumulated())
    assert (latencies["0.005"], latencies["0.01"], latencies["0.05"], latencies["+Inf"]) == (0, 30, 36, 36)
    assert metrics.series(1_000.0).durations(m.COMMIT)["copy",].total == pytest.approx(12 * 0.004)
    planned = SourceFigures(topics=("t",), rows=5, lso_lag={T0: 900})
    metrics.read(figures(planned), lag={T0: 1_000}, waits_since={T0: 1.0}, open_age={})
    assert values(metrics, m.LAG) == {("copy", "t"): 7}
    assert values(metrics, m.LSO_LAG) == {("copy", "t"): 3}
    assert values(metrics, m.LAG_SECONDS) == {}
    assert values(metrics, m.RECORDS_READ) == {("copy",): 36}
    metrics.ended("id", failed=False)
    assert values(metrics, m.LAG) == {}
