"""Coordinators that leave out markers: nothing is lost or repeated, and nothing waits for good."""

from __future__ import annotations

from lab.simulation.conditions import Conditions
from lab.simulation.run import run


def test_a_few_hundred_histories_in_which_markers_are_left_out_are_correct(cell):
    summary = run(range(400), jobs=2, conditions=Conditions(left_out=True))
    left_out = summary.faults["marker left out"]
    cell("Simulation, TV1 and TV2", f"{summary.seeds:,} seeds, {left_out} markers left out", "exactly once")
    assert summary.wrong == {}
    assert left_out > 100


def test_markers_that_are_left_out_in_real_time_lose_and_repeat_nothing(cell):
    summary = run(range(150, 300), jobs=2, conditions=Conditions(real_time=True, left_out=True))
    left_out = summary.faults["marker left out"]
    cell(
        "Simulation, TV1 and TV2", f"{summary.seeds:,} seeds in real time, {left_out} markers left out", "exactly once"
    )
    assert summary.wrong == {}
    assert left_out > 50
