"""Retries: a time budget and exponential backoff with jitter (KIP-580). Pure.

Pure: clock and jitter are passed in, and the caller sleeps.
"""

from __future__ import annotations

from collections.abc import Callable

from spark_kafka_eos.kafka.errors import KafkaEosError
from spark_kafka_eos.kafka.protocol.error_codes import Reaction

# A broker that was paused or isolated considers itself the leader until it learns of its successor, usually for less
# than a second, and its log lacks what the successor has appended. Epochs do not reveal this if the client does not
# know the successor either.
OUTDATED_LEADER_MS = 5_000

_GROWTH = 2.0
_SPREAD = 0.2
_SOON = 0.005
_TRIED = "It was retried"

Clock = Callable[[], float]  # seconds, monotonic


class Budget:
    """The time for all attempts of one request.

    It ends `milliseconds` from now. Delays start at `backoff_ms` and double up to `backoff_max_ms`, each with a jitter
    of ±20 %. `clock` returns seconds (monotonic), `jitter` a number in [0, 1).
    """

    __slots__ = ("_backoff", "_backoff_max", "_clock", "_deadline", "_delays", "_jitter", "milliseconds")

    def __init__(
        self,
        *,
        milliseconds: int,
        backoff_ms: int,
        backoff_max_ms: int,
        clock: Clock,
        jitter: Callable[[], float],
    ) -> None:
        self.milliseconds = milliseconds
        self._backoff, self._backoff_max = backoff_ms / 1000, backoff_max_ms / 1000
        self._clock, self._jitter = clock, jitter
        self._delays = 0
        self._deadline = clock() + milliseconds / 1000

    @property
    def spent(self) -> bool:
        return self._clock() >= self._deadline

    @property
    def remaining(self) -> float:
        """The seconds that are left; negative if an attempt went on beyond the end."""
        return self._deadline - self._clock()

    @property
    def used_ms(self) -> int:
        return self.milliseconds - round(self.remaining * 1000)

    def delay(self, *, soon: bool = False) -> float | None:
        """Seconds to wait before the next attempt, starting at 5 ms if `soon`; None if the budget is used up."""
        if self.spent:
            return None
        # The exponent is limited, so that a long outage cannot overflow the float.
        pause = min((_SOON if soon else self._backoff) * _GROWTH ** min(self._delays, 30), self._backoff_max)
        self._delays += 1
        return min(pause * (1 - _SPREAD + 2 * _SPREAD * self._jitter()), self.remaining)

    def restart(self) -> None:
        """Start again with the whole budget and the shortest delay, because progress was made."""
        self._delays = 0
        self._deadline = self._clock() + self.milliseconds / 1000


def delay_or_raise(error: KafkaEosError, react: Reaction, budget: Budget) -> float:
    """Seconds to wait before retrying after `error`; raises `error`, and how long was retried, if no time is left."""
    delay = budget.delay(soon=react is Reaction.RETRY_SOON)
    if delay is None:
        if not error.action.startswith(_TRIED):  # an inner loop gave up first and has added this
            error = error.replaced(action=f"{_TRIED} for {budget.used_ms} ms. {error.action}".rstrip())
        raise error
    return delay


class Stopwatch:
    """A clock for budgets that can be stopped; it runs from the start."""

    __slots__ = ("_behind", "_clock", "_stopped_at")

    def __init__(self, clock: Clock) -> None:
        self._clock, self._behind = clock, 0.0
        self._stopped_at: float | None = None

    def __call__(self) -> float:
        return (self._clock() if self._stopped_at is None else self._stopped_at) - self._behind

    def stop(self) -> None:
        """Stop the clock."""
        if self._stopped_at is None:
            self._stopped_at = self._clock()

    def start(self) -> None:
        """Continue as if no time had passed since `stop`."""
        if self._stopped_at is not None:
            self._behind += self._clock() - self._stopped_at
            self._stopped_at = None
