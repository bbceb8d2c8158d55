"""Where a session's tasks run. Separate from start.py, so that the command line's help does not need Spark."""

from __future__ import annotations

from enum import StrEnum


class Where(StrEnum):
    """Where the tasks of a session run."""

    LOCAL = "local"
    EXECUTORS = "executors"
    STANDALONE = "standalone"

    @property
    def words(self) -> str:
        return {
            Where.LOCAL: "local[2]",
            Where.EXECUTORS: "two executors of their own",
            Where.STANDALONE: "standalone cluster, two workers",
        }[self]
