"""Runs what needs much memory in threads that all queries of the driver share.

Spark starts a Python thread in the driver for each `foreachBatch` query, and keeps it after the query has ended (py4j's
pinned threads). glibc gives each thread a heap of its own, which keeps most of what was ever needed at once: 15 MB and
more for the record batches on their way. So a driver that runs one query after the other would grow with each.
"""

from __future__ import annotations

import contextvars
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

# An idle thread is used before another one is started, so there are as many as ever appended at the same time.
_threads = ThreadPoolExecutor(max_workers=10_000, thread_name_prefix="kafka-eos-append")


def in_shared_thread(function: Callable[P, R]) -> Callable[P, R]:
    """`function` in a shared thread, with the caller's context; the caller waits for its result or error."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        call = functools.partial(function, *args, **kwargs)
        return _threads.submit(contextvars.copy_context().run, call).result()

    return run
