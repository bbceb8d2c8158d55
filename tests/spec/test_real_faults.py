"""Ten thousand faults of real processes and connections, in parts: kills, pauses, lost, late and refused requests and
answers, timeouts, lost and older checkpoints. The specification allows every step, and what a reader finds in the end.
"""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from lab.real_runs.record import RealRuns, record
from lab.specification.traces import check_recordings, explained

pytestmark = [pytest.mark.slow, pytest.mark.broker, pytest.mark.timeout(7_200)]

FAULTS, PARTS = 10_000, 10
SEEDS = 100_000  # of a part; no other test has them
AT_ONCE = 50  # runs, whose traces are then checked


@pytest.mark.parametrize("part", range(PARTS))
def test_ten_thousand_real_faults_leave_only_what_the_specification_allows(watched, part, cell):
    """A part on each of two releases, of half of its faults each."""
    seeds = itertools.count(SEEDS * (1 + part))
    happened, steps, runs = Counter[str](), 0, 0
    while happened.total() < FAULTS / PARTS / 2:
        some: list[RealRuns] = [record(watched, next(seeds)) for _ in range(AT_ONCE)]
        checked = check_recordings(run.recording for run in some)
        assert checked.rejected == [], "\n".join(line for each in checked.rejected for line in explained(each))
        happened += sum((run.happened for run in some), Counter[str]())
        steps, runs = steps + checked.steps, runs + checked.accepted
    version = f"Kafka {watched.kafka.version}"
    for what, count in happened.items():
        cell(f"real faults, part {part}", version, what, f"{count:,}")
    cell(f"real faults, part {part}", version, "all", f"{happened.total():,} in {runs} runs, {steps:,} steps")
