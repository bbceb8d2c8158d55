"""Explores a scenario up to a bound: runs a history for each choice in it, until no choice is left."""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from unittest import mock

from lab.simulation.exhaustive.scenario import Bound, Scenario
from lab.simulation.exhaustive.state import digest, frozen
from lab.simulation.exhaustive.world import ChosenWorld, Seen, SeenBefore
from lab.simulation.history import History, Life
from lab.simulation.query import SOURCE, TOPICS

# The source's topic is there, so that nobody waits for it.
_TOPICS = {**TOPICS, SOURCE[0].topic: len(SOURCE)}

_LOOKUPS = ("FindCoordinator", "Metadata", "DescribeConfigs")
_CALENDAR_S = 1.7e9

Choices = tuple[tuple[int, int], ...]  # which choice of the history, counted from 0, and the option; elsewhere it is 0


@dataclass(slots=True, kw_only=True)
class Violation:
    """A history that is wrong: its choices, what is wrong, and how many were run until then."""

    choices: Choices
    wrong: list[str]
    histories: int


@dataclass(slots=True, kw_only=True)
class Explored:
    """What was explored. `histories` were run, of which `ended` went to the end; the others reached one of the
    `states` again. `ends` are digests of the brokers and the drivers' reports at the ends. `departures` counts the
    histories by how often they depart from the usual choice.
    """

    scenario: Scenario
    bound: Bound
    histories: int = 0
    ended: int = 0
    states: int = 0
    ends: set[bytes] = field(default_factory=set)
    seconds: float = 0.0  # of processor time
    departures: Counter[int] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)
    complete: bool = False  # whether no choice is left


def explore(
    scenario: Scenario,
    bound: Bound,
    *,
    most: int | None = None,
    prune: bool = True,
    progress: Callable[[int, int], None] = lambda _done, _discovered: None,
) -> Explored:
    """Run every history of the scenario within the bound, until one is wrong, or `most` were run.

    Without `prune`, also those that go on as another one did. `progress` gets the number of histories that were run,
    and of those that are known so far.
    """
    explored, started = Explored(scenario=scenario, bound=bound), time.process_time()
    states = _States()
    waiting = _Waiting()
    with _undisturbed():
        while len(waiting) and not explored.violations and explored.histories != most:
            choices = waiting.next()
            waiting.add(choices, _run(explored, choices, states, prune=prune))
            if explored.histories % 50 == 0:
                progress(explored.histories, explored.histories + len(waiting))
    explored.complete = not len(waiting) and not explored.violations
    explored.states, explored.seconds = len(states), time.process_time() - started
    return explored


def replay(scenario: Scenario, bound: Bound, choices: Choices) -> History:
    """The history with these choices, with its trace."""
    with _undisturbed():
        return _life(scenario, bound, _Path(choices, _States()), trace=[]).live()


def timeline(history: History) -> list[str]:
    """The steps of a history that was replayed, in order, without those that only look up brokers."""
    return [line for line in history.trace if not any(f" {api} v" in line for api in _LOOKUPS)]


def _run(explored: Explored, choices: Choices, states: _States, *, prune: bool) -> list[tuple[int, int]]:
    """Run the history with these choices; return its further ones, each with the number of its options."""
    path = _Path(choices, states)
    life = _life(explored.scenario, explored.bound, path, seen=path if prune else None)
    explored.histories += 1
    explored.departures[len(choices)] += 1
    try:
        history = life.live()
    except SeenBefore:
        return path.further
    explored.ended += 1
    explored.ends.add(digest(frozen(_shared(life))))
    explored.outcomes.update(history.outcomes)
    explored.faults.update(history.faults)
    if history.wrong:
        explored.violations.append(Violation(choices=choices, wrong=history.wrong, histories=explored.histories))
    return path.further


def _life(
    scenario: Scenario,
    bound: Bound,
    path: _Path,
    seen: Seen | None = None,
    trace: list[str] | None = None,
) -> Life:
    world = ChosenWorld(scenario, bound, choose=path.choose, seen=seen, trace=trace)
    life = Life(world, scenario.conditions, name=str(bound), topics=_TOPICS)
    world.files = lambda: life.checkpoint.files
    world.shared = lambda: _shared(life)
    return life


def _shared(life: Life) -> tuple[object, ...]:
    """What decides how a history goes on and how it is judged, besides what each process has seen."""
    kafka, owners = life.kafka, life.network.owners
    return (
        kafka.transactions,
        kafka.partitions,
        kafka.groups,
        kafka.coordinated_by,
        owners.order(),
        life.checkpoint.files,
        life.runs,
        life.current and life.current.process.name,
        sorted(driver.process.name for driver in life.rivalled),
        len(life.wrong),
        [
            (
                claim.who,
                claim.batch.batch_id,
                claim.batch.digest,
                claim.outcome,
                [(identity.producer_id, identity.epoch) for identity in claim.identities],
                (report := claim.report) and (report.outcome, report.records, report.producer_id, report.epoch),
            )
            for claim in life.claims
        ],
    )


class _Path:
    """The choices of one history: first those that are given, then the first option of each, with the `further` choices
    noted: their numbers, and how many options each has.

    The given ones must be all of the departures from the first option up to the last of them.
    """

    def __init__(self, choices: Choices, states: _States) -> None:
        self.further: list[tuple[int, int]] = []
        self._states = states
        self._departures = dict(choices)
        self._end = choices[-1][0] if choices else -1
        self._number = 0

    @property
    def asked(self) -> bool:
        return self._number > self._end  # before that, another history was here

    def before(self, state: bytes, remaining: Bound) -> bool:
        return self._states.before(state, remaining)

    def choose(self, _what: str, options: int) -> int:
        number = self._number
        self._number += 1
        if number <= self._end:
            option = self._departures.get(number, 0)
            if option >= options:
                raise ValueError(f"choice {number} has {options} options here: the choices are another history's")
            return option
        if options > 1:
            self.further.append((number, options))
        return 0


class _Waiting:
    """The histories to run, those with the fewest departures first, as each adds one to an earlier one."""

    def __init__(self) -> None:
        self._after: deque[tuple[Choices, list[tuple[int, int]]]] = (
            deque()
        )  # a history that was run, its further choices
        self._next: Iterator[Choices] = iter([()])
        self._number = 1

    def __len__(self) -> int:
        return self._number

    def add(self, choices: Choices, further: list[tuple[int, int]]) -> None:
        """Those that add to these choices an option of one of the further ones, but the first option."""
        self._number += sum(options - 1 for _, options in further)
        if further:
            self._after.append((choices, further))

    def next(self) -> Choices:
        self._number -= 1
        for choices in self._next:
            return choices
        choices, further = self._after.popleft()
        self._next = ((*choices, (number, option)) for number, options in further for option in range(1, options))
        return next(self._next)


class _States:
    """The states that were met, each with what was left of the bound."""

    def __init__(self) -> None:
        self._bounds: dict[bytes, tuple[Bound, ...]] = {}
        self._same: dict[tuple[Bound, ...], tuple[Bound, ...]] = {}  # there are few, for many states

    def __len__(self) -> int:
        return len(self._bounds)

    def before(self, state: bytes, remaining: Bound) -> bool:
        """Whether the state was met with as much left; note it if not."""
        bounds = self._bounds.get(state, ())
        if any(earlier.covers(remaining) for earlier in bounds):
            return True
        more = (*bounds, remaining)
        self._bounds[state] = self._same.setdefault(more, more)
        return False


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Stop the calendar, which entries of the ledger contain, and silence the product's log."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with mock.patch.object(time, "time", return_value=_CALENDAR_S):
            yield
    finally:
        logging.disable(disabled)
