"""The shared transaction as its driver sees it: every state, every event, every legal move, in one table.

    UNINITIALISED --initialised--> INITIALISED --ledger read--> READY --append--> APPENDING --all appended--> APPENDED
    APPENDED --offsets sent--> OFFSETS_SENT --commit--> COMMITTING --commit answered--> COMMITTED
    COMMITTED --next epoch--> READY                       EndTxn v5 returned an epoch; the ledger is known
    COMMITTED --initialised--> INITIALISED                older brokers: InitProducerId for every batch
    APPENDING, APPENDED, OFFSETS_SENT --initialised--> INITIALISED    this is how a transaction is aborted
    COMMITTING --commit in doubt--> UNKNOWN --initialised--> INITIALISED    then the ledger tells

Not obvious:
- An epoch serves one transaction: nothing leads back to APPENDING without a new one. A second try under the same epoch
  could have its records acknowledged and dropped: the broker's duplicate detection compares sequences, not content.
- An abort is no state of its own: whatever EndTxn(abort) did, a new epoch must follow, and that aborts what is left.
- Once EndTxn(commit) was sent, any answer but "no error" and "fenced" is a doubt: an earlier sending may have been
  applied.
- The ledger is read after InitProducerId, never before: an older owner might commit in between.

Sources: KIP-98 (data flow), KIP-890 (an epoch per transaction), the state table of Kafka's TransactionManager.
"""

from __future__ import annotations

from enum import Enum

from spark_kafka_eos.errors import Committed, IllegalTransactionState


class State(Enum):
    """Where the transaction stands, as far as the driver knows."""

    UNINITIALISED = "no producer identity is held"
    INITIALISED = "a new epoch is held, the ledger is not read"
    READY = "a new epoch is held and the ledger is known"
    APPENDING = "appends may be on their way"
    APPENDED = "every append was acknowledged once, on its first attempt"
    OFFSETS_SENT = "the source offsets and the ledger entry are part of the transaction"
    COMMITTING = "EndTxn(commit) was sent"
    COMMITTED = "EndTxn(commit) was answered"
    UNKNOWN = "EndTxn(commit) was sent and its outcome is not known"
    FENCED = "a newer owner holds the transactional.id"


class Event(Enum):
    """What the driver is about to send, or has just learned."""

    INITIALISED = "InitProducerId was answered"
    NEXT_EPOCH = "EndTxn v5 returned the next epoch"
    LEDGER_READ = "the ledger was read"
    APPEND = "appending begins"
    ALL_APPENDED = "the barrier found every append in"
    OFFSETS_SENT = "TxnOffsetCommit was answered for every group"
    COMMIT = "EndTxn(commit) is about to be sent"
    COMMIT_ANSWERED = "EndTxn(commit) was answered without error"
    COMMIT_IN_DOUBT = "EndTxn(commit) was not answered, or with an error"
    FENCED = "a broker answered that a newer owner exists"


TRANSITIONS: dict[tuple[State, Event], State] = {
    (State.UNINITIALISED, Event.INITIALISED): State.INITIALISED,
    # Once more before anything was appended: a lost answer, or an idle query whose identity expired.
    (State.INITIALISED, Event.INITIALISED): State.INITIALISED,
    (State.INITIALISED, Event.LEDGER_READ): State.READY,
    (State.READY, Event.INITIALISED): State.INITIALISED,
    (State.READY, Event.LEDGER_READ): State.READY,
    (State.READY, Event.APPEND): State.APPENDING,
    (State.APPENDING, Event.ALL_APPENDED): State.APPENDED,
    (State.APPENDING, Event.INITIALISED): State.INITIALISED,
    (State.APPENDED, Event.OFFSETS_SENT): State.OFFSETS_SENT,
    (State.APPENDED, Event.INITIALISED): State.INITIALISED,
    (State.OFFSETS_SENT, Event.COMMIT): State.COMMITTING,
    (State.OFFSETS_SENT, Event.INITIALISED): State.INITIALISED,
    (State.COMMITTING, Event.COMMIT_ANSWERED): State.COMMITTED,
    (State.COMMITTING, Event.COMMIT_IN_DOUBT): State.UNKNOWN,
    (State.COMMITTED, Event.NEXT_EPOCH): State.READY,
    (State.COMMITTED, Event.INITIALISED): State.INITIALISED,
    (State.UNKNOWN, Event.INITIALISED): State.INITIALISED,
    **{(state, Event.FENCED): State.FENCED for state in State},
}

_COMMIT_WAS_SENT = "a commit was sent and may still be applied; InitProducerId, then the ledger tells"
_EPOCH_IS_USED = "this epoch already served a transaction; a new one is needed"

# Why a move is illegal, where the state's own words do not say it.
_WHY: dict[tuple[State, Event], str] = {
    (State.UNINITIALISED, Event.LEDGER_READ): "an older owner could still commit after the ledger was read",
    (State.INITIALISED, Event.APPEND): "the batch may already be committed; read the ledger first",
    (State.APPENDING, Event.COMMIT): "an append may be missing, or be on its way a second time",
    (State.APPENDING, Event.OFFSETS_SENT): "the offsets may only follow the records they stand for",
    (State.APPENDED, Event.APPEND): "the barrier has already counted this transaction's appends",
    (State.APPENDED, Event.COMMIT): "without its ledger entry a restart would write this batch again",
    (State.UNKNOWN, Event.APPEND): _COMMIT_WAS_SENT,
    (
        State.UNKNOWN,
        Event.LEDGER_READ,
    ): "the commit could still be applied after the ledger was read; InitProducerId first",
    (State.COMMITTED, Event.APPEND): _EPOCH_IS_USED,
}

_COMMITTED: dict[State, Committed] = {
    State.COMMITTED: "everything",
    State.COMMITTING: "unknown",
    State.UNKNOWN: "unknown",
    State.FENCED: "unknown",
}


class Transaction:
    """The state of one transactional.id's transactions, moved only by `apply`."""

    __slots__ = ("_state",)

    def __init__(self) -> None:
        self._state = State.UNINITIALISED

    @property
    def state(self) -> State:
        return self._state

    @property
    def committed(self) -> Committed:
        """What an error raised now must say of the transaction at hand; after being fenced only the ledger knows."""
        return _COMMITTED.get(self._state, "nothing")

    def apply(self, event: Event) -> State:
        """Move to the next state and return it; an illegal move raises IllegalTransactionState and changes nothing."""
        try:
            self._state = TRANSITIONS[self._state, event]
        except KeyError:
            why = _WHY.get((self._state, event), self._state.value)
            raise IllegalTransactionState(
                f"{event.name} ({event.value}) is illegal in state {self._state.name}: {why}", committed=self.committed
            ) from None
        return self._state

    def __repr__(self) -> str:
        return f"Transaction({self._state.name})"
