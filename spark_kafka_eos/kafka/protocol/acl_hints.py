"""Determines the ACL that is missing when a request is not authorized: its operation and resource. Pure.

Source: Kafka's documentation, "Authorization and ACLs", lists the operations that each request needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.codes import ErrorCode

_TOPIC: int = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_GROUP: int = ErrorCode.GROUP_AUTHORIZATION_FAILED
_CLUSTER: int = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
_TRANSACTIONAL_ID: int = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

# By API and code; all others need Describe.
_OPERATIONS: Mapping[tuple[str, int], str] = {
    ("AddPartitionsToTxn", _TOPIC): "Write",
    ("DescribeProducers", _TOPIC): "Read",
    ("Fetch", _TOPIC): "Read",
    ("OffsetCommit", _TOPIC): "Read",
    ("Produce", _TOPIC): "Write",
    ("TxnOffsetCommit", _TOPIC): "Read",
    ("AddOffsetsToTxn", _GROUP): "Read",
    ("OffsetCommit", _GROUP): "Read",
    ("TxnOffsetCommit", _GROUP): "Read",
    ("AddOffsetsToTxn", _TRANSACTIONAL_ID): "Write",
    ("AddPartitionsToTxn", _TRANSACTIONAL_ID): "Write",
    ("EndTxn", _TRANSACTIONAL_ID): "Write",
    ("FindCoordinator", _TRANSACTIONAL_ID): "Write",  # Describe would be enough, but writes follow
    ("InitProducerId", _TRANSACTIONAL_ID): "Write",
    ("Produce", _TRANSACTIONAL_ID): "Write",
    ("TxnOffsetCommit", _TRANSACTIONAL_ID): "Write",
}
_INCLUDED = {_TOPIC: "Read or Write", _GROUP: "Read", _TRANSACTIONAL_ID: "Write"}  # operations that imply Describe


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceRef:
    """What a broker's response refers to, for messages: the resources in the request, and a note on them.

    `topic` is for requests without a partition; `note` is appended to either.
    """

    partition: TopicPartition | None = None
    topic: str = ""
    group: str = ""
    transactional_id: str = ""
    note: str = ""

    def __str__(self) -> str:
        parts = (
            f"{self.partition}{self.note}" if self.partition else "",
            f"topic {self.topic!r}{self.note}" if self.topic else "",
            f"group {self.group!r}" if self.group else "",
            f"transactional id {self.transactional_id!r}" if self.transactional_id else "",
        )
        return ", ".join(filter(None, parts))


def missing(api: str, code: int, resource: ResourceRef | str) -> str:
    """The ACL to grant after `api` failed with one of the four authorization codes, as a sentence."""
    if code == _CLUSTER and api == "InitProducerId":
        return "Grant Write on any topic to this principal, or IdempotentWrite on the cluster."
    operation = _OPERATIONS.get((api, code), "ClusterAction" if code == _CLUSTER else "Describe")
    grant = f"Grant {operation} on {_resource(code, resource)} to this principal"
    if operation == "Describe":
        return f"{grant}; {_INCLUDED[code]} includes it."
    if (api, code) == ("TxnOffsetCommit", _TOPIC):
        return f"{grant}: committing a topic's offsets requires Read on it, also for the ledger topic."
    return f"{grant}."


def _resource(code: int, resource: ResourceRef | str) -> str:
    """The resource that the code refers to, by name if that is known."""
    kind = {_TOPIC: "topic", _GROUP: "group", _CLUSTER: "cluster", _TRANSACTIONAL_ID: "transactional id"}[code]
    name = ""
    if isinstance(resource, ResourceRef):
        topic = resource.partition.topic if resource.partition else resource.topic
        name = {_TOPIC: topic, _GROUP: resource.group, _TRANSACTIONAL_ID: resource.transactional_id}.get(code, "")
    return f"{kind} {name!r}" if name else f"the {kind}"
