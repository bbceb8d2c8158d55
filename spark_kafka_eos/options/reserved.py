"""Topics that only the ledger and the brokers write, by name: no record of a query may go there. Pure.

`protocol.cluster` also knows them by what the brokers say of a topic.
"""

from __future__ import annotations

LEDGER_TOPIC = "kafka-eos-ledger"  # the default of ledgerTopic

INTERNAL = "is one of Kafka's internal topics"
LEDGER = "is a ledger topic: only the ledger writes it"

# For where no broker is asked; a broker says which ones are internal.
_INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"})


def why_reserved(topic: str, ledger_topic: str = "") -> str | None:
    """Why no record may go to `topic`, None if it may. `ledger_topic` is the query's own, "" if it keeps no ledger.

    The default one is reserved also for queries with another or none: it has the entries of others.
    """
    if topic in _INTERNAL_TOPICS:
        return INTERNAL
    return LEDGER if topic in (ledger_topic, LEDGER_TOPIC) else None


OFFSETS_TOPIC, TRANSACTIONS_TOPIC = "__consumer_offsets", "__transaction_state"
