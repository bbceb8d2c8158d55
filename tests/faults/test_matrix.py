"""The fault matrix: in each state of a transaction each fault, and the one outcome that it must have."""

from __future__ import annotations

import pytest

from tests.faults.columns import CHEAP, COLUMNS, REDONE, TIMEOUT_MS, expected, protocol
from tests.faults.states import OPEN, STATES, UNHEARD, UNNOTED, by_author, invisible, reach, succeed

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


def test_a_batch_whose_driver_stays_away_beyond_the_timeout_is_written_again_and_nothing_is_lost(scene):
    """Records and offsets were all in the transaction that the coordinator has aborted before anybody comes back."""
    state = STATES["6 offsets committed"]
    scene.options["kafka.transaction.timeout.ms"] = TIMEOUT_MS
    reach(scene, state)
    scene.kill("victim")
    scene.await_ended()
    succeed(scene)
    scene.check(aborted=invisible(state))
    assert by_author(scene, state) is REDONE
