"""Spark's Python workers, which run one task after another: their setup, and what the driver passes to them."""

from __future__ import annotations

import functools
import gc
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from spark_kafka_eos.logs import logger

_log = logger(__name__)

# Address and key for statistics of tasks and commits (`observe.datagrams`), or empty. Spark passes the session's
# settings to its tasks, and redacts this one in the UI and the event log because of its name (spark.redaction.regex)
# and of `jvm.redact_in_event_log`.
COLLECTOR = "spark.kafka-eos.progress.token"


def spare_the_collector() -> None:
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


@contextmanager
def raising_when_ended() -> Iterator[None]:
    """In this context, SIGHUP and SIGTERM raise SystemExit, once, so that what was begun can be undone. For the main
    thread.

    They would end the process at once. Spark's daemon sends SIGHUP to its workers when the SparkContext stops, also at
    the driver's SIGTERM; a service manager may send SIGTERM to all processes. Source: PySpark's `daemon.manager`.
    """

    def end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of a handler
        for each in before:
            signal.signal(each, signal.SIG_IGN)
        _log.warning("this process is ended; its batch is aborted, unless the commit was already sent")
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGHUP, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
