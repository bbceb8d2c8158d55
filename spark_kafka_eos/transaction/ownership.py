"""Whether another process took a transactional.id since its owner was last known, according to its coordinator.

Every InitProducerId raises the epoch, or finally gives another producer id. So it leaves a trace that lasts, and a
driver that comes back late sees it without sending an InitProducerId of its own, which would abort the transaction of
the live owner and fence it.

Not obvious:
- The coordinator raises the epoch by itself, too: in TV2 with each end of a transaction (KIP-890), in both protocols
  when it aborts a transaction because of its timeout.
- After the last epoch of a producer id comes another producer id, with epoch 0. While the markers of that last
  transaction are being written, the coordinator still shows the old one.
- An id that nobody used for `transactional.id.expiration.ms` is unknown: nobody has taken it recently.
- Epochs decide, where they can: other implementations of the coordinator name fewer states than Kafka's.
"""

from __future__ import annotations

from dataclasses import replace

from spark_kafka_eos.kafka.producer import NOBODY, ProducerEpoch, ProducerIdentity
from spark_kafka_eos.kafka.protocol.facts import TransactionFacts

_EXHAUSTED = 2**15 - 2  # the last epoch of a producer id in which a transaction may begin


def owner_in(facts: TransactionFacts | None) -> ProducerEpoch:
    """The owner of a transactional.id; NOBODY if its coordinator does not know it."""
    return NOBODY if facts is None else facts.producer


def taken_from(held: ProducerIdentity, now: TransactionFacts) -> bool:
    """Whether the id is no longer that of `held`."""
    return now.producer != held.producer


def after_abort(held: ProducerIdentity) -> ProducerIdentity:
    """`held` with the epoch that the coordinator leaves when it aborts the transaction of `held` by itself."""
    return replace(held, epoch=held.epoch + 1)


def is_given_up(held: ProducerIdentity, now: TransactionFacts, *, was_open: bool) -> bool:
    """Whether the coordinator aborted the transaction of `held` by itself, and nobody has a new epoch since.

    In TV1, another owner that takes the id, and aborts a transaction of its own, leaves the same, if no transaction was
    open when it took the id. So there it counts only if the coordinator said that the one of `held` `was_open`. In TV2,
    the other one's abort would have raised the epoch once more.
    """
    if not was_open and held.transaction_version < 2:
        return False
    return may_be_given_up(held, now)


def may_be_given_up(held: ProducerIdentity, now: TransactionFacts) -> bool:
    """The same, or another owner has the next epoch and has aborted a transaction of its own (TV1)."""
    return now.state in ("PrepareAbort", "CompleteAbort") and not taken_from(after_abort(held), now)


def is_shown_committed(held: ProducerIdentity, now: TransactionFacts) -> bool:
    """Whether the coordinator shows that the transaction of `held` was committed, with all markers written, and is the
    last thing that happened to the id. An abort may leave the same epoch, so only the state tells them apart.
    """
    return now.state == "CompleteCommit" and is_left_by_commit(
        held.producer, now, transaction_version=held.transaction_version
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
