"""Runs the tasks of a long batch: starts the buckets of one that failed again, while the others run on.

It knows neither Spark nor Kafka: `start` gives buckets new epochs, `run` is a task that lasts until it ends or fails.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from contextlib import AbstractContextManager

from spark_kafka_eos.errors import (
    BrokerUnreachable,
    CommitOutcomeUnknown,
    DataLoss,
    ProducerFenced,
    TransactionAborted,
)
from spark_kafka_eos.kafka.logs import logger
from spark_kafka_eos.real_time.buckets import Bucket, by_task
from spark_kafka_eos.real_time.intervals import TaskReport

_log = logger(__name__)

# After these, a bucket is started again: what was committed, the ledger says.
_PASSING = (ProducerFenced, TransactionAborted, CommitOutcomeUnknown, BrokerUnreachable)

_CANCELLED_EVERY = 1.0  # seconds

StartBuckets = Callable[[Collection[int] | None], Sequence[Bucket]]  # None: all buckets
RunTask = Callable[[Sequence[Bucket], float], TaskReport]  # for so many seconds


def in_thread(run: Callable[[], None], name: str) -> Future[None]:
    """Run it in a thread of its own, which does not keep alive a process whose main thread has ended."""
    future: Future[None] = Future()

    def settle() -> None:
        try:
            run()
        except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
            future.set_exception(error)
        else:
            future.set_result(None)

    threading.Thread(target=settle, name=name, daemon=True).start()
    return future


class Threads:
    """How work runs side by side. `wrap` is applied to what runs in a thread of its own."""

    def __init__(self, wrap: Callable[[Callable[..., None]], Callable[..., None]] = lambda function: function) -> None:
        self._wrap = wrap

    def lock(self) -> AbstractContextManager[object]:
        """What at most one of the threads has at a time."""
        return threading.Lock()

    def run(self, work: Sequence[Callable[[], None]], failed: Callable[[], None]) -> None:
        """Run all of it until the last one ends. If one raises an error before that, calls `failed` once a second until
        the others have ended, too, of which some may only begin, and raises it.
        """
        futures = [in_thread(self._wrap(function), "kafka-eos-task") for function in work]
        done, running = wait(futures, return_when=FIRST_EXCEPTION)
        left = running
        while left:
            failed()
            _, left = wait(left, _CANCELLED_EVERY)
        for future in (*done, *running):
            future.result()


class Supervisor:
    """One long batch of `seconds` in at most so many `tasks`. `most_failures` of a task in a row that commit nothing
    end it. `skips_lost`: after DataLoss, a bucket is started again, too, which leaves out what is lost. `cancel` ends
    the tasks that run.
    """

    def __init__(
        self,
        start: StartBuckets,
        run: RunTask,
        cancel: Callable[[], None],
        *,
        tasks: int,
        seconds: float,
        most_failures: int,
        skips_lost: bool = False,
        threads: Threads | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._start, self._run, self._cancel, self._clock = start, run, cancel, clock
        self._threads = threads or Threads()
        self._tasks, self._most_failures = tasks, most_failures
        self._passing = (*_PASSING, DataLoss) if skips_lost else _PASSING
        self._deadline = clock() + seconds
        self._lock = self._threads.lock()  # the driver's, and that of the reports
        self._reports: list[TaskReport] = []
        self._over = False

    def run(self) -> list[TaskReport]:
        """The reports of all tasks, those that failed included. Raises the first error that ends the batch."""
        buckets = {bucket.number: bucket for bucket in self._start(None)}
        groups = by_task(sorted(buckets), self._tasks)
        if groups:
            work = [functools.partial(self._keep_running, [buckets[number] for number in group]) for group in groups]
            self._threads.run(work, self._end)
        return self._reports

    def _end(self) -> None:
        self._over = True
        self._cancel()

    def _keep_running(self, buckets: Sequence[Bucket]) -> None:
        failures = 0
        while True:
            report = self._run(buckets, max(0.0, self._deadline - self._clock()))
            with self._lock:
                self._reports.append(report)
                if report.error is None or self._over:
                    return
                failures = 1 if report.transactions else failures + 1
                if not isinstance(report.error, self._passing) or failures >= self._most_failures:
                    raise report.error
                numbers = [bucket.number for bucket in buckets]
                _log.warning("buckets %s are started again: %s", ", ".join(map(str, numbers)), report.error.what)
                buckets = self._start(numbers)


def failure_of_attempt(why: str) -> TaskReport:
    """The report of a task whose attempt was lost. A second one does nothing: it would have the epochs of the first."""
    action = "Fix that, and start the query again: what was not committed is read again."
    return TaskReport(error=TransactionAborted(f"a task was lost: {why}", action=action))
