"""The connector's code follows the specification on real brokers: TLC allows runs of real processes with kills."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from multiprocessing.connection import Connection

import pytest

from lab.real_runs import driver
from lab.real_runs.broker import WatchedBroker, watched_broker
from lab.real_runs.driver import Job
from lab.real_runs.record import record
from lab.specification.traces import check_recordings, explained
from tests.seeded_bugs import BUGS

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module", params=["kafka_version", "tv1_version"], ids=["TV2", "TV1"])
def broker(request: pytest.FixtureRequest) -> Iterator[WatchedBroker]:
    with watched_broker(request.getfixturevalue(request.param)) as broker:
        yield broker


def with_bug(bug: str, job: Job, pipe: Connection) -> None:
    """A driver's process whose code lacks a guard."""
    with BUGS[bug]():
        driver.main(job, pipe)


def test_the_specification_allows_every_step_of_real_runs_with_kills(broker, cell):
    runs = [record(broker, seed, holds=True) for seed in range(4)]
    checked = check_recordings(run.recording for run in runs)
    version = f"Kafka {broker.kafka.version}"
    killed = sum(run.killed.total() for run in runs)
    cell("real traces", version, f"{checked.accepted} runs, {killed} kills, {checked.steps} steps", "allowed")
    assert checked.rejected == [], "\n".join(explained(checked.rejected[0]))
    assert checked.accepted > len(runs) / 2
    assert killed > 0


def test_a_real_run_of_code_without_a_guard_is_rejected(broker):
    run = record(broker, 0, holds=True, main=partial(with_bug, "look-always-counts"))
    (rejected,) = check_recordings([run.recording]).rejected
    assert rejected.trace.steps[rejected.accepted]["kind"] in ("appends", "adds"), "the ledger was not read before"
