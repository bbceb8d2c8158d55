"""Every guard is needed: without it, TLC finds a behaviour that violates an invariant."""

from __future__ import annotations

import pytest

from lab.specification.models import FOUND_SLOWLY, GUARDS, TABLE_GUARDS, WEAKENED, weakened
from lab.specification.timeline import timeline
from lab.specification.tlc import check

SLOW = [pytest.mark.slow, pytest.mark.timeout(3_600)]
# That the check can fail at all. The others can change only with spec/.
IN_EVERY_RUN = {("ReadAgain",), ("FenceTable",)}


@pytest.mark.parametrize(
    "without",
    [pytest.param(each, marks=() if each in IN_EVERY_RUN else SLOW, id=" and ".join(each)) for each in WEAKENED],
)
def test_without_the_guard_tlc_finds_a_behaviour_that_violates_the_invariant(without, cell):
    model, invariant = weakened(without)
    result = check(model, large=without in FOUND_SLOWLY)
    assert result.violated == invariant
    told = timeline(result.steps)
    cell("weakened guards", " and ".join(without), invariant, f"{len(told)} steps")
    assert told[0].split()[1:3] == ["run", "1"]
    assert len(told) == len(result.steps) - 1 > 5


def test_each_guard_of_the_specification_is_taken_out_somewhere():
    assert {guard for without in WEAKENED for guard in without} == {*GUARDS, *TABLE_GUARDS}
