"""The fault matrix: in each state of a transaction each fault, and the one outcome that it must have."""

from __future__ import annotations

import pytest

from tests.faults.columns import CHEAP, COLUMNS, expected, protocol
from tests.faults.states import STATES

pytestmark = pytest.mark.broker


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize(
    "fault", [pytest.param(name, marks=() if name in CHEAP else pytest.mark.slow) for name in COLUMNS]
)
def test_the_fault_has_its_one_outcome_in_the_state(scene, cell, state, fault):
    wanted = expected(scene, fault, state)
    cell(f"Fault matrix, {protocol(scene)}", state, fault, wanted)
    assert COLUMNS[fault](scene, STATES[state]) is wanted
