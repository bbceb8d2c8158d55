"""What can go wrong between a client and its brokers; the base of every error of this package.

`spark_kafka_eos.errors` has the whole tree, and is where users import these from. All can be pickled.
"""

from __future__ import annotations

import copy
from typing import Literal, Self

from spark_kafka_eos.kafka.words import printable

Committed = Literal["nothing", "everything", "part", "unknown", "table", "acknowledged", "earlier"]

_COMMITTED = {
    "nothing": "Nothing was committed.",
    "everything": "The transaction was committed.",
    "part": "The transaction was committed, and the other topics have its records.",
    "unknown": "It is unknown whether the transaction was committed; a query, or a write with txnAppId, finds out from "
    "the ledger when it runs again.",
    "table": "The table has the batch, and Kafka does not show it yet; the next start completes it.",
    "acknowledged": "Without a transaction, records that brokers acknowledged are visible; a restarted query writes "
    "them again.",
    "earlier": "What earlier transactions committed stays; a restarted query goes on after it.",
}


class KafkaEosError(Exception):
    """What happened, whether anything was committed, what to do, and the command that shows more.

    `what` is a sentence without its full stop. `committed` refers to the current micro-batch (or batch write). It is
    None for the source's errors, because only the sink knows, and it may be somebody else's.
    """

    def __init__(self, what: str, *, action: str = "", committed: Committed = "nothing") -> None:
        what = printable(what)  # names and what a broker said, which may be anybody's
        super().__init__(what)
        self.what = what
        self.action = printable(action)
        self.committed: Committed | None = committed

    def __str__(self) -> str:
        return self._joined(self._commit_note())

    def without_commit_note(self) -> str:
        """The message without what was committed."""
        return self._joined("")

    def _joined(self, commit_note: str) -> str:
        """In one paragraph, or in lines if `action` has several."""
        statement = " ".join(part for part in (f"{self.what}.", commit_note) if part)
        parts = (statement, self.action, f"More: {self.runbook}")
        return ("\n" if "\n" in self.action else " ").join(part for part in parts if part)

    @property
    def runbook(self) -> str:
        """The command that shows the runbook's section for this class."""
        return f"kafka-eos explain {type(self).__name__}"

    def _commit_note(self) -> str:
        return "" if self.committed is None else _COMMITTED[self.committed]

    def replaced(
        self, *, what: str | None = None, action: str | None = None, committed: Committed | None = None
    ) -> Self:
        """The same error with another sentence, `action` or word on what was committed; this one stays as it is."""
        other = copy.copy(self)
        other.what = self.what if what is None else what
        other.action = self.action if action is None else action
        other.committed = self.committed if committed is None else committed
        return other

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.args, dict(self.__dict__))


def _rebuild(kind: type[KafkaEosError], args: tuple[object, ...], state: dict[str, object]) -> KafkaEosError:
    """Unpickle without calling the subclass's constructor, whose signature may differ from `args`."""
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class ConfigurationError(KafkaEosError):
    """An option is missing, unknown or wrong. `option` is its documented name, also if another one was set."""

    def __init__(self, option: str, what: str, *, action: str = "") -> None:
        super().__init__(f"option {option!r}: {what}", action=action)
        self.option = option


class BrokerUnreachable(KafkaEosError):
    """No broker could be reached, or none answered in time."""


class AuthenticationFailed(KafkaEosError):
    """The broker refused the credentials, or the TLS handshake failed."""


class BrokerError(KafkaEosError):
    """A broker answered `api` with error `code` (Kafka's number) named `name`, which is not retriable."""

    def __init__(
        self, api: str, code: int, name: str, context: str, *, action: str = "", committed: Committed = "nothing"
    ) -> None:
        super().__init__(f"{api} answered {name} ({code}) for {context}", action=action, committed=committed)
        self.api, self.name, self.context = api, name, context
        self.code = int(code)  # not an enumeration's member, which an older release could not unpickle


class AuthorizationFailed(BrokerError):
    """An ACL is missing; the message names the resource and the operation."""


class UnknownTopic(KafkaEosError):
    """The topic or partition does not exist (or may not be described by this principal)."""


class CorruptRecordBatch(KafkaEosError):
    """A record batch is malformed. The message names topic, partition and offset where they are known."""


class DataLoss(KafkaEosError):
    """Offsets that the query still has to read are no longer in Kafka."""


class InvalidRow(KafkaEosError):
    """A row cannot become a record; the message says why, and names topic and partition where they are known."""


class TransactionAborted(KafkaEosError):
    """This attempt at the batch was aborted and is invisible; the batch may be retried with a new producer epoch."""


class ProducerFenced(KafkaEosError):
    """Another producer initialized the same transactional.id later; this process must stop."""


class CommitOutcomeUnknown(KafkaEosError):
    """The commit request got no answer, and the ledger could not be read in time."""

    def __init__(self, what: str, *, action: str = "") -> None:
        super().__init__(what, action=action, committed="unknown")
