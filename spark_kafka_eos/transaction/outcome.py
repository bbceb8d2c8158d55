"""How a transaction ended that a leader still has open, by what the ledger has of it. Pure."""

from __future__ import annotations

from typing import Literal

from spark_kafka_eos.kafka.producer import ProducerEpoch
from spark_kafka_eos.kafka.protocol.facts import ProducerState
from spark_kafka_eos.ledger.entry import LedgerEntry, UnreadableEntry


def outcome(
    producer: ProducerState, entry: LedgerEntry | UnreadableEntry | None, committed_under: ProducerEpoch
) -> Literal["committed", "aborted", "unknown"]:
    """How the transaction ended that a leader still has open, if `entry` is the last one that was committed, in the
    transaction of this producer.

    The epochs of a producer id rise, and each has one transaction. What is older than the last commit may have been
    one as well.
    """
    if entry is None:
        return "aborted"
    if isinstance(entry, UnreadableEntry) or committed_under.producer_id < 0:
        return "unknown"
    # Another producer id follows that of the last commit, if it is that of the next batch.
    if producer.producer_id != committed_under.producer_id:
        return "aborted"
    if producer.epoch == committed_under.epoch:
        return "committed"
    return "aborted" if producer.epoch > committed_under.epoch else "unknown"
