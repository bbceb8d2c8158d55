"""Retries: a time budget and exponential backoff with jitter (KIP-580).

Pure: clock and jitter are passed in, and the caller sleeps.
"""

from __future__ import annotations

from collections.abc import Callable

_GROWTH = 2.0
_SPREAD = 0.2
_SOON = 0.005


class Budget:
    """The time for all attempts of one request.

    It ends `milliseconds` from now. Delays start at `backoff_ms` and double up to `backoff_max_ms`, each with a jitter
    of ±20 %. `clock` returns seconds (monotonic), `jitter` a number in [0, 1).
    """

    __slots__ = ("_backoff", "_backoff_max", "_clock", "_deadline", "_jitter", "_tries", "milliseconds")

    def __init__(
        self,
        *,
        milliseconds: int,
        backoff_ms: int,
        backoff_max_ms: int,
        clock: Callable[[], float],
        jitter: Callable[[], float],
    ) -> None:
        self.milliseconds = milliseconds
        self._backoff, self._backoff_max = backoff_ms / 1000, backoff_max_ms / 1000
        self._clock, self._jitter = clock, jitter
        self._tries = 0
        self._deadline = clock() + milliseconds / 1000

    def delay(self, *, soon: bool = False) -> float | None:
        """Seconds to wait before the next attempt, starting at 5 ms if `soon`; None if the budget is used up."""
        left = self._deadline - self._clock()
        if left <= 0:
            return None
        # The exponent is limited, so that a long outage cannot overflow the float.
        pause = min((_SOON if soon else self._backoff) * _GROWTH ** min(self._tries, 30), self._backoff_max)
        self._tries += 1
        return min(pause * (1 - _SPREAD + 2 * _SPREAD * self._jitter()), left)

    def restart(self) -> None:
        """Start again with the whole budget and the shortest delay, because progress was made."""
        self._tries = 0
        self._deadline = self._clock() + self.milliseconds / 1000
