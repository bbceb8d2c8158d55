"""How often and how long to wait before trying again: a budget of time and exponential backoff with jitter (KIP-580).

Pure: the clock and the jitter are passed in, and the caller does the sleeping.
"""

from __future__ import annotations

from collections.abc import Callable

_GROWTH = 2.0
_SPREAD = 0.2
_SOON = 0.005


class Budget:
    """Time for all tries of one request together.

    `milliseconds` from now, delays from `backoff_ms` doubling up to `backoff_max_ms`, each spread by ±20 %. `clock`
    gives seconds (monotonic), `jitter` a number in [0, 1).
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
        """Seconds to wait before the next try, from 5 ms on if `soon`; None when the budget is spent."""
        left = self._deadline - self._clock()
        if left <= 0:
            return None
        # The exponent is bounded so that a long outage cannot overflow the float.
        pause = min((_SOON if soon else self._backoff) * _GROWTH ** min(self._tries, 30), self._backoff_max)
        self._tries += 1
        return min(pause * (1 - _SPREAD + 2 * _SPREAD * self._jitter()), left)

    def restart(self) -> None:
        """Progress was made: the whole budget, and the shortest delay, again."""
        self._tries = 0
        self._deadline = self._clock() + self.milliseconds / 1000
