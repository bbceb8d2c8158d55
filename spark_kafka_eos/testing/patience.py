"""Decides when a wait has no use any more: not after a time, which a slow machine needs, but when nothing goes on."""

from __future__ import annotations

from collections.abc import Hashable

WORK_SECONDS = 10.0
"""CPU time that counts as progress. A driver that waits for something takes less than this in minutes."""


class Patience:
    """Lasts as long as there is progress at least every `seconds`: another state, or `WORK_SECONDS` of CPU time."""

    def __init__(self, seconds: float, *, now: float) -> None:
        self._seconds, self._since = seconds, now
        self._state: Hashable = None
        self._worked = 0.0

    def ends(self, state: Hashable, cpu_seconds: float, *, now: float) -> bool:
        """Whether there was no progress for so long, as of `now` (seconds of any clock).

        The CPU time of processes that have ended is lost, so it may also get less.
        """
        self._worked = min(self._worked, cpu_seconds)
        if state != self._state or cpu_seconds - self._worked >= WORK_SECONDS:
            self._state, self._worked, self._since = state, cpu_seconds, now
        return now - self._since >= self._seconds
