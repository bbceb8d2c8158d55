"""Budgets of time: no clock runs and nobody sleeps here."""

from __future__ import annotations

import pytest

from spark_kafka_eos.errors import BrokerUnreachable
from spark_kafka_eos.kafka.protocol.backoff import Budget, Stopwatch, delay_or_raise
from spark_kafka_eos.kafka.protocol.error_codes import Reaction


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def budget(clock, *, milliseconds=10_000, jitter=0.5):
    return Budget(milliseconds=milliseconds, backoff_ms=100, backoff_max_ms=1_000, clock=clock, jitter=lambda: jitter)


def rounded(delays):
    return [round(delay, 6) for delay in delays]


def test_delays_double_up_to_the_maximum():
    tries = budget(Clock())
    assert rounded(tries.delay() for _ in range(6)) == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_soon_begins_with_milliseconds():
    tries = budget(Clock())
    assert rounded(tries.delay(soon=True) for _ in range(3)) == [0.005, 0.01, 0.02]


def test_jitter_spreads_a_delay_by_a_fifth_either_way():
    assert rounded([budget(Clock(), jitter=0.0).delay(), budget(Clock(), jitter=1.0).delay()]) == [0.08, 0.12]


def test_there_is_no_delay_once_the_budget_is_spent():
    clock = Clock()
    tries = budget(clock, milliseconds=1_000)
    clock.now += 1.0
    assert tries.delay() is None


def test_the_last_delay_does_not_overrun_the_budget():
    clock = Clock()
    tries = budget(clock, milliseconds=1_000)
    clock.now += 0.97
    assert round(tries.delay(), 6) == 0.03


def test_progress_gives_the_whole_budget_and_the_shortest_delay_again():
    clock = Clock()
    tries = budget(clock, milliseconds=1_000)
    for _ in range(5):
        tries.delay()
    clock.now += 2.0
    tries.restart()
    assert rounded([tries.delay()]) == [0.1]


def test_a_thousand_delays_do_not_overflow():
    tries = budget(Clock())
    assert [tries.delay() for _ in range(1_000)][-1] == 1.0


def test_a_stopwatch_leaves_out_what_passes_while_it_is_stopped():
    clock = Clock()
    watch = Stopwatch(clock)
    clock.now += 1
    watch.stop()
    clock.now += 50
    assert watch() == 101
    watch.stop()  # it does already
    clock.now += 50
    watch.start()
    watch.start()
    clock.now += 2
    assert watch() == 103
    watch.stop()
    assert watch() == 103


def test_an_error_says_how_long_it_was_tried_but_says_it_once():
    clock = Clock()
    tries = budget(clock)
    error = BrokerUnreachable("gone", action="Look at it.")
    assert delay_or_raise(error, Reaction.REFRESH_METADATA, tries) == pytest.approx(0.1)
    clock.now += 10
    assert tries.spent
    for _ in range(2):
        with pytest.raises(BrokerUnreachable) as caught:
            delay_or_raise(error, Reaction.REFRESH_METADATA, tries)
        error = caught.value
        assert error.action == "It was retried for 10000 ms. Look at it."
