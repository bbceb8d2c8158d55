"""A failure that repeats is logged line by line at first, then in one warning per minute."""

from __future__ import annotations

import functools
import logging
from collections import Counter
from collections.abc import Callable

import pytest

from spark_kafka_eos.kafka.protocol.log_pace import Failing, LogPace


def levels(*times: float) -> list[int]:
    return [level for level, _ in lines(*times)]


def lines(*times: float) -> list[tuple[int, str]]:
    """Of one request, which never gets through."""
    failing = Failing({OSError: LogPace(iter(times).__next__)})
    return [failing.next(OSError()) for _ in times]


def test_the_first_seconds_are_logged_line_by_line():
    assert levels(100, 101, 103, 104.9) == [logging.INFO] * 4


def test_what_lasts_longer_is_warned_of_once_a_minute():
    assert levels(0, 5, 6, 64, 65, 66) == [
        *(logging.INFO, logging.WARNING),
        *(logging.DEBUG, logging.DEBUG, logging.WARNING, logging.DEBUG),
    ]


def test_a_warning_says_since_when_and_how_many_lines_it_stands_for():
    assert [added for _, added in lines(0, 5, 30, 40, 65)] == [
        *("", " (for 5 s)", "", ""),
        " (for 65 s; 2 more since the last line)",
    ]


def test_after_a_minute_without_a_failure_the_next_one_is_a_new_outage():
    assert levels(0, 30, 31, 92) == [logging.INFO, logging.WARNING, logging.DEBUG, logging.INFO]


def test_an_hour_of_failures_each_second_is_sixty_warnings():
    count = Counter(levels(*range(3600)))
    assert count[logging.INFO] == 5
    assert count[logging.WARNING] == 60


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def new_request(clock: Clock) -> Callable[[], Failing]:
    """Requests of one process."""
    return functools.partial(Failing, {OSError: LogPace(clock)})


def test_requests_that_get_through_at_the_second_attempt_are_no_outage(clock, new_request):
    for now in range(0, 7_200, 30):
        clock.now = now
        failing = new_request()
        assert failing.next(OSError()) == (logging.INFO, "")
        clock.now = now + 0.005
        failing.got_through()


def test_an_outage_after_them_is_logged_from_its_first_failure_on(clock, new_request):
    hiccup = new_request()
    hiccup.next(OSError())
    clock.now = 0.005
    hiccup.got_through()
    failing = new_request()
    clock.now = 30
    assert failing.next(OSError()) == (logging.INFO, "")
    clock.now = 35
    assert failing.next(OSError()) == (logging.WARNING, " (for 5 s)")


def test_what_gets_through_to_one_broker_does_not_end_the_outage_of_another_one(clock, new_request):
    failing = new_request()
    logged = []
    for clock.now in range(180):
        logged.append(failing.next(OSError())[0])
        refresh = new_request()
        refresh.next(OSError())
        refresh.got_through()
    assert logged.count(logging.WARNING) == 3


def test_requests_that_give_up_one_after_the_other_are_one_outage(clock, new_request):
    logged = []
    for clock.now in range(0, 600, 10):
        logged.append(new_request().next(OSError()))
    assert (logging.WARNING, " (for 550 s; 5 more since the last line)") in logged
    assert Counter(level for level, _ in logged)[logging.INFO] == 1


def test_many_hiccups_are_ten_lines_a_minute(clock, new_request):
    count: Counter[int] = Counter()
    for clock.now in range(600):
        failing = new_request()
        count[failing.next(OSError())[0]] += 1
        failing.got_through()
    assert count == {logging.INFO: 100, logging.DEBUG: 500}
