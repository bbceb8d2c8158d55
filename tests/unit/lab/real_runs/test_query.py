"""The supervisor of a real query, with drivers that write nothing."""

import random
from contextlib import nullcontext
from unittest.mock import Mock, call

import pytest

from lab.real_runs import query as supervising
from lab.real_runs.driver import SOURCE, Supervisor
from lab.real_runs.faults import Fault
from lab.real_runs.query import Query


def reads_all(job, pipe):
    """A driver's life; the first one is late when nothing is left to do."""
    supervisor = Supervisor(pipe)
    number, _resumes = supervisor.begins()
    start = None if number else {SOURCE: 0}
    while supervisor.plans(number, start) is not None:
        supervisor.notes(number)
        number, start = number + 1, None
    if job.hold:
        supervisor.held()
    supervisor.stops("")


@pytest.mark.parametrize("until", ["planned", "noted", "stopped"])
def test_a_driver_that_is_late_at_the_end_goes_on_though_no_successor_has_anything_to_do(until, monkeypatch):
    monkeypatch.setattr(supervising, "_PATIENCE_S", 10.0)
    witness = Mock(drivers=set(), recording=nullcontext())
    query = Query(
        output="out",
        holds=True,
        spoils=False,
        faults=[Fault(kind="held at a failpoint, and late", point="any", until=until)],
        chance=random.Random(0),
        proxy=Mock(),
        witness=witness,
        settings={},
        main=reads_all,
    )
    query.live()
    assert sorted(witness.recorder.stops.mock_calls) == [call("driver-1", ""), call("driver-2", "")]
    assert query.happened == {"held at a failpoint, and late": 1}
