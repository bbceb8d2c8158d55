"""How loudly to log a failure that repeats: an outage of an hour must be seen, and must not fill the disk. Pure.

In the first seconds, each one is logged. From then on there is one warning per minute, which counts what it stands for.

An outage is what lasts. A request that fails once in a while and then gets through ends it, so that such hiccups do not
add up to hours. Others that have failed since before are still in it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from spark_kafka_eos.kafka.protocol.backoff import Clock

_EACH_SECONDS = 5.0  # usual hiccups, such as the election of a leader, are shorter
_MINUTE = 60.0
_LINES_PER_MINUTE = 10  # of hiccups
_OVER_AFTER_SECONDS = 60.0  # longer than any pause between two failures of one outage (request.timeout.ms, the backoff)
_NEVER = float("-inf")


class LogPace:
    """The failures of one kind, in one process. `clock` returns seconds (monotonic)."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since = self._last = self._warned = self._got_through = self._minute = _NEVER
        self._unlogged = self._lines = 0

    def next(self, failing_since: float | None = None) -> tuple[int, str, float]:
        """The log level of a failure that happens now, what to add to its line, and since when its request fails: to be
        given with the next failure of the same request, None with its first one.
        """
        now = self._clock()
        quiet = now - self._last > _OVER_AFTER_SECONDS
        since = now if quiet or failing_since is None else failing_since
        if quiet or self._since < self._got_through < since:
            self._since = now
        self._last = now
        return *self._level(now, now - min(self._since, since)), since

    def got_through(self) -> None:
        """A request that had failed so is answered."""
        self._got_through = self._clock()

    def _level(self, now: float, seconds: float) -> tuple[int, str]:
        if now - self._minute >= _MINUTE:
            self._minute, self._lines = now, 0
        if seconds < _EACH_SECONDS and self._lines < _LINES_PER_MINUTE:
            self._lines += 1
            return logging.INFO, ""
        if seconds < _EACH_SECONDS or now - self._warned < _MINUTE:
            self._unlogged += 1
            return logging.DEBUG, ""
        self._warned, unlogged, self._unlogged = now, self._unlogged, 0
        lasted = f" (for {seconds:.0f} s"
        return logging.WARNING, lasted + (f"; {unlogged} more since the last line)" if unlogged else ")")


class Failing:
    """One request that fails again and again, until it gets through. `paces` has each kind's."""

    def __init__(self, paces: Mapping[type[Exception], LogPace]) -> None:
        self._paces = paces
        self._since: dict[type[Exception], float] = {}

    def next(self, error: Exception) -> tuple[int, str]:
        """The log level of `error`, and what to add to its line."""
        kind = type(error)
        level, added, self._since[kind] = self._paces[kind].next(self._since.get(kind))
        return level, added

    def got_through(self) -> None:
        """The request is answered; what fails from now on is another one."""
        for kind in self._since:
            self._paces[kind].got_through()
        self._since.clear()
