"""Whether what a transaction appended is still there: topics that are deleted before it ends take their records along.

The coordinator does not notice. It writes its markers by name, into a topic that was created again, too, and calls the
transaction committed. So the ids that the topics had before anything was appended are compared with those that they
have before EndTxn, when all of it can be aborted, and after EndTxn, when what is gone can only be said.

As one broker knows it: for a moment, a broker may not know of a change. A broker without topic ids says nothing.
Source: KIP-516 (topic ids).
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping

from spark_kafka_eos.appending.report import AppendedTopic
from spark_kafka_eos.protocol.cluster import Cluster


def deleted(cluster: Cluster, ids: Mapping[str, uuid.UUID]) -> list[str]:
    """The topics that no longer have these ids: they were deleted since, whether they were created again or not.

    Raises AuthorizationFailed, BrokerError, BrokerUnreachable.
    """
    known = {name: topic_id for name, topic_id in ids.items() if topic_id.int}
    there = cluster.existing(known) if known else []
    return [name for name in sorted(known) if name not in there or cluster.topic(name).id != known[name]]


def lost_records(topics: Mapping[str, AppendedTopic], gone: Collection[str]) -> str:
    """What is lost with the topics that are `gone`, in words; "" if nothing."""
    return ", ".join(
        f"{topic.records:,} records in {topic.partitions} partitions of topic {name!r}"
        for name, topic in topics.items()
        if name in gone
    )
