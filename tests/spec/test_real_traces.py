"""The connector's code follows the specification on real brokers: TLC allows runs of real processes with kills."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from lab.real_runs.record import record
from lab.simulation.record import Requested, Shown
from lab.specification.steps import STARTED_TWICE
from lab.specification.traces import check_recordings, explained
from tests.seeded_bugs import in_driver

pytestmark = pytest.mark.broker


def test_the_specification_allows_every_step_of_real_runs_with_kills(watched, cell):
    runs = [record(watched, seed, holds=True) for seed in (0, 2, 5)]
    checked = check_recordings(run.recording for run in runs)
    version = f"Kafka {watched.kafka.version}"
    killed = sum(run.killed.total() for run in runs)
    cell("real traces", version, f"{checked.accepted} runs, {killed} kills, {checked.steps} steps", "allowed")
    assert checked.rejected == [], "\n".join(line for each in checked.rejected for line in explained(each))
    assert set(checked.outside) <= {STARTED_TWICE}
    assert checked.accepted > len(runs) / 2
    assert killed > 0


def test_a_real_run_whose_rows_are_others_than_those_of_its_batches_is_rejected(watched):
    recording = record(watched, 2, holds=True).recording
    shown = [step for step in recording.steps if isinstance(step, Shown)]
    fullest = max(shown, key=lambda step: len(step.rows))
    rows = fullest.rows
    tampered = [
        _with_other(recording, fullest, replace(fullest, rows=others))
        for others in (rows[1:], (*rows, rows[-1]), rows[::-1], (*rows, (0, 77)))
    ]
    written = next(step for step in recording.steps if isinstance(step, Requested) and len(_rows(step)) > 1)
    for others in (_rows(written)[::-1], (*_rows(written), (0, 77))):
        appends = (replace(written.request.appends[0], rows=others), *written.request.appends[1:])
        other = replace(written, request=replace(written.request, appends=appends))
        tampered.append(_with_other(recording, written, other))
    checked = check_recordings([recording, *tampered])
    assert (checked.accepted, len(checked.rejected), checked.outside) == (1, len(tampered), {})


def _rows(step):
    return step.request.appends[0].rows if step.request.appends else ()


def _with_other(recording, step, other):
    return replace(recording, steps=tuple(other if each is step else each for each in recording.steps))


def test_a_real_run_of_code_without_a_guard_is_rejected(watched):
    run = record(watched, 0, holds=True, main=partial(in_driver, "look-always-counts"))
    (rejected,) = check_recordings([run.recording]).rejected
    assert rejected.trace.steps[rejected.accepted]["kind"] in ("appends", "adds"), "the ledger was not read before"
