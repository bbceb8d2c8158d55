"""Creates the ledger topic, the only topic that this package creates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kafka.protocol.admin import CreateTopicsRequest

from spark_kafka_eos.broker.cluster import Cluster
from spark_kafka_eos.broker.retry import retry
from spark_kafka_eos.core.acl_hints import Subject

_TOPIC_ALREADY_EXISTS = 36


def create_topic(cluster: Cluster, name: str, *, partitions: int, replicas: int, config: Mapping[str, str]) -> None:
    """Create a topic unless it exists. Raises AuthorizationFailed, BrokerError, BrokerUnreachable."""
    topic_class: Any = CreateTopicsRequest.CreatableTopic
    request = CreateTopicsRequest(
        topics=[
            topic_class(
                name=name,
                num_partitions=partitions,
                replication_factor=replicas,
                assignments=[],
                configs=[topic_class.CreatableTopicConfig(name=key, value=value) for key, value in config.items()],
            )
        ],
        timeout_ms=cluster.options.request_timeout_ms // 2,
        validate_only=False,
    )

    def errors(response: Any) -> Iterable[tuple[Subject, int]]:
        for topic in response.topics:
            there = topic.error_code == _TOPIC_ALREADY_EXISTS
            note = "" if there or not topic.error_message else f" ({topic.error_message})"
            yield Subject(topic=topic.name, note=note), 0 if there else topic.error_code

    retry(
        "CreateTopics",
        lambda: cluster.connection(cluster.controller()).call(request),
        errors,
        lambda _: None,
        budget=cluster.budget(),
        sleep=cluster.sleep,
    )
