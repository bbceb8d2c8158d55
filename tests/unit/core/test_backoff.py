"""Budgets of time: no clock runs and nobody sleeps here."""

from __future__ import annotations

from spark_kafka_eos.core.backoff import Budget


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


def test_a_thousand_tries_do_not_overflow():
    tries = budget(Clock())
    assert [tries.delay() for _ in range(1_000)][-1] == 1.0
