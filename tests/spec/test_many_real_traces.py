"""The same as test_real_traces in hundreds of runs; and with a guard taken out of the code: do its traces show it?"""

from __future__ import annotations

import itertools
from functools import partial
from unittest import mock

import pytest

from lab.real_runs import driver
from lab.real_runs.faults import Fault
from lab.real_runs.record import record
from lab.simulation.record import Requested, Stopped
from lab.specification.steps import STARTED_TWICE
from lab.specification.traces import check_recordings, explained
from spark_kafka_eos import failpoints
from spark_kafka_eos.transaction.shared import SharedTransaction
from tests.seeded_bugs import in_driver

pytestmark = [pytest.mark.slow, pytest.mark.broker, pytest.mark.timeout(3_600)]

RUNS = 150
LATE_MARKERS = "WriteTxnMarkers:*:delay=1"
WITH_TIMEOUTS = (24, 55, 58, 67, 77, 88)
# Every driver does these wrong.
SHOWN = ("ledger-before-init", "look-always-counts", "no-look")


def test_the_specification_allows_every_step_of_hundreds_of_real_runs_with_kills(watched, cell):
    runs = [record(watched, seed) for seed in range(RUNS)]
    checked = check_recordings(run.recording for run in runs)
    killed = sum(run.killed.total() for run in runs)
    version = f"Kafka {watched.kafka.version}"
    cell("many real traces", version, f"{checked.accepted} of {RUNS} runs, {killed} kills", f"{checked.steps:,} steps")
    assert checked.rejected == [], "\n".join(line for each in checked.rejected for line in explained(each))
    assert set(checked.outside) <= {STARTED_TWICE}
    assert checked.accepted > 0.9 * RUNS
    assert killed > RUNS / 2


def test_so_it_does_while_the_markers_are_late(watched, cell):
    """As on an overloaded machine: a timeout, or a successor's fence, is over for its owner before its markers come."""
    runs = [record(watched, seed, rules=[LATE_MARKERS]) for seed in WITH_TIMEOUTS]
    checked = check_recordings(run.recording for run in runs)
    timeouts = sum(run.happened["timed out"] for run in runs)
    cell("late markers", f"Kafka {watched.kafka.version}", f"{len(runs)} runs", f"{timeouts} timeouts, allowed")
    assert checked.rejected == [], "\n".join(line for each in checked.rejected for line in explained(each))
    assert set(checked.outside) <= {STARTED_TWICE}
    assert timeouts > 0


def test_so_it_does_where_a_late_driver_finds_the_open_transaction_of_its_successor(watched, cell):
    """It goes on when a third one is killed, while the second one is held; those after it do not take the id yet."""
    first = Fault(kind="held at a failpoint, and late", point="initialised", until="stopped")
    second = Fault(kind="held at a failpoint, and late", point="all appended", until="noted")
    next_ones = [Fault(kind="killed at a failpoint", point="begun")] * 4
    run = record(watched, 0, main=_held_before_the_look, faults=[first, second, *next_ones])
    checked = check_recordings([run.recording])
    cell("a late driver", f"Kafka {watched.kafka.version}", f"{checked.steps} steps", "allowed")
    assert checked.rejected == [], "\n".join(line for each in checked.rejected for line in explained(each))
    of_the_id = [
        step.driver
        for step in run.recording.steps
        if isinstance(step, Stopped) or (isinstance(step, Requested) and step.request.api == "InitProducerId")
    ]
    drivers = [name for name, _ in itertools.groupby(of_the_id)]
    assert drivers[:3] == ["driver-1", "driver-2", "driver-1"], "the first has ended before a third one took the id"


def _held_before_the_look(job, pipe):
    """The process of a driver whose failpoint `initialised` comes before it looks for open transactions."""
    look = SharedTransaction.end_hanging

    def held(self):
        failpoints.failpoint("initialised")
        return look(self)

    with mock.patch.object(SharedTransaction, "end_hanging", held):
        driver.main(job, pipe)


@pytest.mark.parametrize("bug", SHOWN)
def test_real_runs_of_code_without_a_guard_are_rejected(watched, bug, cell):
    runs = [record(watched, seed, main=partial(in_driver, bug)) for seed in range(5)]
    checked = check_recordings(run.recording for run in runs)
    name = f"{bug.replace('-', ' ')}, Kafka {watched.kafka.version}"
    cell("seeded bugs on real brokers", name, "traces", f"{len(checked.rejected)} of {len(runs)} not allowed")
    assert checked.rejected
