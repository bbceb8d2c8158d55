"""All histories up to a bound: small bounds in every run, larger ones as far as a build has time."""

from __future__ import annotations

import pytest

from lab.simulation.exhaustive.explore import explore, replay, timeline
from lab.simulation.exhaustive.run import WAYS, run, scenarios
from lab.simulation.exhaustive.scenario import Bound, Scenario
from tests.seeded_bugs import BUGS

ONE_BATCH_BY_DRIVER, TWO_BATCHES = scenarios(["driver"], 1), scenarios(WAYS, 2)


def _scenario(way, version, *, batches=1, verification=True):
    return Scenario(way=way, transaction_version=version, batches=batches, verification=verification)


def _all_are_right(cell, asked, bound):
    results = list(run(asked, bound, jobs=2))
    assert {str(each.scenario): each.violations for each in results if each.violations} == {}
    assert all(each.complete for each in results)
    assert {each.scenario for each in results} == set(asked)
    for each in results:
        cell("All histories", str(each.scenario), str(bound), f"{each.histories:,}")


@pytest.mark.timeout(300)
def test_two_drivers_are_right_in_every_order_with_one_switch(cell):
    _all_are_right(cell, TWO_BATCHES, Bound(1, 0))


@pytest.mark.timeout(300)
def test_one_fault_of_any_kind_at_any_request_changes_nothing(cell):
    _all_are_right(cell, [_scenario("driver", 1), _scenario("driver", 2)], Bound(0, 1))


@pytest.mark.slow
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize(
    ("asked", "bound"),
    [
        (TWO_BATCHES, Bound(2, 0)),
        (TWO_BATCHES, Bound(0, 1)),
        (ONE_BATCH_BY_DRIVER, Bound(0, 1, 1)),
        (ONE_BATCH_BY_DRIVER, Bound(1, 0, 1)),
        (ONE_BATCH_BY_DRIVER, Bound(1, 1)),
    ],
    ids=[
        "two switches",
        "a fault",
        "a fault and a late marker",
        "a switch and a late marker",
        "a switch and a fault",
    ],
)
def test_larger_bounds_change_nothing(cell, asked, bound):
    _all_are_right(cell, asked, bound)


FOUND = [
    ("no-barrier", _scenario("executors", 2), Bound(0, 1)),
    ("stage-attempt-accepted", _scenario("executors", 2), Bound(0, 1)),
    ("no-epoch-bump", _scenario("executors", 1, verification=False), Bound(0, 1)),
    ("abort-after-unknown-commit", _scenario("driver", 2), Bound(0, 1)),
]
FOUND_IN_LONG = [
    ("no-look", _scenario("sink", 2, batches=2), Bound(2, 0)),
    ("no-owner-check", _scenario("sink", 2, batches=2), Bound(2, 0)),
    ("held-is-not-asked", _scenario("driver", 1, batches=2), Bound(2, 0)),
    ("ledger-before-init", _scenario("driver", 2), Bound(0, 1)),
    ("look-always-counts", _scenario("sink", 2), Bound(2, 0)),
]


@pytest.mark.parametrize(
    ("bug", "scenario", "bound"),
    [
        *FOUND,
        *(pytest.param(*found, marks=[pytest.mark.slow, pytest.mark.timeout(1_800)]) for found in FOUND_IN_LONG),
    ],
    ids=[bug for bug, _, _ in FOUND + FOUND_IN_LONG],
)
def test_a_guard_that_is_missing_is_found_within_a_small_bound(bug, scenario, bound, cell):
    with BUGS[bug]():
        (violation,) = explore(scenario, bound).violations
        history = replay(scenario, bound, violation.choices)
    assert history.wrong == violation.wrong
    print(bug, scenario, bound, *violation.wrong, *timeline(history), sep="\n")
    cell("seeded bugs", bug.replace("-", " "), "all histories", f"history {violation.histories:,}")
    assert explore(scenario, bound, most=violation.histories).violations == []
