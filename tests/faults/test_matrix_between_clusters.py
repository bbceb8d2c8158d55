"""The fault matrix between clusters: the source on one, the sink's transaction on another; either may be away.

What is lost between driver and broker is lost on the sink's side; of the source, which is only read, a batch at hand
needs nothing any more. The sink's cluster has a topic of the source's name, too.
"""

from __future__ import annotations

import pytest

from spark_kafka_eos.testing.embedded import EmbeddedKafka
from tests.faults.columns import COLUMNS, OF_SOURCE, expected, protocol
from tests.faults.conftest import fill
from tests.faults.states import OPEN, STATES, UNHEARD, UNNOTED

pytestmark = pytest.mark.broker

IN_EVERY_RUN = {
    "driver SIGKILL": [OPEN, UNHEARD, UNNOTED],
    "connection cut": [OPEN, UNHEARD],
    "response lost": [OPEN, UNHEARD],
    "zombie driver": [OPEN, UNHEARD, UNNOTED],
    "checkpoint lost": [name for name, state in STATES.items() if state.end != "lost"],  # which is as without EndTxn
    "broker SIGKILL": [OPEN],
    "source broker SIGKILL": [OPEN],
    "source broker SIGSTOP": [OPEN, UNHEARD, UNNOTED],
}

PLAYS = COLUMNS | OF_SOURCE


@pytest.fixture(scope="module")
def origin(tv1_version):
    """A cluster of its own, which may be killed, with a source of the same name."""
    with EmbeddedKafka(tv1_version) as kafka:
        fill(kafka, "source", "elsewhere")
        yield kafka


@pytest.mark.parametrize(
    ("fault", "state"),
    [
        pytest.param(fault, state, marks=() if state in IN_EVERY_RUN.get(fault, []) else pytest.mark.slow)
        for fault in PLAYS
        for state in STATES
    ],
)
def test_the_fault_has_the_same_outcome_between_clusters(scene, cell, fault, state):
    wanted = expected(scene, fault, state)
    cell(f"Fault matrix between clusters, {protocol(scene)}", state, fault, wanted)
    assert PLAYS[fault](scene, STATES[state]) is wanted
