"""What a task in real time did in the last seconds, and that of all tasks of a query."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping

import pytest

from spark_kafka_eos.kafka.errors import BrokerUnreachable
from spark_kafka_eos.kafka.partitions import Offsets, TopicPartition
from spark_kafka_eos.kafka.protocol.facts import LogEnds
from spark_kafka_eos.observe.tallies import IntervalTally
from spark_kafka_eos.real_time import intervals
from spark_kafka_eos.real_time.intervals import Intervals, IntervalsOf, QueryIntervals, TaskReport, every, line
from spark_kafka_eos.real_time.latencies import Latencies, of_pairs

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
OF = IntervalsOf(query_id="q", batch_id=7, transactional_id="copy", address_and_key="a:1:key")


class Clock:
    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


def tally(**given: object) -> IntervalTally:
    usual = {"query_id": "q", "batch_id": 7, "transactional_id": "copy", "reporter": "task", "number": 1}
    return IntervalTally(**{**usual, "milliseconds": 10_000.0, **given})  # type: ignore[arg-type]


def test_a_tally_has_what_came_since_the_one_before(clock: Clock) -> None:
    report = TaskReport(positions={T0: 5})
    since = Intervals(report, OF, "task", clock)
    clock.seconds += 10
    report.records_read, report.records, report.bytes, report.transactions = 30, 29, 300, 3
    report.dead_letters["round"] += 1
    report.positions[T0] = 35
    report.latencies.add(8.0, 30)
    first = since.next()
    assert (first.records_read, first.records, first.bytes, first.transactions) == (30, 29, 300, 3)
    assert (first.dead_letters, first.positions, first.milliseconds) == ({"round": 1}, {"t": {"0": 35}}, 10_000.0)
    assert first.latencies == [(8.0, 30)]
    clock.seconds += 5
    report.records_read, report.transactions = 31, 4
    report.latencies.add(16.0)
    second = since.next()
    assert (second.records_read, second.records, second.transactions, second.dead_letters) == (1, 0, 1, {})
    assert (second.latencies, second.milliseconds) == ([(16.0, 1)], 5_000.0)
    assert second.number == first.number + 1


def test_positions_that_do_not_fit_into_a_datagram_are_left_out_and_the_lag_is_unknown(clock: Clock) -> None:
    report = TaskReport(positions={TopicPartition("t", number): 0 for number in range(1_001)})
    many = Intervals(report, OF, "task", clock).next()
    assert many.positions is None
    query = QueryIntervals(lambda _: pytest.fail("is not asked"), clock)
    query.add(many)
    query.add(tally(positions={"u": {"0": 1}}))
    together = query.next()
    assert together is not None
    assert (together.unread, together.held) == (None, None)


def test_the_tallies_of_all_tasks_are_one_with_the_lag_of_their_partitions(clock: Clock) -> None:
    def log_ends(positions: Offsets) -> Mapping[TopicPartition, LogEnds]:
        return {tp: LogEnds(last_stable_offset=100, high_watermark=103) for tp in positions}

    query = QueryIntervals(log_ends, clock)
    assert query.next() is None
    clock.seconds += 10
    query.add(tally(records_read=5, transactions=1, latencies=[(8.0, 4)], positions={"t": {"0": 90}}))
    query.add(tally(records_read=6, transactions=2, latencies=[(8.0, 1), (64.0, 1)], positions={"t": {"1": 99}}))
    query.add(tally(dead_letters={"round": 2}, positions={"u": {"0": 100}}))
    together = query.next()
    assert together is not None
    assert (together.records_read, together.transactions, together.milliseconds) == (11, 3, 20_000.0 - 10_000.0)
    assert (together.unread, together.held) == ({"t": 11, "u": 0}, {"t": 6, "u": 3})
    assert (together.latencies, together.dead_letters) == ([(8.0, 5), (64.0, 1)], {"round": 2})
    assert query.next() is None, "each counts once"


def test_a_broker_that_does_not_answer_leaves_the_lag_unknown(clock: Clock) -> None:
    def log_ends(_: Offsets) -> Mapping[TopicPartition, LogEnds]:
        raise BrokerUnreachable("nobody answers")

    query = QueryIntervals(log_ends, clock)
    query.add(tally(records_read=5, positions={"t": {"0": 90}}))
    together = query.next()
    assert together is not None
    assert (together.records_read, together.unread) == (5, None)
    assert "unread=? held=?" in line(together)


def test_the_line_has_rates_quantiles_and_lag() -> None:
    text = line(
        tally(
            records_read=1_000,
            records=990,
            transactions=50,
            dead_letters={"round": 10},
            latencies=[(8.0, 900), (64.0, 100)],
            commits=[(4.0, 50)],
            unread={"t": 3, "u": 4},
            held={"t": 1},
        )
    )
    assert text == (
        "query q in real time: seconds=10 records=1000 written=990 records_per_second=100 transactions=50 "
        "transactions_per_second=5.0 dead_letters=10 latency_p50=8.0ms latency_p95=64.0ms latency_p99=64.0ms "
        "commit_p50=4.0ms commit_p95=4.0ms commit_p99=4.0ms unread=7 held=1"
    )


def test_latencies_survive_being_sent() -> None:
    latencies = Latencies(Counter({power: power + 100 for power in range(-53, 300)}))
    assert of_pairs(latencies.pairs()) == latencies


def test_figures_that_fail_end_neither_the_next_ones_nor_what_they_are_of(caplog: pytest.LogCaptureFixture) -> None:
    calls = []
    twice = threading.Event()

    def call() -> None:
        calls.append(1)
        if len(calls) > 1:
            twice.set()
        raise ZeroDivisionError

    with every(0.01, call):
        assert twice.wait(60)
    assert "the query is not affected" in caplog.text
    count = len(calls)
    assert not [thread for thread in threading.enumerate() if thread.name == "kafka-eos-intervals"]
    assert len(calls) == count


def test_a_tally_is_due_every_ten_seconds() -> None:
    assert intervals.INTERVAL_SECONDS == OF.seconds == 10.0
    assert "key" not in repr(OF)
