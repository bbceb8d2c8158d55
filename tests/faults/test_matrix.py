"""The fault matrix: in each state of a transaction each fault, and the one outcome that it must have."""

from __future__ import annotations

import pytest

from tests.faults.columns import CHEAP, COLUMNS, expected, protocol
from tests.faults.states import OPEN, STATES, UNHEARD, UNNOTED

pytestmark = pytest.mark.broker

# What happens to the topic has the same outcome in every state.
OF_TOPIC = {"topic deleted", "partitions added"}


def in_every_run(fault, state):
    return fault in CHEAP and (fault not in OF_TOPIC or state in {OPEN, UNHEARD, UNNOTED})


@pytest.mark.parametrize(
    ("fault", "state"),
    [
        pytest.param(fault, state, marks=() if in_every_run(fault, state) else pytest.mark.slow)
        for fault in COLUMNS
        for state in STATES
    ],
)
def test_the_fault_has_its_one_outcome_in_the_state(scene, cell, fault, state):
    wanted = expected(scene, fault, state)
    cell(f"Fault matrix, {protocol(scene)}", state, fault, wanted)
    assert COLUMNS[fault](scene, STATES[state]) is wanted
