"""The ledger topics, which only the ledger writes: no record of a query may go there. Pure."""

from __future__ import annotations

from spark_kafka_eos.kafka.reserved_topics import ReservedTopics

LEDGER_TOPIC = "kafka-eos-ledger"  # the default of ledgerTopic

LEDGER = "is a ledger topic: only the ledger writes it"


def reserved_topics(ledger_topic: str = "") -> ReservedTopics:
    """What a query may not write whose ledger is in `ledger_topic`, "" if it keeps none.

    The default one is reserved also for queries with another or none: it has the entries of others.
    """
    return ReservedTopics({topic: LEDGER for topic in (ledger_topic, LEDGER_TOPIC) if topic}, by_id=ledger_topic)
