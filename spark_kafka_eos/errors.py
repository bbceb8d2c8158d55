"""Every error this package raises on purpose, as one tree. Pure.

    KafkaEosError
    ├── ConfigurationError         an option is missing, unknown or wrong; raised before anything is sent
    │   └── InvalidSchema          the DataFrame's columns do not fit the sink
    ├── PreflightFailed            something that would lose data or fail later was found before the first batch
    ├── BrokerUnreachable          no broker could be reached, or none answered in time
    ├── AuthenticationFailed       the broker refused the credentials or the TLS handshake failed
    ├── BrokerError                a broker answered with an error code that is not retriable
    │   └── AuthorizationFailed    an ACL is missing (error codes 29, 30, 31, 53)
    ├── UnknownTopic               a topic or partition does not exist
    ├── CorruptRecordBatch         a record batch is malformed (CRC, lengths, magic)
    ├── DataLoss                   offsets that the query still has to read are gone from Kafka
    ├── InvalidRow                 a row cannot be sent: null topic, partition out of range, too large, …
    ├── RegistryError              the schema registry did not answer, or refused the request
    ├── UndecodableRecord          a value does not fit its schema, and the query fails then
    ├── TooManyDeadLetters         a batch has more dead letters than `maxDeadLetters` allows
    ├── StagingLost                what the write tasks encoded is missing or damaged
    │   └── StagingFull            there is too little disk space for it
    ├── CheckpointUnusable         the checkpoint does not say which offsets the batch covers
    ├── TransactionAborted         this attempt at the batch was aborted; the same batch may be retried
    ├── AttemptsExhausted             the batch was aborted `maxAttempts` times
    ├── ProducerFenced             a newer producer took over the transactional.id; this one must stop
    ├── OutputLost                 an output topic was deleted while the batch was committed
    ├── CommitOutcomeUnknown       the commit request got no answer, and the ledger could not be read
    ├── LedgerRefused              the ledger contradicts the checkpoint; going on could lose or repeat data
    ├── TableFailed                the table that takes part failed, or has lost commits of the query
    ├── ReplayFailed               a committed batch could not be recomputed, which the query's state needs
    ├── IllegalTransactionState    the transaction's state forbids this step: a bug in the caller; nothing was sent
    └── ToolFailed                 the test kit or a command failed; no transaction was involved

Each error says what happened, whether anything was committed (unless the source raises it), what to do, and where the
runbook has more. All of them can be pickled, because executors send them to the driver.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from spark_kafka_eos.kafka.errors import (
    AuthenticationFailed,
    AuthorizationFailed,
    BrokerError,
    BrokerUnreachable,
    CommitOutcomeUnknown,
    Committed,
    ConfigurationError,
    CorruptRecordBatch,
    DataLoss,
    InvalidRow,
    KafkaEosError,
    ProducerFenced,
    TransactionAborted,
    UnknownTopic,
)

__all__ = [
    "AttemptsExhausted",
    "AuthenticationFailed",
    "AuthorizationFailed",
    "BrokerError",
    "BrokerUnreachable",
    "CheckpointUnusable",
    "CommitOutcomeUnknown",
    "Committed",
    "ConfigurationError",
    "CorruptRecordBatch",
    "DataLoss",
    "IllegalTransactionState",
    "InvalidRow",
    "InvalidSchema",
    "KafkaEosError",
    "LedgerRefused",
    "OutputLost",
    "PreflightFailed",
    "ProducerFenced",
    "RegistryError",
    "ReplayFailed",
    "StagingFull",
    "StagingLost",
    "TableFailed",
    "TooManyDeadLetters",
    "ToolFailed",
    "TransactionAborted",
    "UndecodableRecord",
    "UnknownTopic",
    "errors_of_source",
    "must_not_restart",
]

# Tracebacks and pickles name the module that users know.
for _error in (
    KafkaEosError,
    ConfigurationError,
    BrokerUnreachable,
    AuthenticationFailed,
    BrokerError,
    AuthorizationFailed,
    UnknownTopic,
    CorruptRecordBatch,
    DataLoss,
    InvalidRow,
    TransactionAborted,
    ProducerFenced,
    CommitOutcomeUnknown,
):
    _error.__module__ = __name__
del _error


@contextmanager
def errors_of_source() -> Iterator[None]:
    """Let the errors in this context not say whether anything was committed: a source cannot know."""
    try:
        yield
    except KafkaEosError as error:
        cause: BaseException | None = error
        while cause is not None:  # Spark's message has the whole traceback, with the errors that led to this one
            if isinstance(cause, KafkaEosError):
                cause.committed = None
            cause = cause.__cause__ or cause.__context__
        raise


class InvalidSchema(ConfigurationError):
    """The DataFrame lacks a column that the sink needs, or a column has a type that it does not accept."""

    def __init__(self, what: str, *, action: str = "") -> None:
        KafkaEosError.__init__(self, what, action=action)
        self.option = "schema"


class PreflightFailed(KafkaEosError):
    """The preflight found something that would lose data or fail later; the message lists every finding."""


class RegistryError(KafkaEosError):
    """The schema registry could not be reached, did not answer in time or refused the request."""


class UndecodableRecord(KafkaEosError):
    """A record's value or timestamp cannot be read. The message says where and why, and never shows the content."""


class TooManyDeadLetters(KafkaEosError):
    """A batch has more dead letters than `maxDeadLetters` allows; the message counts them by cause."""


class StagingLost(KafkaEosError):
    """Blocks that the write tasks encoded cannot be stored, are missing, or were damaged before they were appended."""


class StagingFull(StagingLost):
    """The disk of the staging directory has too little space; the message says what is needed and free, and where."""


class CheckpointUnusable(KafkaEosError):
    """A file of the checkpoint is missing, damaged or of an unknown format, so the batch's offsets are unknown."""


class AttemptsExhausted(KafkaEosError):
    """The batch was aborted as often as `maxAttempts` allows; the last cause is in the message."""


class OutputLost(KafkaEosError):
    """An output topic was deleted while the batch was committed: what it wrote there is gone, and the rest is there."""

    def __init__(self, what: str, *, action: str = "") -> None:
        super().__init__(what, action=action, committed="part")


class LedgerRefused(KafkaEosError):
    """The ledger contradicts the checkpoint: going on could lose or repeat data, so nothing is written."""


class TableFailed(KafkaEosError):
    """The table that takes part in the batches failed before the batch was written, or has lost commits of the query;
    the cause is the table's error.
    """


class ReplayFailed(KafkaEosError):
    """A batch that an earlier run committed could not be recomputed, so the query's state cannot be restored."""


class IllegalTransactionState(KafkaEosError):
    """The transaction's state forbids this step; nothing was sent, and the state is unchanged."""


class ToolFailed(KafkaEosError):
    """The embedded broker, its download or a command failed. The message mentions no transaction: none was involved."""

    def _commit_note(self) -> str:
        return ""


# How a traceback names an error of this package, and what Spark says of a second driver on the same checkpoint.
_NAMED = re.compile(rf"\b{re.escape(__name__)}\.\w+|\[CONCURRENT_STREAM_LOG_UPDATE\]")
_TAKEN_OVER = {f"{__name__}.ProducerFenced", f"{__name__}.LedgerRefused", "[CONCURRENT_STREAM_LOG_UPDATE]"}


def must_not_restart(error: BaseException) -> bool:
    """Whether another driver has taken over what `error` stopped: its transactional.id, its ledger or its checkpoint.

    `error` is what a query or a batch write raised: an error of this package, or Spark's with its text. Then a restart
    would lose nothing, but it would fence the other driver, which would restart and fence this one, and so on.
    """
    named = _NAMED.findall("".join(traceback.format_exception_only(error)))
    return bool(named) and named[-1] in _TAKEN_OVER  # the last one: those before are its causes
