"""Tasks that run on, without micro-batches: TLC visits every state of RealTime.tla within the bounds, and finds what
happens without each of its guards.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from lab.specification.real_time import (
    COMPLETE,
    REAL_TIME_EVERY_RUN,
    REAL_TIME_GUARDS,
    REAL_TIME_LARGER,
    REAL_TIME_SECOND_LOCKS,
    REAL_TIME_WEAKENED,
    TAKEOVERS,
    UNSTABLE_BEGIN,
    weakened_real_time,
)
from lab.specification.tlc import check

SLOW = [pytest.mark.slow, pytest.mark.timeout(3_600)]
# That the check can fail at all. The others can change only with spec/.
IN_EVERY_RUN = ("Commit", "FenceOld")


def actions(result):
    return " ".join(step.action for step in result.steps)


@pytest.mark.parametrize("model", REAL_TIME_EVERY_RUN, ids=str)
def test_every_state_within_the_bounds_keeps_what_is_promised(model, cell):
    result = check(model)
    cell("specification", str(model), "states", f"{result.distinct:,}")
    assert result.violated is None, actions(result)
    assert result.distinct > 100


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("model", REAL_TIME_LARGER, ids=str)
def test_every_state_within_larger_bounds_keeps_what_is_promised(model, cell):
    result = check(model, large=True)
    cell("specification", str(model), "states", f"{result.distinct:,}")
    assert result.violated is None, actions(result)
    assert result.distinct > 3_000


@pytest.mark.parametrize(
    "guard", [pytest.param(guard, marks=() if guard in IN_EVERY_RUN else SLOW) for guard in REAL_TIME_WEAKENED]
)
def test_without_the_guard_tlc_finds_a_behaviour_that_violates_the_invariant(guard, cell):
    model, invariant = weakened_real_time(guard)
    result = check(model)
    cell("weakened guards", guard, invariant, f"{len(result.steps) - 1} steps")
    assert result.violated == invariant


def test_each_guard_of_the_specification_is_taken_out_somewhere():
    assert tuple(REAL_TIME_WEAKENED) == REAL_TIME_GUARDS


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("guard", REAL_TIME_SECOND_LOCKS)
def test_a_second_lock_is_not_needed_while_the_first_one_holds(guard):
    result = check(replace(REAL_TIME_SECOND_LOCKS[guard], without=(guard,)))
    assert result.violated is None, actions(result)


@pytest.mark.slow
def test_a_partition_that_is_begun_twice_loses_records_if_its_offset_is_not_stable():
    assert check(replace(UNSTABLE_BEGIN, invariants=("NothingSkipped",))).violated == "NothingSkipped"


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("model", TAKEOVERS, ids=str)
def test_all_records_can_be_committed_by_one_driver_after_another(model):
    assert check(replace(model, invariants=(COMPLETE,))).violated == COMPLETE
