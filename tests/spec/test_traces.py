"""The connector's code follows the specification: TLC allows histories of the simulation, step by step."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lab.simulation.run import recorded
from lab.specification.steps import Outside, translate
from lab.specification.traces import check_traces, explained, shown

RECORDS = 6  # a history has 4 or 6, and TLC starts for each number


@pytest.fixture(scope="module")
def traces():
    found = map(translate, map(recorded, range(120)))
    return [trace for trace in found if not isinstance(trace, Outside) and trace.records == RECORDS]


@pytest.fixture(scope="module")
def trace(traces):
    """One in which nothing happens twice."""
    return min((each for each in traces if each.protocol == 2 and each.holds), key=lambda each: len(each.steps))


@pytest.mark.parametrize("holds", [True, False], ids=["writer", "sink"])
@pytest.mark.parametrize("protocol", [2, 1], ids=["TV2", "TV1"])
def test_the_specification_allows_every_step_of_the_code(traces, protocol, holds, cell):
    alike = [trace for trace in traces if (trace.protocol, trace.holds) == (protocol, holds)]
    steps = sum(len(trace.steps) for trace in alike)
    cell(
        "traces",
        f"TV{protocol}, {'writer' if holds else 'sink'}",
        f"{len(alike)} histories, {steps:,} steps",
        "allowed",
    )
    assert [str(rejected) for rejected in check_traces(alike)] == []
    assert len(alike) > 3


def test_a_trace_without_one_of_its_steps_is_rejected_soon_after_it(trace):
    needed = ("describes", "reads", "initialises", "appends", "appends entry", "commits offsets", "ends transaction")
    places = [next(at for at, step in enumerate(trace.steps) if step["kind"] == kind) for kind in needed]
    without = [replace(trace, steps=trace.steps[:at] + trace.steps[at + 1 :]) for at in places]
    rejected = check_traces(without)
    assert [each.trace for each in rejected] == without
    assert all(at <= each.accepted <= at + 5 for at, each in zip(places, rejected, strict=True))


def test_a_rejected_trace_is_told_up_to_the_step_that_is_not_allowed(trace):
    at = next(at for at, step in enumerate(trace.steps) if step["kind"] == "initialises")
    (rejected,) = check_traces([replace(trace, steps=(trace.steps[0], *trace.steps[at:]))])
    assert str(rejected).startswith(f"seed {trace.seed}: the specification allows 1 of ")
    first, last = explained(rejected)
    assert first.startswith(f"   1  {shown(trace.steps[0])}; next: describe; checkpoint 1: batch 1 is records 1..")
    assert last == f"   2  NOT ALLOWED: {shown(trace.steps[at])}"
