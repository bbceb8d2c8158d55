"""Injects the faults of a schedule: those of a lane one after the other, the lanes in parallel."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from lab.soak.brokers import Broker
from lab.soak.drivers import Query
from lab.soak.schedule import FaultKind, PlannedFault

_POLL_SECONDS = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Injected:
    """A fault that happened: its start and end in seconds since the start, and what it hit."""

    fault: PlannedFault
    at: float
    until: float
    hit: str = ""

    def __str__(self) -> str:
        return f"{self.fault}{f': {self.hit}' if self.hit else ''}"


class Faults:
    """The faults of one soak. `brokers` and `queries` contain the schedule's targets by name. `tell` is called for each
    fault, in its lane's thread. A fault that hits no process is none: it waits for one, or is left out.
    """

    def __init__(
        self,
        schedule: Sequence[PlannedFault],
        *,
        brokers: Mapping[str, Broker],
        queries: Mapping[str, Query],
        tell: Callable[[Injected], None],
    ) -> None:
        self._brokers, self._queries, self._tell = brokers, queries, tell
        self.injected: list[Injected] = []
        self._errors: list[BaseException] = []
        self._over = threading.Event()
        self._started = 0.0
        lanes: dict[str, list[PlannedFault]] = {}
        for fault in schedule:
            lanes.setdefault(fault.lane, []).append(fault)
        self._threads = [
            threading.Thread(target=self._run, args=(faults,), name=f"soak {lane}", daemon=True)
            for lane, faults in lanes.items()
        ]

    def start(self) -> None:
        """Start the schedule."""
        self._started = time.monotonic()
        for thread in self._threads:
            thread.start()

    def check(self) -> None:
        """Raise the error with which a lane failed, if any."""
        if self._errors:
            raise self._errors[0]

    def stop(self) -> None:
        """Inject no more faults, and wait until those in progress have ended. Raises as `check` does."""
        self._over.set()
        for thread in self._threads:
            thread.join()
        self.check()

    def _run(self, faults: Sequence[PlannedFault]) -> None:
        try:
            for fault in faults:
                if self._over.wait(max(0.0, fault.at - self._now())) or not self._await_work(fault.target):
                    return
                self._inject(fault)
        except BaseException as error:  # noqa: BLE001 - `check` raises it in the soak's own thread
            self._errors.append(error)

    def _await_work(self, target: str) -> bool:
        """Wait until the driver has started: before, it has nothing to lose. False if the soak ends first."""
        query = self._queries.get(target)
        while query is not None and not query.at_work:
            if self._over.wait(_POLL_SECONDS):
                return False
        return True

    def _now(self) -> float:
        return time.monotonic() - self._started

    def _inject(self, fault: PlannedFault) -> None:
        match fault.kind:
            case FaultKind.DRIVER_KILLED:
                self._kill(fault, self._queries[fault.target].kill)
            case FaultKind.CHECKPOINT_LOST:
                self._kill(fault, partial(self._queries[fault.target].kill, lose_checkpoint=True))
            case FaultKind.EXECUTOR_KILLED:
                self._kill(fault, self._queries[fault.target].kill_executor)
            case FaultKind.DRIVER_PAUSED:
                query = self._queries[fault.target]
                if query.pause():
                    self._lasting(fault)
                query.resume()
            case FaultKind.BROKER_KILLED:
                if self._brokers[fault.target].kill():
                    self._lasting(fault)
                self._brokers[fault.target].site.heal()
            case FaultKind.BROKER_PAUSED:
                if self._brokers[fault.target].pause():
                    self._lasting(fault)
                self._brokers[fault.target].site.heal()
            case FaultKind.CONNECTIONS_CUT:
                for site in {broker.site for broker in self._brokers.values()}:
                    site.proxy.cut()
                self._done(fault, self._now())

    def _kill(self, fault: PlannedFault, kill: Callable[[], str | None]) -> None:
        """Wait for a victim if there is none: the last executor has just been killed, or the driver has ended and is
        started again.
        """
        while (hit := kill()) is None:
            if self._over.wait(_POLL_SECONDS):
                return
        self._done(fault, self._now(), hit)

    def _lasting(self, fault: PlannedFault) -> None:
        """Report the fault, and return when it should end, even if the soak ends first."""
        at = self._now()
        self._done(fault, at)
        threading.Event().wait(fault.seconds)

    def _done(self, fault: PlannedFault, at: float, hit: str = "") -> None:
        injected = Injected(fault=fault, at=at, until=at + fault.seconds, hit=hit)
        self.injected.append(injected)
        self._tell(injected)
