"""A failure that repeats is told line by line at first, then in one warning per minute."""

from __future__ import annotations

import logging
from collections import Counter

from spark_kafka_eos.protocol.log_pace import LogPace


def levels(*times: float) -> list[int]:
    return [level for level, _ in told(*times)]


def told(*times: float) -> list[tuple[int, str]]:
    pace = LogPace(iter(times).__next__)
    return [pace.next() for _ in times]


def test_the_first_seconds_are_told_line_by_line():
    assert levels(100, 101, 103, 104.9) == [logging.INFO] * 4


def test_what_lasts_longer_is_warned_of_once_a_minute():
    assert levels(0, 5, 6, 64, 65, 66) == [
        *(logging.INFO, logging.WARNING),
        *(logging.DEBUG, logging.DEBUG, logging.WARNING, logging.DEBUG),
    ]


def test_a_warning_says_since_when_and_how_many_lines_it_stands_for():
    assert [added for _, added in told(0, 5, 30, 40, 65)] == [
        *("", " (for 5 s)", "", ""),
        " (for 65 s; 2 more since the last line)",
    ]


def test_after_a_minute_without_a_failure_the_next_one_is_a_new_outage():
    assert levels(0, 30, 31, 92) == [logging.INFO, logging.WARNING, logging.DEBUG, logging.INFO]


def test_an_hour_of_failures_each_second_is_sixty_warnings():
    count = Counter(levels(*range(3600)))
    assert count[logging.INFO] == 5
    assert count[logging.WARNING] == 60
