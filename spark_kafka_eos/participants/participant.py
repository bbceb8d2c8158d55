"""The protocol of a table that takes part: one compare-and-set of rows and token. Pure.

The table is the decision point of a two-phase commit (Gray, 1978): Kafka's transaction is prepared first, then the
table commits rows and token in one commit of its own, and from then on Kafka's transaction is only committed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from spark_kafka_eos.errors import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True)
class TableVersion:
    """What the table holds for one query: the number of commits there, and the token of the last one with rows. Before
    the first commit: 0 and None.
    """

    version: int = 0
    token: str | None = None


Held = TableVersion  # the earlier name


class Conflict(Exception):
    """The table is no longer at the version after which this commit was planned; nothing of it is in the table."""


class Participant(Protocol):
    """A table, as one query sees it: its version and token are that query's own. Both methods may raise anything.

    An exception other than Conflict leaves open whether a commit will be applied: the caller finds out. A TableFailed
    whose `committed` is "nothing", of `commit` and then of `held`, says that nothing was sent: others have changed the
    table.
    """

    def held(self) -> TableVersion:
        """What the table holds now. It must include every commit that has returned."""
        ...

    def commit(self, rows: Any, token: str | None, *, after: int) -> None:
        """Commit `rows` and `token` atomically as version `after + 1`, if the version is still `after`; else raise
        Conflict, and change nothing.

        `rows` is what was passed to `write_table`, None if there are none: the same object in each attempt at a batch,
        so leave it as it is. What can be read only once, such as a generator, is a list of what it gave.

        A commit without rows and with the token that is there is a fence: each commit that was planned after the same
        version fails from then on, even if it was sent before.
        """
        ...


def require_one(participant: object) -> None:
    """Raise ConfigurationError for what is not one participant.

    Why not several: the commit of one table decides, and after it the others may no longer fail. Kafka's transaction
    can be prepared, and anybody can commit it later. A table that only offers a compare-and-set cannot: the second one
    may still conflict, or be gone, when the first one has its rows, and nobody but the query can compute them again.
    """
    if isinstance(participant, type):
        raise ConfigurationError("participant", f"is the class {participant.__name__}, not an object of it")
    if is_participant(participant):
        return
    if isinstance(participant, Iterable):
        raise ConfigurationError(
            "participant",
            "is several objects, but one table takes part in a batch: its commit decides, and no other could follow it "
            "for certain",
            action="Let tables of one database be one participant, in one transaction of the database. Fill another "
            "database from the topic, with a query of its own.",
        )
    name = type(participant).__name__
    raise ConfigurationError("participant", f"is a {name}, which has not the methods held and commit")


def is_participant(candidate: object) -> bool:
    """Whether it has the methods of the protocol."""
    return callable(getattr(candidate, "held", None)) and callable(getattr(candidate, "commit", None))
