"""Spark's Python workers, which run one task after another: what the driver passes to them, and their end."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from spark_kafka_eos.kafka.logs import logger

_log = logger(__name__)

# Address and key for statistics of tasks and commits (`observe.datagrams`), or empty. Spark passes the session's
# settings to its tasks, and redacts this one in the UI and the event log because of its name (spark.redaction.regex)
# and of `jvm.redact_in_event_log`.
STATS_ENDPOINT = "spark.kafka-eos.progress.token"


@contextmanager
def raising_when_ended() -> Iterator[None]:
    """In this context, SIGHUP and SIGTERM raise SystemExit, once, so that what was begun can be undone. For the main
    thread.

    They would end the process at once. Spark's daemon sends SIGHUP to its workers when the SparkContext stops, also at
    the driver's SIGTERM; a service manager may send SIGTERM to all processes. Source: PySpark's `daemon.manager`.
    """

    def end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of a handler
        for signal_number in before:
            signal.signal(signal_number, signal.SIG_IGN)
        _log.warning("this process is ended; its batch is aborted, unless the commit was already sent")
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGHUP, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
