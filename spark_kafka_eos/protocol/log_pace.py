"""How loudly to log a failure that repeats: an outage of an hour must be seen, and must not fill the disk.

In the first seconds, each one is logged. From then on there is one warning per minute, which counts what it stands for.
"""

from __future__ import annotations

import logging

from spark_kafka_eos.protocol.backoff import Clock

_EACH_SECONDS = 5.0  # usual hiccups, such as the election of a leader, are shorter
_WARN_EVERY_SECONDS = 60.0
_OVER_AFTER_SECONDS = 60.0  # longer than any pause between two failures of one outage (request.timeout.ms, the backoff)


class LogPace:
    """The failures of one kind, in one process. `clock` returns seconds (monotonic)."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since = self._last = self._warned = float("-inf")
        self._untold = 0

    def next(self) -> tuple[int, str]:
        """The log level of a failure that happens now, and what to add to its line."""
        now = self._clock()
        if now - self._last > _OVER_AFTER_SECONDS:
            self._since, self._warned, self._untold = now, float("-inf"), 0
        self._last = now
        if now - self._since < _EACH_SECONDS:
            return logging.INFO, ""
        if now - self._warned < _WARN_EVERY_SECONDS:
            self._untold += 1
            return logging.DEBUG, ""
        self._warned, untold, self._untold = now, self._untold, 0
        lasted = f" (for {now - self._since:.0f} s"
        return logging.WARNING, lasted + (f"; {untold} more since the last line)" if untold else ")")
