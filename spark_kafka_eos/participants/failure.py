"""An error that a participant raises, as one of this package. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from spark_kafka_eos.errors import ConfigurationError, KafkaEosError, TableFailed
from spark_kafka_eos.participants.participant import Conflict


@contextmanager
def naming_the_table(what: str) -> Iterator[None]:
    """Raise TableFailed for an error of the participant; `what` it could not do. A Conflict, and an error that says
    itself what to do about the table, stay as they are.
    """
    try:
        yield
    except (Conflict, ConfigurationError, TableFailed):
        raise
    except Exception as error:
        raise TableFailed(
            f"the table that takes part {what} ({error_to_text(error)})",
            action="Fix the cause, which is the previous error, and start the query again.",
        ).replaced(committed="unknown") from error


def error_to_text(error: Exception) -> str:
    """The error's class and message."""
    message = error.what if isinstance(error, KafkaEosError) else str(error)
    return f"{type(error).__name__}: {message}" if message else type(error).__name__
