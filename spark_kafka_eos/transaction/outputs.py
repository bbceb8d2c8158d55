"""Whether what a batch appended is still there: topics that are deleted before it is done take their records along.

The coordinator does not notice. It writes its markers by name, into a topic that was created again, too, and calls the
transaction committed. So the ids that the topics had before anything was appended are compared with those that they
have before EndTxn, when all of it can be aborted, and after EndTxn, when what is gone can only be said. Without a
transaction they are compared once all is acknowledged, and the batch is written again.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from spark_kafka_eos.appending.report import AppendedTopic
from spark_kafka_eos.errors import TransactionAborted
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.topics import deleted


def require(cluster: Cluster, ids: Mapping[str, uuid.UUID]) -> None:
    """Raise TransactionAborted if a topic no longer has its id; AuthorizationFailed, BrokerError, BrokerUnreachable."""
    if gone := deleted(cluster, ids):
        raise TransactionAborted(
            f"topic {gone[0]!r} was deleted after this attempt had looked it up, and what it appended there is gone or "
            "may be",
            action="The batch is written again.",
        )


def lost_records(topics: Mapping[str, AppendedTopic]) -> str:
    """What is lost with these topics, in words; "" if nothing."""
    return ", ".join(
        f"{topic.records:,} records in {topic.partitions} partitions of topic {name!r}"
        for name, topic in topics.items()
    )
