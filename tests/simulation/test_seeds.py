"""Seeds for every run, and as many as a build has time for, on two cores."""

from __future__ import annotations

import pytest

from lab.simulation.conditions import Conditions
from lab.simulation.run import run

_EVERY_RUN, _ALL, _PARTS = 1_500, 1_000_000, 10
_LATE = _LEFT_OUT = 30_000
_REAL_TIME, _REAL_TIME_PARTS = 100_000, 5
_FAULTS = {
    "answer lost", "checkpoint lost", "checkpoint restored", "connection refused", "driver killed", "executor lost",
    "leaders and coordinators moved", "outage", "outdated coordinator", "passing error", "pause", "request delayed",
    "request lost", "speculative copy", "stage again", "task killed", "zombie",
}  # fmt: skip
_REQUESTS = ("InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "Produce", "TxnOffsetCommit", "EndTxn")
_OF_REQUESTS = ("request lost", "answer lost", "request delayed", "passing error", "driver killed", "pause", "outage")


@pytest.mark.timeout(900)
def test_fifteen_hundred_histories_are_correct_and_each_request_meets_each_fault_in_them(cell):
    summary = run(range(_EVERY_RUN), jobs=2)
    cell(
        "Simulation, TV1 and TV2",
        f"{summary.seeds:,} seeds, {summary.faults.total():,} faults, {summary.outcomes.total():,} drivers",
        "exactly once",
    )
    assert summary.wrong == {}
    assert summary.seeds == _EVERY_RUN
    assert summary.faults.keys() == _FAULTS
    # Too few outages of a broker that still adds partitions by a request (TV1) to count on one.
    assert {
        (request, fault) for request in _REQUESTS for fault in _OF_REQUESTS if fault != "outage"
    } <= summary.met.keys()


@pytest.mark.slow
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("part", range(_PARTS))
def test_a_million_histories_are_correct(part, cell):
    """Each part is a run of its own, so that none takes more than an hour (.ci/slow_run.py)."""
    first, end = max(_EVERY_RUN, _ALL // _PARTS * part), _ALL // _PARTS * (part + 1)
    summary = run(range(first, end), jobs=2)
    cell("Simulation, TV1 and TV2", f"{summary.seeds:,} more seeds, from {first:,}", "exactly once")
    assert summary.wrong == {}
    assert {(request, fault) for request in _REQUESTS for fault in _OF_REQUESTS} <= summary.met.keys()
    assert summary.seeds == end - first


@pytest.mark.slow
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("verification", [True, False], ids=["verified", "not-verified"])
def test_drivers_that_come_back_late_harm_nobody_in_many_histories(verification, cell):
    summary = run(range(_LATE), jobs=2, conditions=Conditions(late=True, verification=verification))
    verified = "" if verification else ", no verification"
    cell("Simulation, TV1 and TV2", f"{summary.seeds:,} seeds with late drivers{verified}", "exactly once")
    assert summary.wrong == {}
    assert summary.outcomes["ProducerFenced"] > _LATE / 10
    assert summary.seeds == _LATE


@pytest.mark.slow
@pytest.mark.timeout(7_200)
def test_markers_that_are_left_out_lose_and_repeat_nothing_in_many_histories(cell):
    summary = run(range(_LEFT_OUT), jobs=2, conditions=Conditions(left_out=True))
    left_out = summary.faults["marker left out"]
    cell("Simulation, TV1 and TV2", f"{summary.seeds:,} seeds, {left_out:,} markers left out", "exactly once")
    assert summary.wrong == {}
    assert left_out > _LEFT_OUT / 10
    assert summary.faults["operator ends a transaction"] < _LEFT_OUT / 1_000


@pytest.mark.slow
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("part", range(_REAL_TIME_PARTS))
def test_queries_in_real_time_lose_and_repeat_nothing_in_many_histories(part, cell):
    """Each part is a run of its own, so that none takes more than an hour (.ci/slow_run.py)."""
    seeds = range(_REAL_TIME // _REAL_TIME_PARTS * part, _REAL_TIME // _REAL_TIME_PARTS * (part + 1))
    summary = run(seeds, jobs=2, conditions=Conditions(real_time=True))
    cell("Simulation, TV1 and TV2", f"{summary.seeds:,} seeds in real time, from {seeds.start:,}", "exactly once")
    assert summary.wrong == {}
    assert {(request, fault) for request in _REQUESTS for fault in _OF_REQUESTS if fault != "driver killed"} <= (
        summary.met.keys()
    )
    assert {"executor lost", "partition added", "zombie"} <= summary.faults.keys()
    assert summary.seeds == len(seeds)
