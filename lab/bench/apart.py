"""Spark sessions in processes of their own, to have several with different settings at the same time.

Some settings are read when the JVM starts, and a Python process has one JVM. A child process also makes it clear whose
CPU time it is: the session's processes are that one and its descendants.
"""

from __future__ import annotations

import logging
import multiprocessing
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Self, TypeVar, cast

from pyspark.sql import SparkSession

from lab.bench.lab import Settings, session
from spark_kafka_eos.errors import ToolFailed

T = TypeVar("T")

_STOP_SECONDS = 60.0


class SparkApart:
    """A session with these settings, as a context manager. Not thread-safe."""

    def __init__(self, settings: Settings) -> None:
        context = multiprocessing.get_context("spawn")  # a fork would share this process's JVM
        self._jobs, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(settings, theirs), daemon=True)
        self._process.start()
        theirs.close()

    def __enter__(self) -> Self:
        """Wait until the session is there: several at once would only start more slowly. Raises ToolFailed."""
        self._answer()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):
            self._jobs.send(None)
        self._process.join(_STOP_SECONDS)
        self._process.kill()
        self._jobs.close()

    @property
    def pid(self) -> int:
        """Of the driver's process."""
        assert self._process.pid is not None
        return self._process.pid

    def run(self, job: Callable[[SparkSession], T]) -> T:
        """What `job` returns in the other process. It and its result must be picklable. Raises ToolFailed."""
        with suppress(OSError):
            self._jobs.send(job)
        return cast(T, self._answer())

    def _answer(self) -> object:
        try:
            failure, answer = self._jobs.recv()
        except (EOFError, OSError):
            raise ToolFailed("the process of a Spark session has ended", action="See its output above.") from None
        if failure:
            raise ToolFailed(failure)
        return answer


def _serve(settings: Settings, jobs: Connection) -> None:
    # For every query, the preflight would warn about a single broker.
    logging.getLogger("spark_kafka_eos").setLevel(logging.ERROR)
    with session(settings) as spark:
        jobs.send(("", None))
        while (job := jobs.recv()) is not None:
            try:
                jobs.send(("", job(spark)))
            except Exception as error:  # noqa: BLE001 - raised in the other process
                jobs.send(("".join(traceback.format_exception_only(error)).strip(), None))
