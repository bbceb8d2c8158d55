"""Sides in turn, round after round, so that whatever else the machine does meets all alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from spark_kafka_eos.tools.bench.figures import Series

Show = Callable[[str, int, int], None]  # what is going on, how much of it is done, of how much


def silent(what: str, done: int, total: int) -> None:
    """Show nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One way to do the work.

    `run` does it, and returns None, or the seconds it took by its own measure where the time around it would count
    something else (a JVM's start). `before` and `after` prepare and check, outside of the measured time.
    """

    name: str
    run: Callable[[], float | None]
    before: Callable[[], None] = lambda: None
    after: Callable[[], None] = lambda: None


def alternate(
    sides: Sequence[Side],
    *,
    records: int,
    runs: int,
    show: Show = silent,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[Series, ...]:
    """One round that is not measured, then `runs` of them; each side once a round."""
    seconds: dict[str, list[float]] = {side.name: [] for side in sides}
    total, done = len(sides) * (runs + 1), 0
    for number in range(runs + 1):
        for side in sides:
            show(side.name if number else f"{side.name} (warm-up)", done, total)
            side.before()
            started = clock()
            own = side.run()
            took = clock() - started if own is None else own
            side.after()
            if number:
                seconds[side.name].append(took)
            done += 1
    show("done", total, total)
    return tuple(Series(name=name, records=records, seconds=tuple(took)) for name, took in seconds.items())
