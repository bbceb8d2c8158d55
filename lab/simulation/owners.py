"""Who took the transactional.id when, and who had looked before: no late driver may disturb the one that lives.

A driver is late if it took the id earlier in its run, and another driver took it since. What a late driver may do is in
`transaction.shared`: it looks whose the id is, and ends. It may only take the id if the other one took it after that
look. A request that arrives after its sender gave it up counts as sent when it was sent. One that the coordinator
refuses, and that changes nothing there, disturbs nobody.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from lab.simulation.coordinator import NONE
from lab.simulation.world import Process


class Owners:
    """The drivers that took the one transactional.id of a history; `wrong` names those that disturbed another one."""

    def __init__(self, state: Callable[[], object]) -> None:
        """`state` is what the coordinator knows of the id."""
        self._state = state
        self.wrong: list[str] = []
        self.last: Process | None = None  # who took it last; None if nobody, or a request that arrived late
        self.last_to_try: Process | None = None  # the same of who sent InitProducerId last, whatever the answer
        self._since = 0
        self._moments = itertools.count(1)
        self._looked: dict[Process, int] = {}
        self._took: dict[Process, int] = {}

    def order(self) -> tuple[object, ...]:
        """Who looked and who took the id, in which order, but not how often."""
        moments = sorted({self._since, *self._looked.values(), *self._took.values()})
        rank = {moment: place for place, moment in enumerate(moments)}
        looked, took = (
            sorted((process.name, rank[moment]) for process, moment in each.items())
            for each in (self._looked, self._took)
        )
        return (self.last and self.last.name), rank[self._since], looked, took, len(self.wrong)

    def starts(self, process: Process) -> None:
        """The driver begins something that knows nothing of what it did before, as each batch write does."""
        self._took.pop(process, None)

    def sends(self, process: Process, api: str, handle: Callable[[], Any]) -> Callable[[bool], Any]:
        """What to call when this request arrives, with whether its sender still waits. `handle` answers it."""
        looked, took = self._looked.get(process, 0), self._took.get(process)

        def arrive(in_time: bool) -> Any:
            before = self._state()
            answer = handle()
            if api == "DescribeTransactions" and in_time:
                self._looked[process] = next(self._moments)
            if api == "InitProducerId":
                changed = self._state() != before
                self._takes(process, answer, changed=changed, in_time=in_time, looked=looked, took=took)
            return answer

        return arrive

    def _takes(
        self, process: Process, answer: Any, *, changed: bool, in_time: bool, looked: int, took: int | None
    ) -> None:
        self.last_to_try = process if in_time else None
        other = self.last
        lives = other is not None and other is not process and not other.dead and not other.fiber.done
        if lives and changed and took is not None and other is not None:
            if looked < took:
                self.wrong.append(f"{process.name} came back late, and disturbed {other.name} without a look")
            elif looked > self._since:
                self.wrong.append(f"{process.name} came back late, saw {other.name}, and disturbed it nevertheless")
        if answer is not None and answer.error_code == NONE:
            self._since = next(self._moments)
            self.last = process if in_time else None
            if in_time:
                self._took[process] = self._since
        elif changed:  # it aborted the open transaction under a new epoch: who had the id has lost it now
            self.last = None
