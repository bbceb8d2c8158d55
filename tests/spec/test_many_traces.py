"""The same as test_traces in thousands of histories; and with a guard taken out of the code: do its traces show it?"""

from __future__ import annotations

import pytest

from lab.simulation.conditions import USUAL, Conditions
from lab.specification.traces import check_histories, explained
from tests.seeded_bugs import BUGS, LATE_DRIVERS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3_600)]

LATE = Conditions(late=True)
# What these bugs do needs what no trace has: leaders that verify nothing; markers that are left out. Or what is too
# rare: a driver that is late just when another one aborts.
NOT_SHOWN = ("no-fence", "nothing-hangs", "any-abort-is-the-coordinators")
SEEDS, RARE = 200, {"no-owner-check": 400}  # as many histories for a bug


@pytest.mark.parametrize(("conditions", "seeds"), [(USUAL, 5_000), (LATE, 1_000)], ids=["usual", "late"])
def test_the_specification_allows_every_step_of_the_code_in_thousands_of_histories(conditions, seeds, cell):
    checked = check_histories(range(seeds), conditions=conditions)
    name = "usual" if conditions is USUAL else "late drivers"
    cell("many traces", name, f"{checked.accepted:,} of {seeds:,} histories", f"{checked.steps:,} steps allowed")
    assert checked.rejected == [], "\n".join(explained(checked.rejected[0]))
    assert checked.wrong == {}
    assert checked.histories == seeds
    assert checked.accepted > seeds / 2


@pytest.mark.parametrize("bug", BUGS)
def test_traces_of_code_without_a_guard_are_rejected_unless_they_lack_what_the_guard_is_for(bug, cell):
    with BUGS[bug]():
        checked = check_histories(range(RARE.get(bug, SEEDS)), conditions=LATE if bug in LATE_DRIVERS else USUAL)
    traces = checked.accepted + len(checked.rejected)
    cell("seeded bugs", bug.replace("-", " "), "traces", f"{len(checked.rejected)} of {traces} not allowed")
    assert (checked.rejected == []) == (bug in NOT_SHOWN)
