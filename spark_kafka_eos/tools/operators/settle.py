"""Whether an operator may settle a batch that a table that takes part has and Kafka may not. A pure function.

| the table holds | its Kafka transaction, or another one under the id | settled by |
|---|---|---|
| a batch after the ledger's | is open | EndTxn(commit) |
| a batch after the ledger's | is over, or not known | nobody but the query, which appends the batch again |
| no token, but the ledger's entry has a version of the table | any | nobody: it may be another table |
| the ledger's batch, or nothing | none is open | nothing: both have the same, or the table joins |
| the ledger's batch, or nothing | one is open, and undecided | its driver, or a fence of it |
| anything else | any | nobody |

The first is what every start does (`participants.decide`), so it is right whoever runs. A fence is right for the data,
too: of the table first, then InitProducerId, as at a start. But it ends a driver that may be alive, so it needs
`fence_owner`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from spark_kafka_eos.kafka.protocol.facts import TransactionFacts, Unavailable
from spark_kafka_eos.kafka.words import duration
from spark_kafka_eos.ledger.entry import UnreadableEntry
from spark_kafka_eos.ledger.refusal import Refuse
from spark_kafka_eos.participants.decide import Again, Finish
from spark_kafka_eos.participants.diagnosis import TableDiagnosis

_SAME = "table and Kafka have the same batches"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """What to do, None for nothing, and why (a sentence without its full stop). `settled`: table and Kafka have the
    same batches, once `step` is done; if not, `action` says what to do instead.
    """

    step: Literal["commit", "fence"] | None
    settled: bool
    reason: str
    action: str = ""


def settle(diagnosis: TableDiagnosis, *, fence_owner: bool) -> Settlement:
    """What settles the table's batch. `fence_owner`: end a driver that may be alive, if the table does not have its
    batch.
    """
    standing, owner = diagnosis.standing, diagnosis.kafka.owner
    match standing:
        case Refuse():
            return _not(f"{standing.reason}. {standing.meaning}", standing.action)
        case Finish(token=token):
            return Settlement(step="commit", settled=True, reason=f"the table has {token}, and its transaction is open")
        case Again():
            return _not(
                f"{standing.reason}. Kafka lacks rows that the table has, and only the query can compute them again",
                "Start the query with its checkpoint: it appends the missing rows to Kafka.",
            )
    if isinstance(diagnosis.kafka.entry, UnreadableEntry):
        return _not(
            "the ledger cannot be read, so it is unknown whether Kafka has the table's batch",
            "See what is there: kafka-eos query ledger.",
        )
    if isinstance(owner, Unavailable):
        return _not(
            f"the brokers do not say whether a transaction is open ({owner.reason})",
            f"Allow {owner.grant}." if owner.grant else "",
        )
    entry = diagnosis.kafka.entry
    if diagnosis.token is None and entry is not None and entry.table is not None:
        return _not(
            f"the table has no token, and batch {entry.batch_id} of query {entry.query_id} was committed with version "
            f"{entry.table} of a table: this may be another one, which would join",
            "Name the query's table, with its key. If somebody has removed the token on purpose, start the query: it "
            "takes part again.",
        )
    if fence_owner:
        return Settlement(step="fence", settled=True, reason="the owner is fenced, even if it is running")
    if owner is None or owner.state != "Ongoing":
        joins = diagnosis.token is None and entry is not None
        same = "the table has no token: it joins with the query's next batch" if joins else _SAME
        return Settlement(step=None, settled=True, reason=same)
    return _not(
        f"a transaction of {owner.producer} is open{_for(owner)}, and the table does "
        "not have its batch: its driver may be alive, and about to commit it to the table",
        "Start the query again, or wait until it ends by itself. If you are sure that no driver runs, add "
        "--fence-owner: the batch is then in neither.",
    )


def _not(reason: str, action: str) -> Settlement:
    return Settlement(step=None, settled=False, reason=reason, action=action)


def _for(owner: TransactionFacts) -> str:
    return "" if owner.age_ms is None else f" for {duration(owner.age_ms)}"
