"""As many seeds as a build has time for, on two cores."""

from __future__ import annotations

import pytest

from spark_kafka_eos.lab.simulation.run import run

_SEEDS = 100_000


@pytest.mark.timeout(900)
def test_a_hundred_thousand_histories_are_correct(cell):
    summary = run(range(_SEEDS), jobs=2)
    cell(
        "Simulation, TV1 and TV2",
        f"{summary.seeds:,} seeds, {summary.faults.total():,} faults, {summary.outcomes.total():,} drivers",
        "exactly once",
    )
    assert summary.wrong == {}
    assert summary.seeds == _SEEDS


@pytest.mark.slow
@pytest.mark.timeout(7_200)
def test_a_million_histories_are_correct(cell):
    summary = run(range(_SEEDS, 11 * _SEEDS), jobs=2)
    cell("Simulation, TV1 and TV2", f"{summary.seeds:,} more seeds", "exactly once")
    assert summary.wrong == {}
    assert summary.seeds == 10 * _SEEDS
