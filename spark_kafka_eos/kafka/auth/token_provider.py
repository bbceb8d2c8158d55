"""Calls a user's function for a token. What it returns and raises is not shown, because it may contain the token."""

from __future__ import annotations

import importlib
import re
import time
import traceback
from collections.abc import Callable

from spark_kafka_eos.kafka.auth.tokens import TokenProvider
from spark_kafka_eos.kafka.errors import AuthenticationFailed, BrokerUnreachable, ConfigurationError, KafkaEosError

TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750, section 2.1
_MILLISECONDS = 1e11  # seconds since 1970 of the year 5138


def provide(provider: TokenProvider) -> tuple[str, float]:
    """A new token, and when it expires, in seconds since 1970.

    Raises ConfigurationError if there is no such function, BrokerUnreachable after an OSError in it, which may pass,
    AuthenticationFailed after other exceptions and for anything that is no valid token. Errors of this package pass.
    """
    name, function = provider.function, _load(provider.function)
    try:
        returned = function(provider.config.reveal())
    except KafkaEosError:
        raise
    except OSError as error:
        raise BrokerUnreachable(f"token provider {name} failed: {_place(error)}") from None
    except Exception as error:  # noqa: BLE001 - the user's code
        raise AuthenticationFailed(
            f"token provider {name} failed: {_place(error)}",
            action="The exception's text is not shown, because it may contain secrets. To show one, raise "
            "spark_kafka_eos.AuthenticationFailed.",
        ) from None
    match returned:
        case (str(token), int() | float() as expiry) if TOKEN.fullmatch(token):
            pass
        case _:
            raise AuthenticationFailed(
                f"token provider {name} did not return (token, expiry)",
                action="Return the token as a str (RFC 6750), and the time when it expires in seconds since 1970.",
            )
    if expiry >= _MILLISECONDS:
        raise AuthenticationFailed(
            f"token provider {name} returned {expiry:.0f} as the token's expiry, which are not seconds since 1970",
            action="If these are milliseconds, divide by 1000.",
        )
    if not expiry > time.time():
        raise AuthenticationFailed(f"token provider {name} returned a token that has expired")
    return token, float(expiry)


def _load(name: str) -> Callable[[str], object]:
    module, _, function = name.partition(":")
    option = "kafka.sasl.oauthbearer.token.provider"
    try:
        provider = getattr(importlib.import_module(module), function, None)
    except ImportError as error:
        raise ConfigurationError(
            option,
            f"{module} cannot be imported: {error}",
            action="Install it on the driver and the executors, or pass it with --py-files.",
        ) from None
    if not callable(provider):
        raise ConfigurationError(option, f"{module} has no function {function}")
    return provider  # type: ignore[no-any-return]


def _place(error: BaseException) -> str:
    """Type and place of an exception, without its text."""
    *_, last = traceback.extract_tb(error.__traceback__)
    return f"{type(error).__name__} at {last.filename}:{last.lineno}"
