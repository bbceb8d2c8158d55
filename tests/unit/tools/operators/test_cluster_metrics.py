"""The metrics of a cluster, from what its queries' ledgers, leaders and coordinators say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.facts import LogEnds, ProducerState, TransactionFacts
from spark_kafka_eos.ledger.entry import LedgerEntry
from spark_kafka_eos.tools.operators import cluster_metrics as m
from spark_kafka_eos.tools.operators.cluster_metrics import (
    CLUSTER_METRICS,
    MOST_IDS,
    MOST_PARTITIONS,
    cluster_series,
    down,
)
from spark_kafka_eos.tools.operators.status import PartitionLag, QueryStatus, RecordedEntry, SourceLag
from spark_kafka_eos.tools.operators.survey import Survey, TransactionListing
from tests.batches import record

T0, T1, U0, U1 = (TopicPartition(topic, number) for topic in "tu" for number in (0, 1))
NOW = 1_000_000


def lag(committed, stable, *, earliest=0, oldest=None):
    log_ends = LogEnds(last_stable_offset=stable, high_watermark=stable)
    return PartitionLag(committed=committed, earliest=earliest, log_ends=log_ends, oldest_unread_ms=oldest)


def query(name="orders", at_ms=NOW, **partitions):
    entry = LedgerEntry(query_id="q", batch_id=7, digest="", serial=42)
    source = SourceLag(
        cluster="c",
        offsets={},
        partitions={TopicPartition(key[:-1], int(key[-1])): known for key, known in partitions.items()},
    )
    return QueryStatus(
        transactional_id=name,
        ledger_topic="books",
        commits=(RecordedEntry(record=record(at_ms=at_ms), entry=entry),),
        sources=(None, source),
    )


def producer(tp, producer_id, start=None):
    return ProducerState(partition=tp, producer_id=producer_id, epoch=0, start_offset=start)


def facts(name, started_ms, partitions=()):
    return TransactionFacts(
        state="Ongoing",
        producer_id=1,
        epoch=0,
        timeout_ms=60_000,
        started_ms=started_ms,
        described_ms=NOW,
        transactional_id=name,
        partitions=partitions,
    )


def test_a_query_has_its_ledger_and_its_lag_by_topic():
    orders = query(
        at_ms=NOW - 5_000,
        t0=lag(10, 15, oldest=NOW - 3_000),
        t1=lag(10, 11, oldest=NOW - 9_000),
        u0=lag(4, 8, earliest=8),
    )
    series = cluster_series([orders], Survey(taken_ms=NOW))
    assert series.values(m.UP) == {(): 1}
    assert series.values(m.LEDGER_BATCH) == {("orders",): 7}
    assert series.values(m.COMMITS) == {("orders",): 42}
    assert series.values(m.LAST_COMMIT) == {("orders",): 995.0}
    assert series.values(m.LAG) == {("orders", "t"): 6, ("orders", "u"): 0}
    assert series.values(m.LAG_SECONDS) == {("orders", "t"): 9.0, ("orders", "u"): 0.0}
    assert series.values(m.LOST) == {("orders", "t"): 0, ("orders", "u"): 4}


def test_one_topic_name_in_two_sources_has_what_both_lack():
    """For example of two clusters: what one source has read hides nothing of the other."""
    behind = SourceLag(cluster="a", offsets={}, partitions={T0: lag(10, 15, earliest=12, oldest=NOW - 3_000)})
    done = SourceLag(cluster="b", offsets={}, partitions={T0: lag(50, 50)})
    for sources in ((behind, done), (done, behind)):
        series = cluster_series([replace(query(), sources=sources)], Survey(taken_ms=NOW))
        assert series.values(m.LAG) == {("orders", "t"): 3}
        assert series.values(m.LAG_SECONDS) == {("orders", "t"): 3.0}
        assert series.values(m.LOST) == {("orders", "t"): 2}


def test_what_is_unknown_of_a_topic_is_not_shown_as_nothing():
    """Of `t` the exporter may not read the records, and a partition of `u` has no leader."""
    without_times = query(t0=lag(10, 1_000_010), t1=lag(5, 5), u0=lag(4, 4))
    _, source = without_times.sources
    orders = replace(without_times, sources=(replace(source, unknown={U1: "u-1 has no leader"}),))
    series = cluster_series([orders], Survey(taken_ms=NOW))
    assert series.values(m.LAG) == {("orders", "t"): 1_000_000}
    assert series.values(m.LAG_SECONDS) == {}
    assert series.values(m.LOST) == {("orders", "t"): 0}
    behind = replace(source, partitions={U0: lag(4, 9, earliest=5)}, unknown={U1: "u-1 has no leader"})
    series = cluster_series([replace(orders, sources=(behind,))], Survey(taken_ms=NOW))
    assert (series.values(m.LAG), series.values(m.LOST)) == ({("orders", "u"): 4}, {("orders", "u"): 1}), "at least"


def test_a_topic_is_at_least_as_late_as_what_is_known_of_it():
    """Of `t` a partition has no time of its oldest unread record, and a partition of `u` has no leader."""
    known = query(t0=lag(10, 110, oldest=NOW - 900_000), t1=lag(5, 7), u0=lag(4, 9, oldest=NOW - 700_000))
    _, source = known.sources
    orders = replace(known, sources=(replace(source, unknown={U1: "u-1 has no leader"}),))
    series = cluster_series([orders], Survey(taken_ms=NOW))
    assert series.values(m.LAG_SECONDS) == {("orders", "t"): 900.0, ("orders", "u"): 700.0}


def test_partitions_have_kip_98s_counts_and_what_hangs_in_them():
    survey = Survey(
        taken_ms=NOW,
        listings=(
            TransactionListing(transactional_id="a", producer_id=1, state="Ongoing", coordinator=3),
            TransactionListing(transactional_id="b", producer_id=2, state="Empty", coordinator=3),
        ),
        transactions={"a": facts("a", NOW - 8_000, (T0,))},
        producers={T0: (producer(T0, 1, 5), producer(T0, 2), producer(T0, 9, 6)), U0: ()},
        log_ends={
            T0: LogEnds(last_stable_offset=5, high_watermark=12),
            T1: LogEnds(last_stable_offset=3, high_watermark=3),
        },
        complete=True,
    )
    series = cluster_series([], survey)
    assert series.values(m.STABLE_OFFSET) == {("t", "0"): 5, ("t", "1"): 3}
    assert series.values(m.LSO_LAG) == {("t", "0"): 7, ("t", "1"): 0}
    assert series.values(m.PRODUCERS) == {("t", "0"): 3, ("u", "0"): 0}
    assert series.values(m.OPEN) == {("t", "0"): 2, ("u", "0"): 0}
    assert series.values(m.HANGING) == {("t", "0"): 1, ("u", "0"): 0}
    assert (series.values(m.UNJUDGED)["t", "0"], series.values(m.SILENT)) == (0, {(): 0})
    assert series.values(m.OPEN_AGE) == {("a",): 8.0}
    assert series.values(m.ACTIVE_IDS) == {("3", "Ongoing"): 1, ("3", "Empty"): 1}


def test_a_partition_that_cannot_be_judged_is_not_shown_as_one_in_which_nothing_hangs():
    survey = Survey(
        taken_ms=NOW,
        listings=(TransactionListing(transactional_id="b", producer_id=2, state="Empty", coordinator=3),),
        transactions={"b": replace(facts("b", NOW), state="Empty")},
        producers={T0: (producer(T0, 9, 6),), T1: (producer(T1, 2, 4), producer(T1, 9, 6)), U0: (producer(U0, 9),)},
        unavailable={U1: "u-1 has no leader"},
        silent={1: "broker 1 did not answer"},
        complete=False,  # so nobody knows whose producer 9 is
    )
    series = cluster_series([], survey)
    assert series.values(m.HANGING) == {("t", "1"): 1, ("u", "0"): 0}
    assert series.values(m.UNJUDGED) == {("t", "0"): 1, ("t", "1"): 1, ("u", "0"): 0, ("u", "1"): 1}
    assert series.values(m.SILENT) == {(): 1}


def test_a_cluster_that_cannot_be_read_is_down_and_nothing_else():
    series = down()
    assert series.values(m.UP) == {(): 0}
    assert not any(series.values(metric) for metric in CLUSTER_METRICS if metric is not m.UP)


def test_a_large_cluster_has_a_bounded_number_of_series():
    queries = [query(f"q{number}", at_ms=number) for number in range(MOST_IDS + 1)]
    log_ends = {
        TopicPartition("t", number): LogEnds(last_stable_offset=0, high_watermark=number) for number in range(1_002)
    }
    series = cluster_series(queries, Survey(taken_ms=NOW, log_ends=log_ends))
    assert len(series.values(m.LEDGER_BATCH)) == MOST_IDS
    assert ("q0",) not in series.values(m.LEDGER_BATCH), "the one that committed longest ago"
    assert len(series.values(m.LSO_LAG)) == MOST_PARTITIONS
    assert min(series.values(m.LSO_LAG).values()) == 2


def test_of_many_partitions_those_where_something_hangs_or_may_hang_are_the_last_to_be_left_out():
    held = [TopicPartition("a", number) for number in range(MOST_PARTITIONS)]
    survey = Survey(
        taken_ms=NOW,
        producers={**dict.fromkeys(held, ()), T0: (producer(T0, 9, 6),)},
        log_ends={tp: LogEnds(last_stable_offset=0, high_watermark=5) for tp in held},
        unavailable={U0: "u-0 has no leader"},
        complete=True,
    )
    series = cluster_series([], survey)
    assert len(series.values(m.UNJUDGED)) == MOST_PARTITIONS
    assert (series.values(m.HANGING)["t", "0"], series.values(m.UNJUDGED)["u", "0"]) == (1, 1)


@pytest.mark.parametrize("metric", CLUSTER_METRICS, ids=lambda metric: metric.name)
def test_a_metrics_name_says_its_unit_and_kind(metric):
    assert metric.name.startswith("kafka_eos_cluster_")
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert metric.help.endswith(".")
