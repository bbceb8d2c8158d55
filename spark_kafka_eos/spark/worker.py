"""What is done in each of Spark's Python workers, which run one task after another."""

from __future__ import annotations

import functools
import gc
import sys


def spare_the_collector() -> None:
    """Take what was imported by now out of the garbage collector's sight. For the start of a task.

    Spark's daemon collects garbage after each task, and to look through numpy, pyarrow and Kafka's protocol classes
    took some 50 ms of a core each time: more than a small task itself. A worker's first task imports more than it
    starts with, so the second one does this again. What later tasks leave behind is collected as ever.
    Source: PySpark's `daemon.manager`; Python's `gc.freeze`, which is meant for processes that were forked.
    """
    _freeze(len(sys.modules))


@functools.cache
def _freeze(_modules: int) -> None:
    """Once for each number of modules: what is frozen and refers to itself is never freed, so not at each task."""
    gc.freeze()
