"""Finds, in a writer's log, the micro-batches that it had to write again."""

from __future__ import annotations

import re
from collections.abc import Iterable

# As `writing.commit` logs a try that was aborted.
_ABORTED_TRY = re.compile(r"batch (\d+) of query \S+, try \d+: (.+)")


def redone(log: Iterable[str]) -> dict[int, list[str]]:
    """Micro-batch -> why each of its tries that failed was aborted, in the log's order."""
    found: dict[int, list[str]] = {}
    for line in log:
        if match := _ABORTED_TRY.search(line):
            found.setdefault(int(match[1]), []).append(match[2].strip())
    return found
