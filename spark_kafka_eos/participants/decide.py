"""Decides from the table's token and the ledger what becomes of a batch in both. Pure.

| the table holds | its Kafka transaction | the ledger's verdict on the batch | verdict |
|---|---|---|---|
| something that is not a token of this transactional.id | any | any | refuse |
| a batch that is not the ledger's, of another Kafka cluster | any | any | refuse |
| a batch after the ledger's | open | any | finish: EndTxn(commit) for that transaction, then look again |
| any token, or none | any | refuse, or a second call | as the ledger |
| no token, and a lower version than in the ledger's entry | any | write, skip | refuse: the table lost a commit |
| no token, and no lower version | any | write, skip | as the ledger: write both (the table joins), or skip both |
| a batch before the ledger's | any | write, skip | refuse: it lost one, or Kafka went on without it |
| the ledger's batch | any | write, skip | as the ledger: write both, or skip both |
| a batch after the ledger's | over (timeout, abort), or not known | skip | skip: a late driver's batch |
| a batch after the ledger's | not known | write | refuse |
| this batch | over | write | again: append to Kafka only, the table has the rows |
| this batch, with another range | over | write | refuse: this batch was planned again |
| another batch after the ledger's | over | write | refuse: only that batch's query can append it again |

"After" and "before" compare serials: the token has that of the ledger entry in its own transaction. Its transaction is
open as long as the coordinator calls it ongoing under the token's producer id and epoch. It is prepared then: whoever
has put the token in the table has appended everything before. The ledger's entry has the version of the table that took
part, so a table that was dropped is known from one that begins, and from one whose token an operator has removed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from spark_kafka_eos.kafka.protocol.facts import TransactionFacts, Unavailable
from spark_kafka_eos.ledger.entry import LedgerEntry, UnreadableEntry
from spark_kafka_eos.ledger.refusal import Refuse
from spark_kafka_eos.ledger.verdicts import Repeat, Skip, Verdict, Write
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.participants import refusal
from spark_kafka_eos.participants.token import Token, UnreadableToken

Prepared = Literal["open", "over", "not known"]
"""What the coordinator says of the token's transaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Again(Write):
    """The table has the rows of `token`, this batch, and its transaction is over: append the same rows to Kafka."""

    token: Token


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """The table has the rows of `token`, and its transaction is still open: commit it, and look again."""

    token: Token


def prepared(token: Token | None, facts: TransactionFacts | Unavailable | None) -> Prepared:
    """What the coordinator says of the token's transaction."""
    if isinstance(facts, Unavailable):
        return "not known"
    if facts is None or token is None or facts.state != "Ongoing":
        return "over"
    return "open" if facts.producer == token.identity.producer else "over"


def decide(
    version: int,
    token: Token | UnreadableToken | None,
    transaction: Prepared,
    entry: LedgerEntry | UnreadableEntry | None,
    batch: MicroBatch,
    verdict: Verdict,
    *,
    transactional_id: str,
    cluster: str,
) -> Verdict | Finish:
    """What to do with `batch`, on which the ledger's verdict is `verdict`, given its last `entry`, and what the table
    holds. `cluster` is the sink's, "" if it has no id.
    """
    if isinstance(token, UnreadableToken):
        return refusal.unreadable(token)
    if token is not None and token.identity.transactional_id != transactional_id:
        return refusal.other_id(token)
    if token is not None and _is_elsewhere(token, entry, cluster):
        return refusal.other_cluster(token, cluster, batch)
    ahead = token is not None and is_ahead(token, entry)
    if token is not None and ahead and transaction == "open":
        return Finish(token=token)
    if isinstance(verdict, Refuse | Repeat):
        return verdict
    if isinstance(entry, UnreadableEntry):  # by the operator's word the batch is written, or skipped, in Kafka
        return verdict if token is None else refusal.unknown_ledger(token)
    if token is None:
        return _joins(version, entry) or verdict
    if ahead:
        return verdict if isinstance(verdict, Skip) else _unsettled(token, transaction, batch)
    assert entry is not None, "without an entry, every token is ahead"
    return verdict if token.names(entry) else refusal.behind(token, entry)


def _is_elsewhere(token: Token, entry: LedgerEntry | UnreadableEntry | None, cluster: str) -> bool:
    """Whether the token's batch is in the table and in another cluster, whose ledger this `entry` is not."""
    if not (token.cluster and cluster) or token.cluster == cluster:
        return False
    return not (isinstance(entry, LedgerEntry) and token.names(entry))


def is_ahead(token: Token, entry: LedgerEntry | UnreadableEntry | None) -> bool:
    """Whether the token's batch was planned after the ledger's entry, which is not the same."""
    if isinstance(entry, UnreadableEntry):
        return False  # nothing is certain
    return entry is None or (token.serial > entry.serial and not token.names(entry))


def _joins(version: int, entry: LedgerEntry | None) -> Refuse | None:
    """The refusal of a table without a token, unless it is none that took part before."""
    if entry is None or entry.table is None or version >= entry.table:
        return None
    return refusal.lost(entry, version)


def _unsettled(token: Token, transaction: Prepared, batch: MicroBatch) -> Verdict | Finish:
    """The verdict if the ledger does not have the token's batch, and its transaction is not open."""
    if transaction == "not known":
        return refusal.unread(token)
    if token.names(batch):
        return Again(reason=f"the table has {token}, and its Kafka transaction is over", token=token)
    if (token.query_id, token.batch_id) == (batch.query_id, batch.batch_id):
        return refusal.planned_again(token, batch)
    return refusal.unfinished(token, batch)
