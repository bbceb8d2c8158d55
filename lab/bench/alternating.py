"""Runs sides in turn, so that other load on the machine affects all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from lab.bench.figures import Series

Show = Callable[[str, int, int], None]  # the current step, the amount done, the total amount


def silent(what: str, done: int, total: int) -> None:
    """Show nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One way to do the work.

    `run` does it. It returns None, or its own measurement in seconds if the elapsed time would include something else
    (the start of a JVM). `before` and `after` prepare and check, and are not measured. `batches` is from Spark's
    progress of the last run: the milliseconds of each micro-batch, by phase (`durationMs`).
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
    """Run `warm_up` unmeasured rounds, then `runs` measured ones. Each round runs each side once, every second one in
    reverse order, so that no side always follows the same other one.
    """
    seconds: dict[str, list[float]] = {side.name: [] for side in sides}
    total, done = len(sides) * (warm_up + runs), 0
    for number in range(-warm_up, runs):
        for side in sides if (number + warm_up) % 2 == 0 else reversed(sides):
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
