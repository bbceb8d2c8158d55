"""Prints one line per micro-batch, to follow a job that runs with spark-submit."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery


def line(progress: Mapping[str, Any]) -> str:
    """`batch 3: 20,000 rows in 0.61 s`, of a progress as JSON; the time is that of the whole trigger, including Spark's
    bookkeeping.
    """
    seconds = progress["batchDuration"] / 1000
    return f"batch {progress['batchId']}: {progress['numInputRows']:,} rows in {seconds:.2f} s"


def print_progress(query: StreamingQuery, show: Callable[[str], None] = print, *, interval: int = 1) -> None:
    """Show each micro-batch that had rows until `query` ends. Raises StreamingQueryException if the query failed.

    Polls Spark's recent progress (`spark.sql.streaming.numRecentProgressUpdates`, 100) every `interval` seconds.
    """
    seen = ""
    ended = False
    while not ended:
        ended = bool(query.awaitTermination(interval))
        for progress in _progress_since(query, seen):
            seen = progress["timestamp"]
            if progress["numInputRows"] > 0:
                show(line(progress))


def _progress_since(query: StreamingQuery, timestamp: str) -> list[dict[str, Any]]:
    """The query's recent progress that is later than `timestamp`, oldest first, in the form of Spark's JSON.

    Two calls of py4j if there is none. `query.recentProgress` makes about a hundred for each of a hundred triggers: 9 %
    of a core for a query that is followed every second.
    """
    jquery = getattr(query, "_jsq", None)
    if jquery is None:  # Spark Connect: one request
        return [
            content
            for progress in query.recentProgress
            if (content := json.loads(progress.json))["timestamp"] > timestamp
        ]
    last = jquery.lastProgress()
    if last is None or last.timestamp() <= timestamp:
        return []
    recent = jquery.recentProgress()
    newer: list[dict[str, Any]] = []
    for number in reversed(range(len(recent))):
        if recent[number].timestamp() <= timestamp:
            break
        newer.insert(0, json.loads(recent[number].json()))
    return newer


follow = print_progress  # the earlier name
