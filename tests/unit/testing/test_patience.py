"""A wait is given up for lack of progress, not for its length."""

from __future__ import annotations

import pytest

from spark_kafka_eos.testing.patience import WORK_SECONDS, Patience


def ends(looks, patience=300.0):
    """After how many looks, one a minute with (state, CPU seconds), patience ends; None if it does not."""
    waiting = Patience(patience, now=0.0)
    return next((n for n, look in enumerate(looks) if waiting.ends(*look, now=60.0 * n)), None)


def test_a_state_that_changes_now_and_then_is_progress_for_hours():
    assert ends([(n // 4, 0.0) for n in range(600)]) is None


def test_a_tenth_of_a_core_is_progress_although_the_state_stays():
    assert ends([("starts", 6.0 * n) for n in range(600)]) is None


def test_a_process_that_waits_and_takes_a_hundredth_of_a_core_ends_it():
    assert ends([("plans batch 0", 0.6 * n) for n in range(600)]) == 5


def test_without_any_news_it_ends_after_as_long_as_it_was_given():
    assert ends([(None, 0.0)] * 10) == 5


@pytest.mark.parametrize("later", [WORK_SECONDS - 1, WORK_SECONDS])
def test_the_time_of_a_process_that_has_ended_is_not_waited_for_again(later):
    looks = [("a", 500.0), ("a", 1.0), ("a", 1.0 + later), *[("a", 1.0 + later)] * 10]
    assert ends(looks) == (5 if later < WORK_SECONDS else 7)
