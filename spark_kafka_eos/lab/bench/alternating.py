"""Sides in turn, round after round, so that whatever else the machine does meets all alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from spark_kafka_eos.lab.bench.figures import Series

Show = Callable[[str, int, int], None]  # what is going on, how much of it is done, of how much


def silent(what: str, done: int, total: int) -> None:
    """Show nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One way to do the work.

    `run` does it, and returns None, or the seconds it took by its own measure where the time around it would count
    something else (a JVM's start). `before` and `after` prepare and check, outside of the measured time. `batches` is
    what Spark told of the last run: the milliseconds of each micro-batch, by phase (`durationMs`).
    """

    name: str
    run: Callable[[], float | None]
    before: Callable[[], None] = lambda: None
    after: Callable[[], None] = lambda: None
    batches: list[Mapping[str, int]] = field(default_factory=list)


def alternate(
    sides: Sequence[Side],
    *,
    records: int,
    runs: int,
    warm_up: int = 1,
    show: Show = silent,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[Series, ...]:
    """`warm_up` rounds that are not measured, then `runs` that are; each side once a round."""
    seconds: dict[str, list[float]] = {side.name: [] for side in sides}
    total, done = len(sides) * (warm_up + runs), 0
    for number in range(-warm_up, runs):
        for side in sides:
            show(f"{side.name} (warm-up)" if number < 0 else side.name, done, total)
            side.before()
            started = clock()
            own = side.run()
            took = clock() - started if own is None else own
            side.after()
            if number >= 0:
                seconds[side.name].append(took)
            done += 1
    show("done", total, total)
    return tuple(Series(name=name, records=records, seconds=tuple(took)) for name, took in seconds.items())
