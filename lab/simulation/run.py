"""Runs many seeds in several processes, and sums up their results."""

from __future__ import annotations

import logging
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

from lab.simulation import history, real_time_history
from lab.simulation.conditions import USUAL, Conditions
from lab.simulation.history import History, record
from lab.simulation.record import Recording

_CHUNK = 500  # seeds at a time


@dataclass(slots=True, kw_only=True)
class Summary:
    """The sum of many seeds: faults and ends of drivers by kind, and the seeds with wrong histories."""

    seeds: int = 0
    seconds: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    met: Counter[tuple[str, str]] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    wrong: dict[int, list[str]] = field(default_factory=dict)

    def add(self, seed: int, history: History) -> None:
        self.seeds += 1
        self.faults.update(history.faults)
        self.met.update(history.met)
        self.outcomes.update(history.outcomes)
        if history.wrong:
            self.wrong[seed] = history.wrong

    def merge(self, other: Summary) -> None:
        self.seeds += other.seeds
        self.faults.update(other.faults)
        self.met.update(other.met)
        self.outcomes.update(other.outcomes)
        self.wrong.update(other.wrong)


def replay(seed: int, *, conditions: Conditions = USUAL) -> History:
    """One seed's history, with its trace."""
    with _quiet():
        return _live(seed, conditions, traced=True)


def recorded(seed: int, *, conditions: Conditions = USUAL) -> Recording:
    """One seed's history, with its steps for the specification."""
    with _quiet():
        return record(seed, conditions=conditions)


def run(
    seeds: range,
    *,
    jobs: int = 1,
    conditions: Conditions = USUAL,
    most_wrong: int = 10,
    progress: Callable[[int], None] = lambda _done: None,
) -> Summary:
    """Run the seeds in `jobs` processes; stop when `most_wrong` histories are wrong. `progress` gets the number of
    seeds done.
    """
    total, started = Summary(), time.monotonic()
    part_of = partial(_run, conditions=conditions, most_wrong=most_wrong)
    for part in _in_processes(seeds, jobs, part_of) if jobs > 1 else map(part_of, _chunks(seeds)):
        total.merge(part)
        progress(total.seeds)
        if len(total.wrong) >= most_wrong:
            break
    total.wrong = dict(sorted(total.wrong.items()))
    total.seconds = time.monotonic() - started
    return total


def _in_processes(seeds: range, jobs: int, part_of: Callable[[range], Summary]) -> Iterator[Summary]:
    chunks = _chunks(seeds)
    # Not forked: a fork would copy locks that the parent's threads hold.
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        waiting: set[Future[Summary]] = {pool.submit(part_of, chunk) for chunk in islice(chunks, 2 * jobs)}
        try:
            while waiting:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                waiting |= {pool.submit(part_of, chunk) for chunk in islice(chunks, len(done))}
                yield from (future.result() for future in done)
        finally:
            pool.shutdown(cancel_futures=True)


def _chunks(seeds: range) -> Iterator[range]:
    return (seeds[at : at + _CHUNK] for at in range(0, len(seeds), _CHUNK))


def _live(seed: int, conditions: Conditions, *, traced: bool = False) -> History:
    live = real_time_history.live if conditions.real_time else history.live
    return live(seed, traced=traced, conditions=conditions)


def _run(seeds: range, *, conditions: Conditions, most_wrong: int) -> Summary:
    summary = Summary()
    with _quiet():
        for seed in seeds:
            summary.add(seed, _live(seed, conditions))
            if len(summary.wrong) >= most_wrong:
                break
    return summary


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the product's log, which reports every fault."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
