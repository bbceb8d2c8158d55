"""Ends a query in order in the middle of a batch: when it is stopped, and when its driver gets SIGTERM.

`query.stop()` makes Spark's calls in foreachBatch fail. Spark decides by the error's text whether that was the stop: it
searches the text with a regular expression that recurses once per character after "py4j.protocol.Py4JJavaError: An
error occurred while calling" (StreamExecution.PROXY_ERROR). A Java stack trace there overflows the stack, and the
query's thread dies of a StackOverflowError. So the writer's error for a stop is short, and has the words that Spark
looks for.

Over Spark Connect, a stop kills the Python process of foreachBatch with SIGKILL, in the middle of whatever it does.
"""

from __future__ import annotations

import atexit
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_kafka_eos.errors import CommitOutcomeUnknown, Committed, KafkaEosError, TransactionAborted
from spark_kafka_eos.kafka.logs import logger
from spark_kafka_eos.spark.jvm import before_shutdown, comes_from_spark, is_classic, is_stopped

_log = logger(__name__)

_SAYS_STOPPED = "py4j.protocol.Py4JJavaError: An error occurred while calling the query: java.lang.InterruptedException"

_ANSWER_SECONDS = 0.2  # until py4j has sent an answer, to the JVM or from it
_LOOK_SECONDS = 0.05  # between two looks at a batch that runs
_PATIENCE = 0.8  # for a batch to end before its query is stopped, as a part of the seconds for both


@contextmanager
def stop_recognized(session: SparkSession, committed: Callable[[], Committed | None]) -> Iterator[None]:
    """Let Spark recognize an error of this context as the stop of its query, if that caused it.

    The context is a part of foreachBatch. The error stays an error, because Spark would take a normal return for a
    batch that is done. `committed` says what is when a call of Spark has failed, whose error does not know; None if
    nobody does.
    """
    try:
        yield
    except Exception as error:
        if comes_from_spark(error) and is_stopped(session):
            raise _of_stop(error, committed) from None
        raise


def _of_stop(error: Exception, committed: Callable[[], Committed | None]) -> KafkaEosError:
    """`error`, or what a stop means for the batch, in a text that Spark can search."""
    if not isinstance(error, KafkaEosError):
        known = committed()
        kind = CommitOutcomeUnknown if known == "unknown" else TransactionAborted
        error = kind("the query was stopped in the middle of a batch", action="Its next start goes on with it.")
        error.committed = known
    return error.replaced(action=f"{error.action} ({_SAYS_STOPPED})")


def stop_on_sigterm(spark: SparkSession, *, seconds: float = 20.0) -> None:
    """When this driver gets SIGTERM, stop the session's queries before it ends: their batches are committed or aborted.

    The signal reaches the JVM (`spark-submit`), Python (`python job.py`) or both. They wait for the queries for at most
    `seconds`, and then end as the signal would have ended them: exit code 143, without the code that follows. Let
    whoever sends SIGKILL later wait for longer (Kubernetes: `terminationGracePeriodSeconds`, 30). Call it once, in the
    main thread; raises ValueError in another one.

    Over Spark Connect, a query is stopped after the batch that runs, or after most of the `seconds`.
    """
    before = signal.getsignal(signal.SIGTERM)
    done = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of a handler
        _stop(spark, seconds)
        done.set()
        time.sleep(_ANSWER_SECONDS)
        _thread(forget).join(_ANSWER_SECONDS)
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)
        os.kill(os.getpid(), signal.SIGTERM)

    def at_shutdown() -> None:
        # The handler keeps the main thread from ending first: `awaitTermination` returns as soon as a stop begins.
        os.kill(os.getpid(), signal.SIGTERM)
        done.wait(seconds)

    forget = before_shutdown(spark, at_shutdown, seconds) if is_classic(spark) else _nothing
    atexit.register(forget)
    signal.signal(signal.SIGTERM, end)


def _nothing() -> None:
    """There is no JVM that would have to forget this process."""


def _stop(spark: SparkSession, seconds: float) -> None:
    """Stop all queries, in another thread: this one may be waiting for an answer of the JVM."""
    _log.warning("the driver received SIGTERM; its queries have %g s to commit or abort their batches", seconds)
    stopping = _thread(_stop_queries, spark, seconds)
    stopping.join(seconds)
    if stopping.is_alive():
        _log.warning("a query needs longer than %g s; its next start aborts its batch, or finds it committed", seconds)


def _stop_queries(spark: SparkSession, seconds: float) -> None:
    patience = 0 if is_classic(spark) else seconds * _PATIENCE
    for stopping in [_thread(_stop_query, query, patience) for query in spark.streams.active]:  # all at once
        stopping.join()


def _stop_query(query: StreamingQuery, patience: float) -> None:
    try:
        if patience:
            _await_batch(query, time.monotonic() + patience)
        query.stop()
    except Exception as error:  # noqa: BLE001 - the driver ends, whatever it is
        _log.warning("cannot stop a query: %s", error)


def _await_batch(query: StreamingQuery, deadline: float) -> None:
    """Return when the batch that runs has ended, at the latest at the `deadline`."""
    last = _last_batch(query)
    while time.monotonic() < deadline and query.status["isTriggerActive"] and _last_batch(query) == last:
        time.sleep(_LOOK_SECONDS)


def _last_batch(query: StreamingQuery) -> object:
    progress = query.lastProgress
    return None if progress is None else progress["batchId"]


def _thread(run: Callable[..., None], *arguments: object) -> threading.Thread:
    thread = threading.Thread(target=run, args=arguments, daemon=True)
    thread.start()
    return thread
