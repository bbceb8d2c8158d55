"""The hold of this process on its transactional.id: all states, events and legal transitions in one table; and what the
coordinator's answers say of it. Pure.

    NOBODY --epoch requested--> TAKING --initialised--> TAKEN --ledger read--> HELD
    HELD --epoch requested--> UNCERTAIN --initialised--> TAKEN    each batch in TV1, and after an abort
    UNCERTAIN --committed--> HELD           EndTxn(commit), which in TV2 returns the next epoch
    UNCERTAIN --aborted--> UNCERTAIN        EndTxn(abort): a new epoch must follow
    UNCERTAIN --let go--> RELEASED --initialised--> TAKEN
    HELD, TAKEN, UNCERTAIN --timed out--> the same, in the next epoch
    any but LOST --looked--> NOBODY or TAKING     the id is about to be taken as by a process that starts
    any --fenced--> LOST

Every InitProducerId raises the epoch, or finally gives another producer id. So it leaves a trace that lasts, and a
driver that comes back late sees it without sending an InitProducerId of its own, which would abort the transaction of
the live owner and fence it.

Not obvious:
- Until the ledger has been read after InitProducerId, what is committed is not known: a look that comes then takes this
  process's own epoch for another owner's. So TAKEN is in doubt, too.
- InitProducerId names the epoch of HELD, TAKEN or UNCERTAIN, which nobody else can name. That of RELEASED must not be
  named, because its transaction may be open, but it still says whose the id was.
- A transaction that the coordinator aborted by itself leaves the next epoch, which was given to nobody. Only the holder
  of the one before can name it, so the hold goes on with it.
- The coordinator raises the epoch by itself, too: in TV2 with each end of a transaction (KIP-890), in both protocols
  when it aborts a transaction because of its timeout.
- After the last epoch of a producer id comes another producer id, with epoch 0. While the markers of that last
  transaction are being written, the coordinator still shows the old one.
- An id that nobody used for `transactional.id.expiration.ms` is unknown: nobody has taken it recently.
- Epochs decide, where they can: other implementations of the coordinator name fewer states than Kafka's.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum

from spark_kafka_eos.errors import IllegalTransactionState
from spark_kafka_eos.kafka.producer import NOBODY, ProducerEpoch, ProducerIdentity
from spark_kafka_eos.kafka.protocol.facts import TransactionFacts

_EXHAUSTED = 2**15 - 2  # the last epoch of a producer id in which a transaction may begin


class HoldState(Enum):
    """What this process knows of its epoch."""

    NOBODY = "this process has no epoch, and has requested none"
    TAKING = "this process has no epoch, but may have taken the id"
    TAKEN = "the epoch is this process's, and what is committed is not known"
    HELD = "the epoch is this process's, and what is committed is known"
    UNCERTAIN = "a request was sent that ends the epoch, and the next one is not known"
    RELEASED = "the epoch was this process's, and must not be named"
    LOST = "another producer has the id"


class HoldEvent(Enum):
    """What this process is about to send, or has just learned. Those of `WITH_IDENTITY` come with an identity."""

    EPOCH_REQUESTED = "InitProducerId or EndTxn is about to be sent"
    INITIALISED = "InitProducerId was answered"
    LEDGER_READ = "what is committed was read under the new epoch, or known already"
    COMMITTED = "EndTxn(commit) was answered, or is described as applied"
    ABORTED = "EndTxn(abort) was answered"
    FENCE_ADDED = "whatever stragglers may reach is in the transaction of the last epoch"
    TIMED_OUT = "the coordinator has aborted the transaction by itself"
    LET_GO = "the transaction may be open, and a new producer must abort it"
    LOOKED = "a look has shown that this process may take the id"
    FENCED = "a newer producer exists"


_WITH_EPOCH = (HoldState.TAKEN, HoldState.HELD, HoldState.UNCERTAIN)

HOLD_TRANSITIONS: dict[tuple[HoldState, HoldEvent], HoldState] = {
    (HoldState.NOBODY, HoldEvent.EPOCH_REQUESTED): HoldState.TAKING,
    (HoldState.TAKING, HoldEvent.EPOCH_REQUESTED): HoldState.TAKING,
    (HoldState.RELEASED, HoldEvent.EPOCH_REQUESTED): HoldState.RELEASED,
    **{(state, HoldEvent.EPOCH_REQUESTED): HoldState.UNCERTAIN for state in _WITH_EPOCH},
    (HoldState.TAKING, HoldEvent.INITIALISED): HoldState.TAKEN,
    (HoldState.RELEASED, HoldEvent.INITIALISED): HoldState.TAKEN,
    (HoldState.UNCERTAIN, HoldEvent.INITIALISED): HoldState.TAKEN,
    (HoldState.TAKEN, HoldEvent.LEDGER_READ): HoldState.HELD,
    (HoldState.UNCERTAIN, HoldEvent.COMMITTED): HoldState.HELD,
    (HoldState.UNCERTAIN, HoldEvent.ABORTED): HoldState.UNCERTAIN,
    (HoldState.HELD, HoldEvent.FENCE_ADDED): HoldState.HELD,
    (HoldState.UNCERTAIN, HoldEvent.FENCE_ADDED): HoldState.UNCERTAIN,
    **{(state, HoldEvent.TIMED_OUT): state for state in _WITH_EPOCH},
    (HoldState.UNCERTAIN, HoldEvent.LET_GO): HoldState.RELEASED,
    (HoldState.NOBODY, HoldEvent.LOOKED): HoldState.NOBODY,
    (HoldState.HELD, HoldEvent.LOOKED): HoldState.NOBODY,
    (HoldState.TAKING, HoldEvent.LOOKED): HoldState.TAKING,
    (HoldState.TAKEN, HoldEvent.LOOKED): HoldState.TAKING,
    (HoldState.UNCERTAIN, HoldEvent.LOOKED): HoldState.TAKING,
    (HoldState.RELEASED, HoldEvent.LOOKED): HoldState.TAKING,
    **{(state, HoldEvent.FENCED): HoldState.LOST for state in HoldState},
}

WITH_IDENTITY = (HoldEvent.INITIALISED, HoldEvent.COMMITTED, HoldEvent.ABORTED, HoldEvent.FENCE_ADDED)


class Hold:
    """The hold on one transactional.id; only `apply` changes it."""

    __slots__ = ("_last", "_state")

    def __init__(self, *, in_doubt: bool = False) -> None:
        """`in_doubt`: earlier requests of this process may have raised the epoch."""
        self._state = HoldState.TAKING if in_doubt else HoldState.NOBODY
        self._last: ProducerIdentity | None = None

    @property
    def state(self) -> HoldState:
        return self._state

    @property
    def identity(self) -> ProducerIdentity | None:
        """The identity that InitProducerId may name, None if there is none."""
        return self._last if self._state in _WITH_EPOCH else None

    @property
    def last(self) -> ProducerIdentity | None:
        """The identity that this process had last, also if it was let go of or lost; None if it had none."""
        return self._last

    @property
    def in_doubt(self) -> bool:
        """Whether requests of this process may have raised the epoch, so that it may not know its own."""
        return self._state not in (HoldState.NOBODY, HoldState.HELD, HoldState.LOST)

    def apply(self, event: HoldEvent, identity: ProducerIdentity | None = None) -> HoldState:
        """Change to the next state and return it; `identity` comes with the events of `WITH_IDENTITY`. Raises
        IllegalTransactionState, and changes nothing, if this is illegal.
        """
        try:
            self._state = HOLD_TRANSITIONS[self._state, event]
        except KeyError:
            raise IllegalTransactionState(
                f"{event.name} ({event.value}) is illegal in state {self._state.name}: {self._state.value}"
            ) from None
        if event in WITH_IDENTITY:
            assert identity is not None
            self._last = identity
        elif event is HoldEvent.TIMED_OUT:
            assert self._last is not None
            self._last = after_abort(self._last)
        elif self._state in (HoldState.NOBODY, HoldState.TAKING):
            self._last = None
        return self._state

    def __repr__(self) -> str:
        return f"Hold({self._state.name}, {self._last})"


def owner_in(facts: TransactionFacts | None) -> ProducerEpoch:
    """The owner of a transactional.id; NOBODY if its coordinator does not know it."""
    return NOBODY if facts is None else facts.producer


def is_taken_from(identity: ProducerIdentity, now: TransactionFacts) -> bool:
    """Whether the id is no longer that of `identity`."""
    return now.producer != identity.producer


def after_abort(identity: ProducerIdentity) -> ProducerIdentity:
    """`identity` with the epoch that the coordinator leaves when it aborts the transaction of `identity` by itself."""
    return replace(identity, epoch=identity.epoch + 1)


def is_given_up(identity: ProducerIdentity, now: TransactionFacts, *, was_open: bool) -> bool:
    """Whether the coordinator aborted the transaction of `identity` by itself, and nobody has a new epoch since.

    In TV1, another owner that takes the id, and aborts a transaction of its own, leaves the same, if no transaction was
    open when it took the id. So there it counts only if the coordinator said that the one of `identity` `was_open`. In
    TV2, the other one's abort would have raised the epoch once more.
    """
    if not was_open and identity.transaction_version < 2:
        return False
    return may_be_given_up(identity, now)


def may_be_given_up(identity: ProducerIdentity, now: TransactionFacts) -> bool:
    """The same, or another owner has the next epoch and has aborted a transaction of its own (TV1)."""
    return now.state in ("PrepareAbort", "CompleteAbort") and not is_taken_from(after_abort(identity), now)


def is_shown_committed(identity: ProducerIdentity, now: TransactionFacts) -> bool:
    """Whether the coordinator shows that the transaction of `identity` was committed, with all markers written, and is
    the last thing that happened to the id. An abort may leave the same epoch, so only the state tells them apart.
    """
    return now.state == "CompleteCommit" and is_left_by_commit(
        identity.producer, now, transaction_version=identity.transaction_version
    )


def is_left_by_commit(last: ProducerEpoch, now: TransactionFacts, *, transaction_version: int | None) -> bool:
    """Whether nothing happened to the id since the transaction of `last`, which the ledger shows as committed.

    The epoch tells: TV2's commit leaves the next one, TV1's its own, and somebody who takes the id leaves a later one.
    `transaction_version` is the protocol of the commit, None if unknown. Then the next epoch may be a new owner's; the
    first epoch of another producer id may be in any protocol. There the state must say that there was a commit.

    Kafka's coordinator says "CompleteCommit" until somebody takes the id; kfake, which knows fewer states, "Empty".
    """
    if now.state not in ("Empty", "CompleteCommit"):
        return False
    committed = now.state == "CompleteCommit"
    raises_epoch = None if transaction_version is None else transaction_version >= 2
    if last.epoch >= _EXHAUSTED and now.epoch == 0 and raises_epoch is not False:
        return committed
    if now.producer_id != last.producer_id:
        return False
    if raises_epoch is None:
        return now.epoch == last.epoch or (committed and now.epoch == last.epoch + 1)
    return now.epoch == last.epoch + raises_epoch


def is_left_by_run(last: ProducerEpoch, now: TransactionFacts, *, transaction_version: int | None = None) -> bool:
    """Whether the id is as the run left it whose last commit was that of the transaction of `last`, in this protocol,
    None if unknown.

    In TV1, a late request of the run may have opened a transaction again under the same epoch, which nobody else has.
    Once that has timed out, it looks like a transaction of another driver, which took the id and aborted: so it counts
    as that.
    """
    opened_again = now.state == "Ongoing" and now.producer == last
    return opened_again or is_left_by_commit(last, now, transaction_version=transaction_version)


def is_left_by_take(before: ProducerEpoch, now: TransactionFacts, *, in_doubt: bool = True) -> bool:
    """Whether one InitProducerId, applied or not, explains what the id was `before` and is `now`.

    An open transaction takes two epochs: one to abort it, one for the new owner. A first one of somebody else looks the
    same as our own; both then know nothing of what the other may have written, which is nothing yet. The result is
    `in_doubt` if somebody has the new epoch: whoever that is.
    """
    if now.producer == before:
        return True
    if now.state == "Empty" and not in_doubt:
        return False
    if now.state not in ("Empty", "PrepareEpochFence", "PrepareAbort", "CompleteAbort"):
        return False
    if before == NOBODY:
        return now.epoch == 0
    if now.producer_id != before.producer_id:
        return before.epoch >= _EXHAUSTED - 1 and now.epoch == 0
    return now.epoch in (before.epoch + 1, before.epoch + 2)


def taken_since(then: ProducerEpoch, now: TransactionFacts) -> bool:
    """Whether somebody took the id since it was `then`'s, and is about to write, or writing."""
    return now.state in ("Empty", "Ongoing") and now.producer != then
