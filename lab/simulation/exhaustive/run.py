"""Explores several scenarios, in one process or in several."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from functools import partial
from multiprocessing.queues import SimpleQueue

from lab.simulation.conditions import Conditions
from lab.simulation.exhaustive.explore import Explored, explore
from lab.simulation.exhaustive.scenario import Bound, Scenario
from lab.simulation.query import WritePath

WAYS: Sequence[WritePath] = ("driver", "executors", "sink")
_CLUSTERS = ((1, Conditions()), (1, Conditions(verification=False)), (2, Conditions()))
_POLL_S = 0.2

_Progress = tuple[Scenario, int, int]
_reports: SimpleQueue[_Progress] | None = None  # of a process of the pool


def scenarios(ways: Sequence[WritePath], batches: int) -> list[Scenario]:
    """Each of these ways on each kind of cluster."""
    return [
        Scenario(way=way, transaction_version=version, verification=conditions.verification, batches=batches)
        for way in ways
        for version, conditions in _CLUSTERS
    ]


def run(
    asked: Sequence[Scenario],
    bound: Bound,
    *,
    jobs: int = 1,
    most: int | None = None,
    progress: Callable[[Scenario, int, int], None] = lambda _scenario, _done, _discovered: None,
) -> Iterator[Explored]:
    """Explore the scenarios, each up to the bound or to its `most`th history, and return each when it is done.

    `progress` gets the number of a scenario's histories that were run, and of those that are known so far.
    """
    if jobs == 1:
        for scenario in asked:
            yield explore(scenario, bound, most=most, progress=partial(progress, scenario))
        return
    context = multiprocessing.get_context("spawn")  # not forked: a fork would copy locks that the parent's threads hold
    reports: SimpleQueue[_Progress] = context.SimpleQueue()
    with ProcessPoolExecutor(jobs, context, initializer=_report_to, initargs=(reports,)) as pool:
        waiting = {pool.submit(_explore, scenario, bound, most) for scenario in asked}
        try:
            while waiting:
                done, waiting = wait(waiting, timeout=_POLL_S, return_when=FIRST_COMPLETED)
                while not reports.empty():
                    progress(*reports.get())
                yield from (future.result() for future in done)
        finally:
            pool.shutdown(cancel_futures=True)


def _report_to(reports: SimpleQueue[_Progress]) -> None:
    global _reports  # noqa: PLW0603 - the only way from a pool's initializer to its tasks
    _reports = reports


def _explore(scenario: Scenario, bound: Bound, most: int | None) -> Explored:
    reports = _reports
    assert reports is not None
    return explore(
        scenario, bound, most=most, progress=lambda done, discovered: reports.put((scenario, done, discovered))
    )
