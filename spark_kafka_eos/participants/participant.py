"""The protocol of a table that takes part: one compare-and-set of rows and token.

The table is the decision point of a two-phase commit (Gray, 1978): Kafka's transaction is prepared first, then the
table commits rows and token in one commit of its own, and from then on Kafka's transaction is only committed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What the table holds for one query: the number of commits there, and the token of the last one with rows. Before
    the first commit: 0 and None.
    """

    version: int = 0
    token: str | None = None


class Conflict(Exception):
    """The table is no longer at the version after which this commit was planned; nothing of it is in the table."""


class Participant(Protocol):
    """A table, as one query sees it: its version and token are that query's own. Both methods may raise anything.

    An exception other than Conflict leaves open whether a commit will be applied: the caller finds out.
    """

    def held(self) -> Held:
        """What the table holds now. It must include every commit that has returned."""
        ...

    def commit(self, rows: Any, token: str | None, *, after: int) -> None:
        """Commit `rows` and `token` atomically as version `after + 1`, if the version is still `after`; else raise
        Conflict, and change nothing.

        `rows` is what was passed to `write_table`, None if there are none. A commit without rows and with the token
        that is there is a fence: each commit that was planned after the same version fails from then on, even if it was
        sent before.
        """
        ...
