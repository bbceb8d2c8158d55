"""Every error this package raises on purpose, as one tree.

    KafkaEosError
    ├── ConfigurationError         an option is missing, unknown or wrong; raised before anything is sent
    ├── PreflightFailed            something that would lose data or fail later was found before the first batch
    ├── BrokerUnreachable          no connection to any broker, or none within the budget
    ├── AuthenticationFailed       the broker refused the credentials or the TLS handshake failed
    ├── BrokerError                a broker answered with an error code that no retry mends
    │   └── AuthorizationFailed    … an ACL is missing (codes 29, 30, 31, 53)
    ├── UnknownTopic               a topic or partition that does not exist
    ├── CorruptRecordBatch         bytes that are not a valid record batch (CRC, lengths, magic)
    ├── DataLoss                   offsets the query needs are gone from Kafka
    ├── InvalidRow                 a row that cannot be sent: null topic, partition out of range, too large, …
    ├── TransactionAborted         this try of the batch was aborted; the same batch may be tried again
    ├── ProducerFenced             a newer owner of the transactional.id exists; this one must stop
    ├── CommitOutcomeUnknown       the end of a transaction was never answered and could not be read back
    ├── LedgerRefused              the ledger contradicts the checkpoint; going on could lose or repeat data
    └── IllegalTransactionState    a step that the transaction's state forbids: a bug of the caller, stopped before it
    harms

Each answers three questions: what happened, whether anything was committed, what to do. All survive pickling (executors
send them to the driver as they are): the constructor takes exactly what `args` holds.
"""

from __future__ import annotations

from typing import Literal

Committed = Literal["nothing", "everything", "unknown"]

_COMMITTED = {
    "nothing": "Nothing was committed.",
    "everything": "The transaction was committed.",
    "unknown": "Whether the transaction was committed is not known; the ledger decides when the query starts again.",
}


class KafkaEosError(Exception):
    """What happened, whether anything was committed, and what to do.

    `what` is a sentence without its full stop. `committed` speaks of the micro-batch (or batch write) at hand.
    """

    def __init__(self, what: str, *, action: str = "", committed: Committed = "nothing") -> None:
        super().__init__(what)
        self.what = what
        self.action = action
        self.committed: Committed = committed

    def __str__(self) -> str:
        return " ".join(part for part in (f"{self.what}.", _COMMITTED[self.committed], self.action) if part)

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.args, dict(self.__dict__))


def _rebuild(kind: type[KafkaEosError], args: tuple[object, ...], state: dict[str, object]) -> KafkaEosError:
    """Unpickle without calling the subclass's constructor, whose signature may differ from `args`."""
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class ConfigurationError(KafkaEosError):
    """An option is missing, unknown or wrong. `option` is its name as the user writes it."""

    def __init__(self, option: str, what: str, *, action: str = "") -> None:
        super().__init__(f"option {option!r}: {what}", action=action)
        self.option = option


class PreflightFailed(KafkaEosError):
    """Before the first batch something was found that would lose data or fail later; the message lists all of it."""


class BrokerUnreachable(KafkaEosError):
    """No broker could be reached, or an answer did not come within the budget."""


class AuthenticationFailed(KafkaEosError):
    """The broker refused the credentials, or the TLS handshake failed."""


class BrokerError(KafkaEosError):
    """A broker answered `api` with error `code` (Kafka's number) named `name`, and no retry mends it."""

    def __init__(
        self, api: str, code: int, name: str, context: str, *, action: str = "", committed: Committed = "nothing"
    ) -> None:
        super().__init__(f"{api} answered {name} ({code}) for {context}", action=action, committed=committed)
        self.api, self.code, self.name, self.context = api, code, name, context


class AuthorizationFailed(BrokerError):
    """An ACL is missing; the message names the resource and the operation."""


class UnknownTopic(KafkaEosError):
    """The topic or partition does not exist (or may not be described by this principal)."""


class CorruptRecordBatch(KafkaEosError):
    """Bytes that are not a valid record batch. Names topic, partition and offset once they are known."""


class DataLoss(KafkaEosError):
    """Offsets that the query still has to read are no longer in Kafka."""


class InvalidRow(KafkaEosError):
    """A row that cannot become a record; the message names its topic, partition and the limit it breaks."""


class TransactionAborted(KafkaEosError):
    """This try of the batch is void and invisible; the same batch may be tried again with a new epoch."""


class ProducerFenced(KafkaEosError):
    """A newer owner initialised the same transactional.id; this process must stop."""


class CommitOutcomeUnknown(KafkaEosError):
    """The end of the transaction was never answered and the ledger could not be read within the budget."""

    def __init__(self, what: str, *, action: str = "") -> None:
        super().__init__(what, action=action, committed="unknown")


class LedgerRefused(KafkaEosError):
    """The ledger contradicts the checkpoint: going on could lose or repeat data, so nothing is written."""


class IllegalTransactionState(KafkaEosError):
    """A step was tried that the transaction's state forbids; nothing was sent and the state is unchanged."""


class ToolFailed(KafkaEosError):
    """The embedded broker, its download or a command failed. No transaction was involved, so none is mentioned."""

    def __str__(self) -> str:
        return f"{self.what}. {self.action}".rstrip()
