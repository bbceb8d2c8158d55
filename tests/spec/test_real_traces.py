"""The connector's code follows the specification on real brokers: TLC allows runs of real processes with kills."""

from __future__ import annotations

from functools import partial

import pytest

from lab.real_runs.record import record
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
    assert checked.accepted > len(runs) / 2
    assert killed > 0


def test_a_real_run_of_code_without_a_guard_is_rejected(watched):
    run = record(watched, 0, holds=True, main=partial(in_driver, "look-always-counts"))
    (rejected,) = check_recordings([run.recording]).rejected
    assert rejected.trace.steps[rejected.accepted]["kind"] in ("appends", "adds"), "the ledger was not read before"
