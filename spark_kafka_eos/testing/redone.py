"""Finds, in a writer's log, the micro-batches that it had to write again."""

from __future__ import annotations

import re
from collections.abc import Iterable

# As `transaction.commit` logs an aborted attempt.
_ABORTED_ATTEMPT = re.compile(r"batch (\d+) of query \S+, attempt \d+: (.+)")


def redone(log: Iterable[str]) -> dict[int, list[str]]:
    """For each micro-batch, why its failed attempts were aborted, in the log's order."""
    reasons: dict[int, list[str]] = {}
    for line in log:
        if match := _ABORTED_ATTEMPT.search(line):
            reasons.setdefault(int(match[1]), []).append(match[2].strip())
    return reasons
