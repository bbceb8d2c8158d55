"""Simulated queries in real time: right with the product as it is, wrong with a guard taken out."""

from __future__ import annotations

import pytest

from lab.simulation.conditions import Conditions
from lab.simulation.run import replay, run
from tests.seeded_bugs import REAL_TIME_BUGS

_REAL_TIME = Conditions(real_time=True)
_FEW = 60

# Where the search begins, shortly before the first seed that finds the bug. The others were not found in 300 to 2,000
# seeds, or not looked for. tests/unit/real_time/test_driver.py fails with offsets-are-not-confirmed,
# what-hangs-is-ended-once and what-is-open-hangs, and tests/broker/test_real_time.py with the other three.
BEGIN_AT = {
    "offsets-before-the-buckets": 0,
    "the-group-says-where-it-goes-on": 0,
    "buckets-keep-their-epochs": 0,
    "only-the-new-buckets-are-taken": 400,
    "nothing-is-committed-before-the-tasks": 0,
    "held-is-not-asked": 160,
    "whoever-ends-takes-the-buckets": 210,
}


def test_a_history_in_real_time_is_the_same_every_time():
    tasks = 0
    for seed in range(8):
        once, again = (replay(seed, conditions=_REAL_TIME) for _ in range(2))
        assert once.trace == again.trace
        tasks += any("task 0 of driver" in line for line in once.trace)
    assert tasks > 5


def test_seventy_histories_in_real_time_are_correct():  # and many more in tests/simulation
    summary = run(range(70), conditions=_REAL_TIME)
    assert summary.wrong == {}
    assert summary.outcomes["finished"] >= 70


def test_late_drivers_in_real_time_leave_the_live_one_alone():
    summary = run(range(60, 90), conditions=Conditions(real_time=True, late=True))
    assert summary.wrong == {}
    assert summary.outcomes["ProducerFenced"] > 5


@pytest.mark.parametrize("bug", BEGIN_AT)
def test_a_guard_in_real_time_that_is_missing_is_found_within_a_few_hundred_seeds(bug, cell):
    with REAL_TIME_BUGS[bug]():
        found = run(range(BEGIN_AT[bug], BEGIN_AT[bug] + _FEW), conditions=_REAL_TIME, most_wrong=1)
        seed = next(iter(found.wrong))
        cell("seeded bugs", bug.replace("-", " "), "simulation in real time", f"seed {seed}")
        assert replay(seed, conditions=_REAL_TIME).wrong == found.wrong[seed]
    assert replay(seed, conditions=_REAL_TIME).wrong == []
