"""A world in which time passes only when a process waits: processes, scheduled events, and random faults.

`chance` answers every question at which the history branches. Answers from a seed determine a whole history.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, NoReturn

from lab.simulation.chance import Chance
from lab.simulation.fibers import Fiber

if TYPE_CHECKING:
    from lab.simulation.record import Recorder

_LATENCY_S = 0.001
_SWITCHES = 0.25  # probability that another process continues at a step, if there is one


class Killed(BaseException):
    """The process is dead: it does nothing more, not even clean up."""

    def __init__(self, process: Process) -> None:
        super().__init__(process.name)
        self.process = process


class Stuck(Exception):
    """The history does not end: a bug, or a scenario that cannot be healed."""


class World:
    """The time, the faults and the processes of one history."""

    def __init__(self, chance: Chance, *, trace: list[str] | None = None) -> None:
        self.chance = chance
        self.now = 0.0
        self.faults: Counter[str] = Counter()
        self.met: Counter[tuple[str, str]] = Counter()  # a request and its fault
        self.trace = trace
        self.recorder: Recorder | None = None  # of the steps, for the specification
        self._share, self._faults_left = 0.0, 0
        self._events: list[tuple[float, int, str, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._processes: list[Process] = []
        self.running: Process | None = None  # whose turn it is

    # -- faults

    def allow(self, *, faults: int, share: float) -> None:
        """Allow this number of faults, each with this probability."""
        self._faults_left, self._share = faults, share

    def strikes(self, at: str, often: float = 1.0) -> bool:
        """Whether a fault happens now, `at` this request or event; `often` is a factor of its probability."""
        return self._faults_left > 0 and self.chance.happens(f"fault at {at}", self._share * often)

    def fault(self, kind: str, detail: str = "", *, at: str = "") -> None:
        """Count a fault, and the request `at` which it happened."""
        if at:
            self.met[at, kind] += 1
        self._faults_left -= 1
        self.faults[kind] += 1
        self.note(f"FAULT {kind}{f': {detail}' if detail else ''}")

    def heal(self) -> None:
        """Allow no more faults."""
        if self._faults_left:
            self._faults_left = 0
            self.note("no more faults from here on")

    def note(self, text: str) -> None:
        if self.trace is not None:
            who = self.running.name if self.running else "-"
            self.trace.append(f"{self.now:9.3f}s {who:<12} {text}")

    # -- time

    def after(self, seconds: float, why: str, action: Callable[[], None]) -> None:
        """Run `action` after `seconds`."""
        heapq.heappush(self._events, (self.now + seconds, next(self._numbers), why, action))

    def message(self, delay_s: float, why: str, action: Callable[[], None]) -> None:
        """Let a message arrive, which runs `action`, after its delay."""
        self.after(delay_s, why, action)

    def pass_time(self, seconds: float) -> None:
        """Let time pass, and run the actions that become due."""
        until = self.now + seconds
        events = self._events
        while events and events[0][0] <= until:
            self.now, _, why, action = heapq.heappop(events)
            if why and self.trace is not None:
                self.note(f"  {why}")
            action()
        self.now = until

    def settle(self) -> None:
        """Let time pass until no action is scheduled."""
        while self._events:
            self.pass_time(max(0.0, self._events[0][0] - self.now))

    # -- processes

    def start(self, process: Process, after: float = 0.0) -> None:
        """Start the process after this number of seconds."""
        process.wake = self.now + after
        self._processes.append(process)

    def run(self, ended: Callable[[Process], None]) -> None:
        """Let the processes take turns until none is left; call `ended` for each, which may start others."""
        steps = 0
        while self._processes:
            steps += 1
            if steps > 20_000:
                raise Stuck("the history did not end within 20,000 turns")
            ready = [process for process in self._processes if process.wake <= self.now and not process.is_blocked()]
            if not ready:
                soonest = min(
                    (process.wake for process in self._processes if process.wake > self.now), default=math.inf
                )
                if self._events and self._events[0][0] < soonest:
                    soonest = self._events[0][0]
                if soonest == math.inf:
                    raise Stuck("every process waits for another one")
                self.pass_time(soonest - self.now)
                continue
            process = ready[0] if len(ready) == 1 else self.chance.choose("who is next", ready)
            if self._turn(process):
                ended(process)

    def end(self) -> None:
        """Kill the remaining processes."""
        while self._processes:
            process = self._processes[-1]
            process.die()
            self._turn(process)

    def _turn(self, process: Process) -> bool:
        """One turn; True if the process has ended."""
        self.running = process
        try:
            process.fiber.resume()
        finally:
            self.running = None
            if process.fiber.done:
                self._processes.remove(process)
        return process.fiber.done

    def wait(self, process: Process, seconds: float) -> None:
        """Let the process wait while others continue."""
        if len(self._processes) <= 1:
            self.pass_time(seconds)
        else:
            process.wake = self.now + seconds
            process.suspend()

    def wait_until(self, process: Process, is_so: Callable[[], bool]) -> None:
        """Let the process wait for others, until they have made it so."""
        process.check()
        while not is_so():
            process.awaited = is_so
            process.suspend()
            process.awaited = None
            process.check()

    def heard(self, process: Process, answer: object) -> None:
        """Note what a request of the process was answered; None if it was not."""

    def step(self, process: Process, at: str) -> None:  # noqa: ARG002 - `exhaustive` decides by it
        """Let another process that is ready continue before this one, at random. `at` is what this one does next: a
        request, "connect", "sleep", or "checkpoint".
        """
        process.check()
        if len(self._processes) > 1 and self.chance.happens("switch", _SWITCHES):
            process.whole.wake = self.now
            process.suspend()
        events = self._events
        self.now += _LATENCY_S
        if events and events[0][0] <= self.now:
            self.pass_time(0.0)


class Process:
    """A driver or a task: a name, a fiber, and whether it is alive. A task may run inside its driver (`inside`).

    `whole` has the fiber, `life` is what dies, pauses and is cut off as one: the same, except with threads.
    """

    def __init__(
        self,
        world: World,
        name: str,
        function: Callable[[], None] = lambda: None,
        *,
        inside: Process | None = None,
        on_pause: Callable[[float], None] | None = None,
    ) -> None:
        """`on_pause` is called with the number of seconds when this process is about to pause."""
        self.world, self.name = world, name
        self.dead = False
        self.wake = 0.0
        self.awaited: Callable[[], bool] | None = None  # what others have to make so before it goes on
        self.threads: list[Process] = []  # more fibers of this process
        self.life: Process = inside or self
        self.fiber: Fiber = inside.fiber if inside else Fiber(self._guarded(function))
        self.sockets: ExitStack = inside.sockets if inside else ExitStack()  # closed when the whole process ends
        self.on_pause = on_pause
        self.kind = name.partition(" ")[0]

    @property
    def whole(self) -> Process:
        """What has the fiber: the one in which it runs, or the thread of it that runs now."""
        life = self.life
        if life.threads and (current := self.world.running) is not None and current.life is life:
            return current
        return life

    def clock(self) -> float:
        return self.world.now

    @property
    def driver(self) -> tuple[str, bool]:
        """The name of the driver in which, or for which, it runs, and whether it is a straggler."""
        whole = self.whole.name
        return whole.rpartition(" of ")[2], " of " in whole

    def sleep(self, seconds: float) -> None:
        self.world.step(self, "sleep")
        self.world.wait(self.whole, seconds)
        self.check()

    def pause(self, seconds: float) -> None:
        """Pause together with all processes inside it, as after SIGSTOP or during a garbage collection."""
        if self.life.on_pause is not None:
            self.life.on_pause(seconds)
        for thread in (self.life, *self.life.threads):
            if thread is not self.whole:
                thread.wake = max(thread.wake, self.world.now + seconds)
        self.world.wait(self.whole, seconds)
        self.check()

    def is_blocked(self) -> bool:
        """Whether it waits for others, and they have not made it so."""
        return self.awaited is not None and not self.life.dead and not self.awaited()

    def check(self) -> None:
        """Raise Killed if this process, or the one in which it runs, is dead."""
        if self.dead or self.life.dead:
            raise Killed(self)

    def suspend(self) -> None:
        self.whole.fiber.suspend()
        if self.life.dead:
            raise Killed(self.life)

    def kill(self) -> NoReturn:
        self.die()
        raise Killed(self)

    def die(self) -> None:
        """Be dead from now on: its threads go no further."""
        self.dead = True
        for thread in (self, *self.threads):
            thread.wake = min(thread.wake, self.world.now)

    def _guarded(self, function: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            with self.sockets:
                try:
                    self.check()
                    function()
                except Killed:
                    self.world.note("is dead")

        return run
