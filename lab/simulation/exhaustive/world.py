"""A world in which a choice decides who goes on and when a message arrives, instead of the time.

Without another choice, a process goes on until it ends or waits for something, and a message arrives at once. It can be
interrupted before each step: then another process goes on until that one ends, waits for the first one, or is
interrupted itself. A successor may start instead, as if the driver were dead. Late messages wait until they are chosen
before some step, or until every process has ended; late markers at most until a process sleeps before it asks again.

Steps take no time, so that it is the same in whatever order they were taken; only waiting does, for retries, and for
the one long pause, after which every transaction that was open has timed out. The product asks the clock whether such
times have passed, minutes. Therefore two states may differ in it by seconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple, Protocol

from lab.simulation.exhaustive.answers import STEPS, Answers, Choose
from lab.simulation.exhaustive.scenario import Bound, Scenario
from lab.simulation.exhaustive.state import digest, frozen
from lab.simulation.world import Killed, Process, Stuck, World

_MOST_TURNS = 2_000
_COARSE_S = 30.0


class _Message(NamedTuple):
    why: str
    sent: bytes  # what its sender had seen; nothing of a marker, which the coordinator's state determines
    action: Callable[[], None]


class Seen(Protocol):
    """The states that were met."""

    @property
    def asked(self) -> bool:
        """Whether to ask at this step: not as long as the history follows choices that are given."""

    def before(self, state: bytes, remaining: Bound) -> bool:
        """Whether a history was in this state with as much left of the bound."""


class SeenBefore(BaseException):
    """The history goes on as another one that was explored."""


class ChosenWorld(World):
    """`choose` picks one of several options; the history stops where it goes on as one that was `seen`.

    Set before it runs: `files` returns the checkpoint's, `shared` what else is the same for all processes.
    """

    def __init__(
        self,
        scenario: Scenario,
        bound: Bound,
        *,
        choose: Choose,
        seen: Seen | None,
        trace: list[str] | None = None,
    ) -> None:
        self._answers = Answers(scenario, bound, choose, self._attempt)
        super().__init__(self._answers, trace=trace)
        self.files: Callable[[], object] = lambda: None
        self.shared: Callable[[], tuple[object, ...]] = tuple
        self._switches_left = bound.switches
        self._choose, self._seen = choose, seen
        self._next: Process | None = None
        self._messages: list[_Message] = []
        self._interrupted: list[Process] = []
        self._views: dict[Process, bytes] = {}  # a digest of all that a process has seen
        self._asked: Counter[tuple[Process, str]] = Counter()
        self._stop = False

    def _attempt(self, what: str) -> int:
        """How often the current process has asked this, and which driver it is: other drivers begin elsewhere."""
        process = self.running
        assert process is not None
        self._asked[process, what] += 1  # a part of what it has seen: it asks once for each attempt
        return self._asked[process, what] + int(process.name.rpartition(" ")[2])

    # -- what processes see

    def heard(self, process: Process, answer: object) -> None:
        self._sees(process.whole, repr(answer))

    def fault(self, kind: str, detail: str = "", *, at: str = "") -> None:
        super().fault(kind, detail, at=at)
        if self.running is not None:
            self._sees(self.running, kind)

    def _sees(self, process: Process, *what: object) -> None:
        self._views[process] = digest((self._views.get(process, process.name), what))

    # -- messages

    def message(self, delay_s: float, why: str, action: Callable[[], None]) -> None:
        if not delay_s:
            if why:
                self.note(f"  {why}")
            action()
            return
        sent = b"" if why or self.running is None else self._views.get(self.running, b"")
        self._messages.append(_Message(why, sent, action))

    def _arrives(self, message: _Message) -> None:
        self._messages.remove(message)
        if message.why:
            self.note(f"  late: {message.why}")
        message.action()

    def settle(self) -> None:
        while self._messages or self._events:
            if self._messages:
                which = self._choose("which message arrives first", len(self._messages))
                self._arrives(self._messages[which])
            else:
                self.pass_time(max(0.0, self._events[0][0] - self.now))

    # -- who goes on

    def run(self, ended: Callable[[Process], None]) -> None:
        turns = 0
        while self._processes:
            turns += 1
            if turns > _MOST_TURNS:
                raise Stuck(f"the history did not end within {_MOST_TURNS:,} turns")
            process, self._next = self._next or self._usual(), None
            if process in self._interrupted:
                self._interrupted.remove(process)
            if process.wake > self.now:
                self.pass_time(process.wake - self.now)
            if self._turn(process):
                ended(process)
            if self._stop:
                raise SeenBefore

    def _usual(self) -> Process:
        """The one that is ready first, of those that are not interrupted if there are any; else the last of these."""
        free = [process for process in self._processes if process not in self._interrupted]
        return min(free, key=_wakes) if free else self._interrupted[-1]

    def step(self, process: Process, at: str) -> None:
        if process.dead or process.whole.dead:
            raise Killed(process)
        if at == "sleep":
            for message in [message for message in self._messages if message.why]:
                self._arrives(message)
        if at not in STEPS:
            return
        whole = process.whole
        while True:
            files = frozen(self.files()) if at == "checkpoint" or whole not in self._views else None
            self._sees(whole, at, int(self.now // _COARSE_S), files)
            self._look(whole)
            others = self._others(whole)
            chosen = self._choose(f"before {at}", 1 + len(self._messages) + len(others))
            if chosen == 0:
                return
            if chosen <= len(self._messages):
                self._arrives(self._messages[chosen - 1])
                continue
            self._switches_left -= 1
            self._interrupt(process, others[chosen - 1 - len(self._messages)])

    def _others(self, whole: Process) -> list[Process | None]:
        """Who may interrupt this process; None stands for a successor that starts."""
        if not self._switches_left:
            return []
        others: list[Process | None] = [process for process in self._processes if process is not whole]
        newest = [process for process in self._processes if process.on_pause is not None][-1:]
        return [*others, None] if newest == [whole] else others

    def _interrupt(self, process: Process, other: Process | None) -> None:
        whole = process.whole
        whole.wake = self.now
        self._interrupted.append(whole)
        if other is None:
            self.note("is taken for dead: a successor starts")
            assert whole.on_pause is not None
            whole.on_pause(0.0)
        else:
            self.note(f"stands still: {other.name} goes on")
            self._next = other
        process.suspend()

    def _look(self, whole: Process) -> None:
        """Stop the history here if it goes on as another one."""
        if self._seen is None or not self._seen.asked:
            return
        state = digest(
            (
                whole.name,
                int(self.now // _COARSE_S),
                [(message.why, message.sent) for message in self._messages],
                [process.name for process in self._interrupted],
                [
                    (process.name, self._views.get(process, b""), round(max(0.0, process.wake - self.now)))
                    for process in self._processes
                ],
                frozen(self.shared()),
            )
        )
        if self._seen.before(state, Bound(self._switches_left, self._faults_left, self._answers.markers_left)):
            self._stop = True
            whole.suspend()


def _wakes(process: Process) -> float:
    return process.wake
