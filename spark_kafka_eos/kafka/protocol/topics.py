"""Which topics and partitions can be asked now, and which topics are no longer those that they were."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from kafka.protocol.metadata import MetadataRequest

from spark_kafka_eos.kafka.errors import KafkaEosError, UnknownTopic
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.backoff import OUTDATED_LEADER_MS
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.codes import ErrorCode
from spark_kafka_eos.kafka.protocol.error_codes import name_of


def unavailable(cluster: Cluster, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, str]:
    """The partitions that no broker leads, as one broker knows it now, and why. It waits for nothing.

    Raises BrokerUnreachable if no broker can be reached.
    """
    requested = sorted(set(partitions))
    described = _described(cluster, {tp.topic for tp in requested})
    reasons = {tp: _unavailable(described.get(tp.topic), tp) for tp in requested}
    return {tp: why for tp, why in reasons.items() if why}


def unknown(cluster: Cluster, topics: Iterable[str]) -> dict[str, str]:
    """The topics that one broker does not describe now, and why. It waits for nothing.

    Raises BrokerUnreachable if no broker can be reached.
    """
    names = set(topics)
    described = _described(cluster, names)
    return {name: why for name in sorted(names) if (why := _unknown(described.get(name), name))}


def ids_now(cluster: Cluster, topics: Iterable[str]) -> dict[str, uuid.UUID]:
    """The ids of these topics, as one broker knows them now; without those that it does not describe.

    Raises BrokerUnreachable if no broker can be reached.
    """
    return {name: topic.topic_id for name, topic in _described(cluster, set(topics)).items() if not topic.error_code}


def by_leader(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> tuple[dict[int, list[TopicPartition]], dict[TopicPartition, str]]:
    """The partitions by the node id of their leader, sorted, and why the others have none that is known."""
    led: dict[int, list[TopicPartition]] = {}
    reasons: dict[TopicPartition, str] = {}
    for tp in sorted(set(partitions)):
        try:
            description = cluster.topic(tp.topic).partitions.get(tp.partition)
        except KafkaEosError as error:
            reasons[tp] = error.what
            continue
        if description is None or description.leader < 0:
            reasons[tp] = f"{tp} has no leader"
        else:
            led.setdefault(description.leader, []).append(tp)
    return led, reasons


def leaderless(cluster: Cluster, topic: str) -> dict[int, str]:
    """The brokers, by node id, without which partitions of this topic have no leader, as one broker knows it now, with
    these partitions in a reason: a broker that is down is in no list of brokers. None, if the topic does not exist or
    this principal may not describe it.

    Raises BrokerUnreachable if no broker can be reached.
    """
    described = _described(cluster, [topic]).get(topic)
    lost: dict[int, list[int]] = {}
    for partition in () if described is None else described.partitions:
        if partition.leader_id < 0:
            for node in partition.isr_nodes or partition.replica_nodes:
                lost.setdefault(node, []).append(partition.partition_index)
    return {
        node: f"without it, partition {', '.join(map(str, sorted(numbers)))} of {topic} has no leader"
        for node, numbers in lost.items()
    }


def undescribed(cluster: Cluster, topics: Iterable[str]) -> list[str]:
    """Those of these topics that this principal may not describe, whether they exist or not.

    Raises BrokerUnreachable if no broker can be reached.
    """
    described = _described(cluster, set(topics))
    return sorted(name for name, topic in described.items() if topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def deleted(cluster: Cluster, ids: Mapping[str, uuid.UUID]) -> list[str]:
    """The topics that no longer have these ids: they were deleted since, whether they were created again or not.

    A broker that was paused may still answer with the id of a topic that was deleted long ago, so another id counts
    once brokers have said so for some seconds, and none the expected one. For a moment, no broker may know of a change.
    A broker without topic ids says nothing. Source: KIP-516 (topic ids). Raises AuthorizationFailed, BrokerError,
    BrokerUnreachable.
    """
    with_ids = {name: topic_id for name, topic_id in ids.items() if topic_id.int}
    there = cluster.existing(with_ids) if with_ids else []
    others = [name for name in there if cluster.topic(name).id != with_ids[name]]
    budget = cluster.budget(OUTDATED_LEADER_MS)
    while others and (delay := budget.delay()) is not None:
        cluster.sleep(delay)
        with suppress(UnknownTopic):  # deleted just now
            cluster.refresh(others, elsewhere=True, patience_ms=0)
        others = [name for name in others if cluster.topic(name).id != with_ids[name]]
    return sorted({*others, *(with_ids.keys() - there)})


def _described(cluster: Cluster, names: Iterable[str]) -> dict[str, Any]:
    topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in sorted(names)]
    response = cluster.call_any(MetadataRequest(topics=topics, allow_auto_topic_creation=False), lambda _: ())
    return {topic.name: topic for topic in response.topics}


def _unknown(topic: Any, name: str) -> str:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error_code
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return f"topic {name} does not exist"
    if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return f"this principal lacks Describe on Topic {name}"
    return f"{name_of(code)} for topic {name}" if code else ""


def _unavailable(topic: Any, tp: TopicPartition) -> str:
    if why := _unknown(topic, tp.topic):
        return why
    partition = next((p for p in topic.partitions if p.partition_index == tp.partition), None)
    if partition is None:
        return f"topic {tp.topic} has no partition {tp.partition}"
    return "" if partition.leader_id >= 0 else f"{tp} has no leader"
