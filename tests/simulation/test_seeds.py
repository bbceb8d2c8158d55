"""Seeds for every run, and as many as a build has time for, on two cores."""

from __future__ import annotations

import pytest

from lab.simulation.run import run

_EVERY_RUN, _ALL = 10_000, 1_000_000


@pytest.mark.timeout(900)
def test_ten_thousand_histories_are_correct(cell):
    summary = run(range(_EVERY_RUN), jobs=2)
    cell(
        "Simulation, TV1 and TV2",
        f"{summary.seeds:,} seeds, {summary.faults.total():,} faults, {summary.outcomes.total():,} drivers",
        "exactly once",
    )
    assert summary.wrong == {}
    assert summary.seeds == _EVERY_RUN


@pytest.mark.slow
@pytest.mark.timeout(7_200)
def test_a_million_histories_are_correct(cell):
    summary = run(range(_EVERY_RUN, _ALL), jobs=2)
    cell("Simulation, TV1 and TV2", f"{summary.seeds:,} more seeds", "exactly once")
    assert summary.wrong == {}
    assert summary.seeds == _ALL - _EVERY_RUN
