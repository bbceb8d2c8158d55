"""Finds in the log of a Spark driver what may be the cause of its end: it is far from the end of the log."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_ROUTINE = re.compile(r"^\d\S* \S+ (INFO|WARN) |^\s+at |^\s*\.\.\. \d+ more")
_CAUSE = re.compile(r"Error|Exception|errors\.")
_TRACEBACK = "Traceback (most recent call last):"
# Spark's daemon prints these when the JVM, or a worker's executor, is gone before it: an effect, whatever the cause.
_DAEMON = re.compile(r'^\s+File ".*[/\\]pyspark[^"]*[/\\]daemon\.py"')
_GONE = re.compile(r"^(BrokenPipeError|ConnectionResetError|EOFError|KeyboardInterrupt)\b")


def causes(log: Iterable[str], most: int = 10) -> list[str]:
    """The last lines that name an error; if there is none, the last that are not routine."""
    lines = [line for line in _without_noise(log) if not _ROUTINE.search(line)]
    return ([line for line in lines if _CAUSE.search(line)] or lines)[-most:]


def _without_noise(log: Iterable[str]) -> Iterator[str]:
    """The lines without the tracebacks of Spark's daemon that only say that its peer is gone."""
    traceback: list[str] = []
    for line in log:
        if line.startswith(_TRACEBACK):
            yield from traceback
            traceback = [line]
        elif not traceback:
            yield line
        elif line.startswith(" "):
            traceback.append(line)
        else:  # the error itself
            if not (_GONE.search(line) and any(_DAEMON.search(frame) for frame in traceback)):
                yield from (*traceback, line)
            traceback = []
    yield from traceback
