"""Keeps what a Python worker has imported out of its garbage collections."""

from __future__ import annotations

import functools
import gc
import sys


def freeze_gc() -> None:
    """Exclude everything imported so far from garbage collection. Call it at the start of a task.

    Spark's daemon collects garbage after each task. Scanning numpy, pyarrow and Kafka's protocol classes took about
    50 ms of CPU time each, more than a small task. A worker's first task imports more modules, so the second task
    freezes again. Garbage of later tasks is still collected.
    Source: PySpark's `daemon.manager`; Python's `gc.freeze`, which is meant for forked processes.
    """
    _freeze(len(sys.modules))


@functools.cache
def _freeze(_modules: int) -> None:
    """Runs once per number of modules and not in each task, because frozen reference cycles are never freed."""
    gc.freeze()
