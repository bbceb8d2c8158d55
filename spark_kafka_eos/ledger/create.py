"""Creates the ledger topic, the only topic that this package creates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kafka.protocol.admin.topics import CreateTopicsRequest

from spark_kafka_eos.errors import AuthorizationFailed, BrokerError, KafkaEosError, UnknownTopic
from spark_kafka_eos.kafka.protocol.acl_hints import ResourceRef
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.codes import ErrorCode
from spark_kafka_eos.kafka.protocol.retry import retry

_REPLICAS = 3
# Small segments, because the cleaner would otherwise not clean the last gigabyte.
SETTINGS: Mapping[str, str] = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.1",
    "segment.bytes": str(16 << 20),
    "unclean.leader.election.enable": "false",
}


def refusal(cluster: Cluster, topic: str) -> KafkaEosError | None:
    """The error with which brokers would refuse to create it, None if they would not. Creates nothing.

    Raises BrokerUnreachable.
    """
    try:
        create_ledger(cluster, topic, validate_only=True)
    except (BrokerError, UnknownTopic) as error:
        return error
    return None


def create_ledger(cluster: Cluster, topic: str, *, validate_only: bool = False) -> None:
    """Create it unless it exists: compacted, with three replicas if there are three brokers.

    With `validate_only`, brokers check the request and create nothing. Raises AuthorizationFailed, UnknownTopic (an
    invalid name), BrokerError, BrokerUnreachable.
    """
    replicas = min(_REPLICAS, len(cluster.nodes()))
    settings = {**SETTINGS, "min.insync.replicas": str(max(1, replicas - 1))}
    try:
        _create(cluster, topic, replicas, settings, validate_only=validate_only)
    except AuthorizationFailed as error:
        config = " ".join(f"--config {name}={value}" for name, value in settings.items())
        action = (
            f"Create the ledger topic: kafka-topics.sh --create --topic {topic} --partitions 1 "
            f"--replication-factor {replicas} {config}; or grant Create on it to this principal, once."
        )
        raise error.replaced(action=action) from error


def _create(cluster: Cluster, name: str, replicas: int, config: Mapping[str, str], *, validate_only: bool) -> None:
    topic_class: Any = CreateTopicsRequest.CreatableTopic
    request = CreateTopicsRequest(
        topics=[
            topic_class(
                name=name,
                num_partitions=1,
                replication_factor=replicas,
                assignments=[],
                configs=[topic_class.CreatableTopicConfig(name=key, value=value) for key, value in config.items()],
            )
        ],
        timeout_ms=cluster.options.request_timeout_ms // 2,
        validate_only=validate_only,
    )

    def errors(response: Any) -> Iterable[tuple[ResourceRef, int]]:
        for topic in response.topics:
            there = topic.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
            note = "" if there or not topic.error_message else f" ({topic.error_message})"
            yield ResourceRef(topic=topic.name, note=note), 0 if there else topic.error_code

    retry(
        "CreateTopics",
        lambda: cluster.connection(cluster.controller()).call(request),
        errors,
        lambda _: None,
        budget=cluster.budget(),
        sleep=cluster.sleep,
    )
