"""The state machine of the shared transaction on the driver: all states, events and legal transitions in one table.
Pure.

    UNINITIALISED --initialised--> INITIALISED --ledger read--> READY --append--> APPENDING --all appended--> APPENDED
    APPENDED --offsets sent--> OFFSETS_SENT --commit--> COMMITTING --commit answered--> COMMITTED
    COMMITTED --next epoch--> READY                       EndTxn v5 returned an epoch; the ledger is known
    COMMITTED --initialised--> INITIALISED                older brokers: InitProducerId for every batch
    APPENDING, APPENDED, OFFSETS_SENT --initialised--> INITIALISED    an abort
    COMMITTING --commit in doubt--> UNKNOWN --initialised--> INITIALISED    then the ledger decides
    UNKNOWN --commit answered--> COMMITTED                the coordinator shows what the commit left behind
    APPENDING, APPENDED, OFFSETS_SENT --timed out--> OVER --initialised--> INITIALISED

With a table that takes part (transaction.two_phase), its commit comes before EndTxn(commit):

    OFFSETS_SENT --table commit--> DECIDING --table committed--> DECIDED --commit answered--> COMMITTED
    DECIDING --table refused--> ABORTING --initialised--> INITIALISED
    DECIDED --timed out--> OVER                           then the same rows are appended again

Not obvious:
- An epoch is used for one transaction: nothing leads back to APPENDING without a new epoch. The records of a second
  attempt under the same epoch could be acknowledged and dropped: the broker's duplicate detection compares sequence
  numbers, not content.
- An abort is not a state: whatever EndTxn(abort) did, a new epoch must follow, and that aborts what is left.
- After EndTxn(commit) was sent, the outcome is unknown unless the response is "no error" or "fenced": an earlier
  attempt may have been applied. It is never followed by EndTxn(abort): a late one can end a later transaction
  (KAFKA-17754).
- From the table's commit on, nothing but EndTxn(commit) may be sent: neither an abort nor InitProducerId, which aborts,
  until it is known that the table did not commit, or that the transaction is over.
- The ledger counts as read only after InitProducerId: an older producer could commit in between. What was read before
  counts if the new epoch shows that none did (transaction.shared).

Sources: KIP-98 (data flow), KIP-890 (an epoch per transaction), the state table of Kafka's TransactionManager.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from spark_kafka_eos.errors import Committed, IllegalTransactionState


class State(Enum):
    """The state of the transaction, as far as the driver knows."""

    UNINITIALISED = "there is no producer identity"
    INITIALISED = "the producer has a new epoch, but the ledger has not been read"
    READY = "the producer has a new epoch, and the ledger has been read"
    APPENDING = "appends may be in flight"
    APPENDED = "every append was acknowledged once, on its first attempt"
    OFFSETS_SENT = "the source offsets and the ledger entry are part of the transaction"
    COMMITTING = "EndTxn(commit) was sent"
    COMMITTED = "EndTxn(commit) was answered"
    UNKNOWN = "EndTxn(commit) was sent, and its outcome is unknown"
    DECIDING = "the table's commit was sent, and its outcome is unknown"
    DECIDED = "the table has the batch, so the transaction must be committed"
    ABORTING = "the table will never have the batch, so the transaction must be aborted"
    OVER = "the coordinator has aborted the transaction"
    FENCED = "a newer producer owns the transactional.id"


class Event(Enum):
    """What the driver is about to send, or has just learned."""

    INITIALISED = "InitProducerId was answered"
    NEXT_EPOCH = "EndTxn v5 returned the next epoch"
    LEDGER_READ = "the ledger was read"
    APPEND = "appending starts"
    ALL_APPENDED = "the barrier has confirmed every append"
    OFFSETS_SENT = "TxnOffsetCommit was answered for every group"
    ABORT = "the transaction is about to be aborted"
    COMMIT = "EndTxn(commit) is about to be sent"
    COMMIT_ANSWERED = "EndTxn(commit) was answered without error, or described as applied"
    COMMIT_IN_DOUBT = "EndTxn(commit) was not answered, or failed"
    TABLE_COMMIT = "the table's commit is about to be sent"
    TABLE_COMMITTED = "the table has the batch's rows and token"
    TABLE_REFUSED = "the table will never have them: another commit came first, or a fence"
    TIMED_OUT = "the coordinator has aborted the transaction"
    FENCED = "a broker answered that a newer producer exists"


TRANSITIONS: dict[tuple[State, Event], State] = {
    (State.UNINITIALISED, Event.INITIALISED): State.INITIALISED,
    # Again before anything was appended: a lost response, or an idle query whose producer id expired.
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
    (State.UNKNOWN, Event.COMMIT_ANSWERED): State.COMMITTED,
    (State.OFFSETS_SENT, Event.TABLE_COMMIT): State.DECIDING,
    (State.DECIDING, Event.TABLE_COMMITTED): State.DECIDED,
    (State.DECIDING, Event.TABLE_REFUSED): State.ABORTING,
    (State.DECIDED, Event.COMMIT_ANSWERED): State.COMMITTED,
    **{
        (state, Event.TIMED_OUT): State.OVER
        for state in (State.APPENDING, State.APPENDED, State.OFFSETS_SENT, State.DECIDED, State.ABORTING, State.OVER)
    },
    **{(state, Event.ABORT): state for state in (State.APPENDING, State.APPENDED, State.OFFSETS_SENT, State.ABORTING)},
    (State.ABORTING, Event.INITIALISED): State.INITIALISED,
    (State.OVER, Event.INITIALISED): State.INITIALISED,
    **{(state, Event.FENCED): State.FENCED for state in State},
}

OPEN = (State.APPENDING, State.APPENDED, State.OFFSETS_SENT, State.ABORTING, State.OVER)
MAY_BE_OPEN = (*OPEN, State.COMMITTING, State.UNKNOWN, State.DECIDED)

_COMMIT_WAS_SENT = "a commit was sent and may still be applied; InitProducerId must settle it first, then the ledger"
_MUST_NOT_BE_ABORTED = "a late abort can end a later transaction; InitProducerId must settle it first, then the ledger"
_TABLE_MAY_HAVE_IT = "the table may have the batch, and a new epoch aborts the transaction of its rows"
_EPOCH_IS_USED = "this epoch was already used for a transaction; a new one is needed"

# Why a transition is illegal, if the state's description does not say it.
_WHY: dict[tuple[State, Event], str] = {
    (State.UNINITIALISED, Event.LEDGER_READ): "an older producer could still commit after the ledger was read",
    (State.INITIALISED, Event.APPEND): "the batch may already be committed; read the ledger first",
    (State.APPENDING, Event.COMMIT): "an append may be missing or duplicated",
    (State.APPENDING, Event.OFFSETS_SENT): "the offsets must be sent after all records",
    (State.APPENDED, Event.APPEND): "the barrier has already counted this transaction's appends",
    (State.APPENDED, Event.COMMIT): "without a ledger entry, a restart would write this batch again",
    (State.COMMITTING, Event.ABORT): _MUST_NOT_BE_ABORTED,
    (State.UNKNOWN, Event.ABORT): _MUST_NOT_BE_ABORTED,
    (State.UNKNOWN, Event.APPEND): _COMMIT_WAS_SENT,
    (
        State.UNKNOWN,
        Event.LEDGER_READ,
    ): "the commit could still be applied after the ledger was read; send InitProducerId first",
    (State.COMMITTED, Event.APPEND): _EPOCH_IS_USED,
    (State.DECIDING, Event.INITIALISED): _TABLE_MAY_HAVE_IT,
    (State.DECIDED, Event.INITIALISED): _TABLE_MAY_HAVE_IT,
    (State.DECIDING, Event.ABORT): _TABLE_MAY_HAVE_IT,
    (State.DECIDED, Event.ABORT): _TABLE_MAY_HAVE_IT,
    (State.DECIDING, Event.COMMIT): "the table may not have the batch",
}

_COMMITTED: dict[State, Committed] = {
    State.COMMITTED: "everything",
    State.COMMITTING: "unknown",
    State.UNKNOWN: "unknown",
    State.DECIDING: "unknown",
    State.DECIDED: "table",
    State.FENCED: "unknown",
}


class Transaction:
    """The state of the transactions of one transactional.id; only `apply` changes it. `clock` returns seconds."""

    __slots__ = ("_began", "_clock", "_state")

    def __init__(self, clock: Callable[[], float] = lambda: 0.0) -> None:
        self._state = State.UNINITIALISED
        self._clock = clock
        self._began = clock()

    @property
    def state(self) -> State:
        return self._state

    @property
    def committed(self) -> Committed:
        """What an error raised now must say about the current transaction. If fenced, only the ledger knows."""
        return _COMMITTED.get(self._state, "nothing")

    @property
    def seconds(self) -> float:
        """For how long the current transaction, or the last one, has been appended to."""
        return self._clock() - self._began

    def apply(self, event: Event) -> State:
        """Change to the next state and return it. Raises IllegalTransactionState, and changes nothing, if this is
        illegal.
        """
        try:
            self._state = TRANSITIONS[self._state, event]
        except KeyError:
            why = _WHY.get((self._state, event), self._state.value)
            raise IllegalTransactionState(
                f"{event.name} ({event.value}) is illegal in state {self._state.name}: {why}", committed=self.committed
            ) from None
        if event is Event.APPEND:
            self._began = self._clock()
        return self._state

    def __repr__(self) -> str:
        return f"Transaction({self._state.name})"
