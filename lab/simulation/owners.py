"""Who took the transactional.id when, and who had looked before: no late driver may disturb the one that lives.

A driver is late if it took the id earlier in its run, and another driver took it since. What a late driver may do is in
`transaction.shared`: it looks whose the id is, and ends. It may only take the id if the other one took it after that
look. A request that arrives after its sender gave it up counts as sent when it was sent. One that the coordinator
refuses, and that changes nothing there, disturbs nobody.

A driver whose InitProducerId was not answered cannot tell by a look whether it left the id "Empty", or another driver's
first one did. If it held an epoch, it must not take the id then: only abort a transaction that began after the look. If
it holds none from batch to batch, as the sink, it may.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

from lab.simulation.coordinator import NONE, Phase
from lab.simulation.world import Process


class Owners:
    """The drivers that took the one transactional.id of a history; `wrong` names those that disturbed another one."""

    def __init__(self, state: Callable[[], Mapping[str, tuple[Phase, int, int]]]) -> None:
        """`state` is what the coordinator knows of the id: its phase, producer id and epoch."""
        self._state = state
        self.wrong: list[str] = []
        self.last: Process | None = None  # who took it last; None if nobody, or a request that arrived late
        self.last_to_try: Process | None = None  # the same of who sent InitProducerId last, whatever the answer
        self._since = 0
        self._moments = itertools.count(1)
        self._looked: dict[Process, int] = {}
        self._took: dict[Process, int] = {}
        self._unanswered: set[Process] = set()  # who has sent an InitProducerId that was not answered
        self._in_doubt: set[Process] = set()  # whose last look showed what such a request may have left
        self._forgetful: set[Process] = set()
        self._started: dict[Process, int] = {}  # when it last began to take buckets (real time)

    def order(self) -> tuple[object, ...]:
        """Who looked and who took the id, in which order, but not how often."""
        moments = sorted({self._since, *self._looked.values(), *self._took.values()})
        rank = {moment: place for place, moment in enumerate(moments)}
        looked, took = (
            sorted((process.name, rank[moment]) for process, moment in by_process.items())
            for by_process in (self._looked, self._took)
        )
        doubts = [sorted(process.name for process in processes) for processes in (self._unanswered, self._in_doubt)]
        return (self.last and self.last.name), rank[self._since], looked, took, doubts, len(self.wrong)

    def starts(self, process: Process) -> None:
        """The driver begins something that knows nothing of what it did before, as each batch write does."""
        self._took.pop(process, None)

    def forgets(self, process: Process) -> None:
        """The driver holds no epoch from batch to batch, as the sink."""
        self._forgetful.add(process)

    def starts_buckets(self, process: Process) -> None:
        """The driver of a query in real time begins to take buckets. It has to look first whose the query is."""
        self._started[process] = next(self._moments)

    def takes_bucket(self, process: Process, handle: Callable[[], Any]) -> Callable[[bool], Any]:
        """The same as `sends`, for InitProducerId of a bucket of a query in real time. Drivers of micro-batches take
        them, too, as soon as they have the query's id.
        """
        since = self._started.get(process, self._took.get(process))

        def arrive(_in_time: bool) -> Any:
            before, other = self._state(), self.last
            answer = handle()
            if self._state() != before:
                is_others = other is not None and other is not process and not (other.dead or other.fiber.done)
                if since is None:
                    self.wrong.append(f"{process.name} took a bucket without the query's id")
                elif is_others and since > self._since:
                    self.wrong.append(f"{process.name} came back late, and took a bucket of another driver")
            return answer

        return arrive

    def unanswered(self, process: Process, api: str) -> None:
        """The driver gets no answer to this request. An InitProducerId uses up the look before it."""
        if api == "InitProducerId":
            self._unanswered.add(process)
            self._looked.pop(process, None)

    def sends(self, process: Process, api: str, handle: Callable[[], Any]) -> Callable[[bool], Any]:
        """What to call when this request arrives, with whether its sender gets the answer. `handle` answers it."""
        looked, took, in_doubt = self._looked.get(process, 0), self._took.get(process), process in self._in_doubt

        def arrive(in_time: bool) -> Any:
            before = self._state()
            answer = handle()
            if api == "DescribeTransactions" and in_time:
                self._looked[process] = next(self._moments)
                if process in self._unanswered and _shows(before, Phase.EMPTY):
                    self._in_doubt.add(process)
                else:
                    self._in_doubt.discard(process)
            if api == "InitProducerId":
                changed = self._state() != before
                if changed and not (in_doubt and (process in self._forgetful or _shows(before, Phase.ONGOING))):
                    self._judge(process, looked, took)
                self._takes(process, answer, changed=changed, in_time=in_time)
            return answer

        return arrive

    def _judge(self, process: Process, looked: int, took: int | None) -> None:
        """Whether a request that changed something at the coordinator disturbs another driver."""
        other = self.last
        if other is None or other is process or other.dead or other.fiber.done or took is None:
            return
        if looked < took:
            self.wrong.append(f"{process.name} came back late, and disturbed {other.name} without a look")
        elif looked > self._since:
            self.wrong.append(f"{process.name} came back late, saw {other.name}, and disturbed it nevertheless")

    def _takes(self, process: Process, answer: Any, *, changed: bool, in_time: bool) -> None:
        self.last_to_try = process if in_time else None
        if answer is not None and answer.error_code == NONE:
            self._since = next(self._moments)
            self.last = process if in_time else None
            if in_time:
                self._took[process] = self._since
                self._unanswered.discard(process)
                self._in_doubt.discard(process)
        elif changed:  # it aborted the open transaction under a new epoch: who had the id has lost it now
            self.last = None


def is_bucket(transactional_id: str) -> bool:
    """Whether the id is that of a bucket of a query in real time, not the query's own."""
    return ".bucket-" in transactional_id


def _shows(states: Mapping[str, tuple[Phase, int, int]], phase: Phase) -> bool:
    return any(state[0] is phase for name, state in states.items() if not is_bucket(name))
