"""A fault that hits nobody is none: it is not reported as one that was survived."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lab.soak.faults import Faults
from lab.soak.schedule import FaultKind, PlannedFault
from tests.waiting import until


class Victim:
    """A query or a broker: what each attempt to harm it hits, one after the other."""

    at_work = True

    def __init__(self, *hits: Any) -> None:
        self.hits = list(hits)
        self.healed = 0
        self.site = SimpleNamespace(heal=self.resume, proxy=None)

    def kill(self, **_: object) -> Any:
        return self.hits.pop(0)

    kill_executor = pause = kill

    def resume(self) -> None:
        self.healed += 1


def injected(kind: FaultKind, victim: Any) -> list[str]:
    """What is reported, once all attempts are made."""
    faults = Faults(
        [PlannedFault(at=0.0, kind=kind, target="1")],
        brokers={"1": victim},
        queries={"1": victim},
        tell=lambda _: None,
    )
    faults.start()
    until(lambda: not victim.hits)
    faults.stop()
    return [each.hit for each in faults.injected]


@pytest.mark.parametrize("kind", [FaultKind.DRIVER_KILLED, FaultKind.CHECKPOINT_LOST, FaultKind.EXECUTOR_KILLED])
def test_a_kill_waits_for_a_process_that_it_can_hit(kind):
    assert injected(kind, Victim(None, None, "3 processes")) == ["3 processes"]


@pytest.mark.parametrize("kind", [FaultKind.DRIVER_PAUSED, FaultKind.BROKER_KILLED, FaultKind.BROKER_PAUSED])
def test_a_pause_or_a_stop_of_what_does_not_run_is_left_out(kind):
    gone, there = Victim(False), Victim(True)
    assert injected(kind, gone) == []
    assert injected(kind, there) == [""]
    assert gone.healed == there.healed == 1
