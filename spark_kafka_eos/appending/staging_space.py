"""How much may be staged on a file system, so that it never becomes full: other programs, such as Spark with its
checkpoint and its shuffle, need it, too. Pure.

A part always stays free. A task asks for the free space before it writes, and again after some megabytes: so few that
all tasks together cannot use up that part in between. That costs nothing, and what other programs write meanwhile
counts.

Source: statvfs(3). File systems that are not mounted (object stores) do not report their size, and some mounted ones
say 0; there is no limit then.
"""

from __future__ import annotations

from dataclasses import dataclass

_LEAST_SHARE, _MOST_BYTES = 20, 1 << 30  # of the file system, a 20th stays free, but not more than this
_TASKS = 64  # that may stage on one file system at once and not exceed the part that stays free


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """The bytes of a file system: those that this user may still write, and all."""

    free: int
    total: int

    @property
    def reserve(self) -> int:
        """The bytes that stay free."""
        return min(self.total // _LEAST_SHARE, _MOST_BYTES)


def allowance(space: Space | None, needed: int) -> int | None:
    """The bytes that may be written before the next look at the space, at least `needed`; None if these are too many.

    `space` is None if it is unknown.
    """
    if space is None:
        return max(needed, _MOST_BYTES)
    if needed > space.free - space.reserve:
        return None
    return max(needed, min(space.free - space.reserve, space.reserve // _TASKS))
