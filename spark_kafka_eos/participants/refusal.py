"""Why a batch is refused because of the table: what was found, what it means for the data, what to do. Pure.

One function for each finding; `participants.decide` decides which one applies.
"""

from __future__ import annotations

from spark_kafka_eos.ledger.entry import LedgerEntry
from spark_kafka_eos.ledger.refusal import Refuse
from spark_kafka_eos.ledger.remedies import MAKE_READABLE
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.participants.token import Token, UnreadableToken

ANEW = (
    "To go on without the missing rows, run one batch without `participant`, and then give the table a new key: it "
    "takes part from the next batch on."
)
_DELETE = "Or delete that batch's rows and the token (not the version) from the table"


def unreadable(token: UnreadableToken) -> Refuse:
    """There is content, but no token."""
    return Refuse(
        reason=f"the table's token cannot be used: {token.reason}",
        meaning="It is unknown which batch the table has",
        actions=(
            "Run this query with the release and the ledgerKey that wrote the token.",
            "Only this sink may write it.",
        ),
    )


def other_id(token: Token) -> Refuse:
    """Another sink has written the token."""
    return Refuse(
        reason=f"the table's last batch was written under transactional.id {token.identity.transactional_id!r}",
        meaning="Two queries use the same key of the table, or the transactional.id was changed; it is unknown what "
        "the table has of this query",
        actions=("Give each query a key of its own in the table, or restore the transactional.id.",),
    )


def other_cluster(token: Token, cluster: str, batch: MicroBatch) -> Refuse:
    """The table took part on another cluster."""
    again = (token.query_id, token.batch_id) == (batch.query_id, batch.batch_id)
    return Refuse(
        reason=f"the table has {token}, which was written together with the Kafka cluster {token.cluster}, but the "
        f"sink's is {cluster}",
        meaning="The sink was moved to another cluster, which does not show whether that one has the same batch",
        actions=(
            "Start the query with the brokers of that cluster.",
            "To go on with this cluster, let that one complete the batch first, and then give the table a new key: it "
            "takes part from the next batch on."
            + (" If that cluster is gone, delete the batch's rows before: they are written again." if again else ""),
        ),
    )


def unknown_ledger(token: Token) -> Refuse:
    """The ledger is unreadable, and the operator has resolved that for Kafka."""
    return Refuse(
        reason=f"the table has {token}, but the ledger cannot be read",
        meaning="It is unknown whether Kafka has the same batch",
        actions=(*MAKE_READABLE, ANEW),
    )


def lost(entry: LedgerEntry, version: int) -> Refuse:
    """The table has no token, and is older than the ledger's entry."""
    return Refuse(
        reason=f"batch {entry.batch_id} was committed with version {entry.table} of the table, but the table is at "
        f"version {version}",
        meaning="The table was dropped, restored from an older copy or replaced, or its key was changed: rows that "
        "Kafka has are missing there",
        actions=("Restore the table and its key.", ANEW),
    )


def behind(token: Token, entry: LedgerEntry) -> Refuse:
    """The table's batch is older than the ledger's."""
    return Refuse(
        reason=f"the table has {token}, but Kafka has batch {entry.batch_id} of query {entry.query_id}",
        meaning="The table was restored from an older copy, or batches were written without it: rows that Kafka has "
        "are missing there",
        actions=("Restore the table's newest copy.", ANEW),
    )


def unread(token: Token) -> Refuse:
    """The brokers do not say whether the transaction is open."""
    return Refuse(
        reason=f"the table has {token}, and the brokers do not say whether its Kafka transaction is open",
        meaning="Going on could abort it, and Kafka would lack rows that the table has",
        actions=("Allow DescribeTransactions (the right Describe on the transactional.id, which Write includes).",),
    )


def planned_again(token: Token, batch: MicroBatch) -> Refuse:
    """The token's batch, with other offsets, and Kafka has none of it."""
    return Refuse(
        reason=f"the table has {token}, but with other source offsets than in the checkpoint (digest {token.digest}, "
        f"now {batch.digest}), and its Kafka transaction is over",
        meaning="The checkpoint lost this batch's offsets or was restored from an older copy, and the batch was "
        "planned again; Kafka lacks the rows that the table has",
        actions=("Restore the newest checkpoint: the query then appends the missing rows to Kafka.", f"{_DELETE}."),
    )


def unfinished(token: Token, batch: MicroBatch) -> Refuse:
    """Another batch is in the table, and Kafka has none of it."""
    return Refuse(
        reason=f"the table has {token}, whose Kafka transaction is over, but this is batch {batch.batch_id} of query "
        f"{batch.query_id}",
        meaning="Kafka lacks rows that the table has, and only that query can compute them again",
        actions=("Start that query with its checkpoint: it appends the missing rows to Kafka.", f"{_DELETE}."),
    )


def other_rows(token: Token, records: int) -> Refuse:
    """The batch was computed again, and has another number of records."""
    return Refuse(
        reason=f"the table has {token}, whose {token.records} records have to be appended to Kafka again, but the "
        f"batch now has {records}",
        meaning="The batch does not give the same rows each time that it is computed (random numbers, the clock, "
        "another table, changed code), so Kafka and the table would have different ones",
        actions=("Run the code that wrote the batch, on the same data.", f"{_DELETE}: both are then written anew."),
    )
