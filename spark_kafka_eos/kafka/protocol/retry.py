"""The retry loop for requests, driven by `protocol.error_codes`."""

from __future__ import annotations

import functools
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, NoReturn, TypeVar

from spark_kafka_eos.kafka.errors import BrokerUnreachable, KafkaEosError
from spark_kafka_eos.kafka.logs import logger
from spark_kafka_eos.kafka.protocol.acl_hints import ResourceRef
from spark_kafka_eos.kafka.protocol.backoff import Budget, delay_or_raise
from spark_kafka_eos.kafka.protocol.error_codes import RETRIABLE, Reaction, failure, reaction
from spark_kafka_eos.kafka.protocol.log_pace import Failing, LogPace

log = logger(__name__)

# One for the whole process: many requests are retried in one outage.
_paces: dict[type[Exception], LogPace] = defaultdict(lambda: LogPace(time.monotonic))

T = TypeVar("T")

# A response's error codes, each with what it refers to.
Errors = Callable[[Any], Iterable[tuple[ResourceRef | str, int]]]


def worst(api: str, codes: Iterable[tuple[ResourceRef | str, int]]) -> tuple[Reaction, KafkaEosError | None]:
    """The reaction to one response: to its first error that is not retriable, else its first retriable one, else
    NONE.
    """
    retriable: tuple[Reaction, KafkaEosError | None] = (Reaction.NONE, None)
    for resource, code in codes:
        react = reaction(api, code)
        if react is Reaction.NONE:
            continue
        if react not in RETRIABLE:
            return react, failure(api, code, resource)
        if retriable[1] is None:
            retriable = react, failure(api, code, resource)
    return retriable


def retry(
    api: str,
    attempt: Callable[[], Any],
    errors: Errors,
    recover: Callable[[Reaction], None],
    *,
    budget: Budget,
    sleep: Callable[[float], None],
) -> Any:
    """Call `attempt()` until its response has no errors; raise the first fatal one, or the last one at the timeout.

    `recover` gets the reaction before the next attempt; a lost connection counts as FIND_COORDINATOR.
    """
    recovering: Reaction | None = None
    failing = new_request()
    while True:
        try:
            if recovering is not None:
                recover(recovering)
            response = attempt()
            react, error = worst(api, errors(response))
        except BrokerUnreachable as unreachable:
            react, error = Reaction.FIND_COORDINATOR, unreachable
        if error is None:
            failing.got_through()
            return response
        if react not in RETRIABLE:
            raise error
        pause(error, react, budget, sleep, failing)
        recovering = react


def ahead(send: Callable[[], T]) -> Callable[[], T]:
    """Call `send` now: a function that has its result, or raises its error, when it is called for the first time, and
    calls `send` again after that. With it, the caller works on while a broker answers.
    """
    first: list[Callable[[], T]] = []
    try:
        result = send()
        first.append(lambda: result)
    except KafkaEosError as error:
        first.append(functools.partial(_raise, error))
    return lambda: first.pop()() if first else send()


def _raise(error: KafkaEosError) -> NoReturn:
    raise error


def new_request() -> Failing:
    """Of a request that has not failed yet: for `pause` and `log_and_sleep`."""
    return Failing(_paces)


def pause(
    error: KafkaEosError, react: Reaction, budget: Budget, sleep: Callable[[float], None], failing: Failing
) -> None:
    """Wait before the next attempt, or raise `error` if the budget is used up."""
    log_and_sleep(delay_or_raise(error, react, budget), error, sleep, failing)


def log_and_sleep(seconds: float, error: KafkaEosError, sleep: Callable[[float], None], failing: Failing) -> None:
    """Wait before the next attempt after `error`, and log it; if this goes on, in one warning per minute."""
    level, lasted = failing.next(error)
    log.log(level, "%s; retrying in %d ms%s", error.what, seconds * 1000, lasted)
    sleep(seconds)
