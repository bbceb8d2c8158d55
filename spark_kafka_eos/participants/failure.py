"""An error that a participant raises, as one of this package. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from spark_kafka_eos.errors import KafkaEosError, TableFailed
from spark_kafka_eos.participants.participant import Conflict


@contextmanager
def naming_the_table(what: str) -> Iterator[None]:
    """Raise TableFailed for an error of the participant that is not a Conflict; `what` it could not do."""
    try:
        yield
    except Conflict:
        raise
    except Exception as error:
        raise TableFailed(
            f"the table that takes part {what} ({shown(error)})",
            action="Fix the cause, which is the previous error, and start the query again.",
        ).replaced(committed="unknown") from error


def shown(error: Exception) -> str:
    """The error's class and message."""
    said = error.what if isinstance(error, KafkaEosError) else str(error)
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
