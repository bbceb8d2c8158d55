"""The errors of a process whose epoch is over: another producer has the transactional id, or the transaction timed out.
`owner` finds out which. Pure.
"""

from __future__ import annotations

from spark_kafka_eos.errors import Committed, KafkaEosError, ProducerFenced, TransactionAborted
from spark_kafka_eos.kafka.protocol.facts import TransactionFacts
from spark_kafka_eos.ledger.refusal import owner_command
from spark_kafka_eos.options import SinkOptions


def leave_it(options: SinkOptions) -> str:
    """What to do about another owner of the id."""
    return (
        "This driver has ended, and the other one goes on unharmed: do not start this one again while it runs, "
        "because a start takes the id from it. If two queries have this id, give each its own. "
        f"`{owner_command(options)}` shows the owner."
    )


def lost_before(options: SinkOptions) -> ProducerFenced:
    """Another producer has the id, as an earlier error said."""
    return ProducerFenced(
        f"a newer producer took over transactional.id {options.transactional_id!r}", action=leave_it(options)
    )


def taken_over(options: SinkOptions, how: str) -> ProducerFenced:
    """The ledger or a table shows that another driver has gone on."""
    return ProducerFenced(
        f"another driver has taken over transactional.id {options.transactional_id!r}{how}",
        committed="nothing",
        action=leave_it(options),
    )


def overtaken(
    options: SinkOptions, facts: TransactionFacts, why: str, *, may_have_timed_out: bool, committed: Committed
) -> ProducerFenced:
    """The coordinator shows another owner, or perhaps that it aborted the transaction after its timeout."""
    what = (
        f"transactional.id {options.transactional_id!r} now belongs to producer {facts.producer_id}, epoch "
        f"{facts.epoch}{why}"
    )
    action = leave_it(options)
    if may_have_timed_out:
        what = f"{what}: to another driver, or the coordinator aborted a transaction of this one after its timeout"
        action = f"If no other query uses this transactional.id, start the query again. {action}"
    return ProducerFenced(what, action=action).replaced(committed=committed)


def timed_out(options: SinkOptions, error: KafkaEosError) -> TransactionAborted:
    """`error` came because the coordinator aborted the transaction after its timeout."""
    return TransactionAborted(
        f"the coordinator aborted the transaction after kafka.transaction.timeout.ms "
        f"({options.transaction_timeout_ms}): {error.what}",
        action="The batch is written again; increase the timeout if this happens repeatedly.",
    )


def fenced(
    options: SinkOptions, error: ProducerFenced, committed: Committed, *, overdue_s: float | None
) -> ProducerFenced:
    """A broker answered that the epoch is over; `overdue_s` is how long the attempt took, if that is longer than the
    timeout. The coordinator also fences after a timeout, and the error does not distinguish the two.
    """
    action = leave_it(options)
    if overdue_s is not None:
        action = (
            f"This attempt took {overdue_s:.0f} s, longer than kafka.transaction.timeout.ms "
            f"({options.timeout_ms}): if no other query uses this transactional.id, restart the query, if "
            f"necessary with a longer timeout. {action}"
        )
    return error.replaced(action=action, committed=committed)
