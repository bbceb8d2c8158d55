"""An error that a participant raises, as one of this package. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from spark_kafka_eos.errors import ConfigurationError, KafkaEosError, TableFailed
from spark_kafka_eos.participants.participant import Conflict
from spark_kafka_eos.participants.refusal import ANEW


@contextmanager
def naming_the_table(what: str) -> Iterator[None]:
    """Raise TableFailed for an error of the participant; `what` it could not do. A Conflict, and an error that says
    itself what to do about the table, stay as they are. What an earlier process has committed is not known yet.
    """
    try:
        yield
    except (Conflict, ConfigurationError):
        raise
    except TableFailed as error:
        error.committed = "unknown"
        raise
    except Exception as error:
        raise TableFailed(
            f"the table that takes part {what} ({error_to_text(error)})",
            action="Fix the cause, which is the previous error, and start the query again.",
        ).replaced(committed="unknown") from error


def went_back(before: int, now: int) -> TableFailed:
    """The table is at an earlier version than this process has seen."""
    return TableFailed(
        f"the table that takes part was at version {before} of this query, and is at version {now}: it was restored "
        "from an older copy, has failed over to a replica without the last commits, or its key was deleted or, in "
        "Delta, cleaned from the log; so rows that Kafka has may be missing there",
        action=f"Restore the table and its key. {ANEW}",
    )


def error_to_text(error: Exception) -> str:
    """The error's class and message, on one line; of the JVM's, without the frames of its stack."""
    lines = (error.what if isinstance(error, KafkaEosError) else str(error)).splitlines()
    message = " ".join(line.strip() for line in lines if not line.startswith("\t"))
    return f"{type(error).__name__}: {message}" if message else type(error).__name__
