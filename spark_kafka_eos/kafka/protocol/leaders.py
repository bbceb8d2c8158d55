"""Sends requests to the leaders of many partitions at once, and retries all until none has a retriable error."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.acl_hints import ResourceRef
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.connection import Connection
from spark_kafka_eos.kafka.protocol.error_codes import Reaction
from spark_kafka_eos.kafka.protocol.responses import incomplete
from spark_kafka_eos.kafka.protocol.retry import ahead, retry


def ask_leaders(
    cluster: Cluster,
    api: str,
    partitions: Collection[TopicPartition],
    request: Callable[[Mapping[str, list[TopicPartition]]], Any],
    *,
    names: tuple[str, str] = ("name", "partition_index"),
) -> dict[TopicPartition, Any]:
    """Each partition's part of the responses; `request` creates the request to a leader from its partitions, by topic.

    `names` are the response's fields for the topic's name and the partition's number.
    Raises UnknownTopic, AuthorizationFailed, BrokerError, BrokerUnreachable.
    """
    return ask_leaders_ahead(cluster, api, partitions, request, names=names)()


def ask_leaders_ahead(
    cluster: Cluster,
    api: str,
    partitions: Collection[TopicPartition],
    request: Callable[[Mapping[str, list[TopicPartition]]], Any],
    *,
    names: tuple[str, str] = ("name", "partition_index"),
) -> Callable[[], dict[TopicPartition, Any]]:
    """As `ask_leaders`, whose responses the function that is returned waits for; the requests are sent now."""
    named, numbered = names

    def send() -> list[tuple[Connection, int]]:
        by_leader: dict[int, dict[str, list[TopicPartition]]] = {}
        cluster.look_up(tp.topic for tp in partitions)
        for tp in sorted(partitions):
            by_leader.setdefault(cluster.leader(tp), {}).setdefault(tp.topic, []).append(tp)
        asked = []
        for node, members in by_leader.items():
            connection = cluster.connection(node)
            asked.append((connection, connection.send(request(members))))
        return asked

    budget = cluster.budget()
    sent = ahead(send) if partitions else list

    def attempt() -> list[tuple[TopicPartition, Any]]:
        responses = [connection.receive(correlation_id) for connection, correlation_id in sent()]
        return [
            (TopicPartition(getattr(topic, named), getattr(p, numbered)), p)
            for response in responses
            for topic in response.topics
            for p in topic.partitions
        ]

    def errors(answered: list[tuple[TopicPartition, Any]]) -> Iterable[tuple[ResourceRef, int]]:
        yield from ((ResourceRef(partition=tp), answer.error_code) for tp, answer in answered)
        if error := incomplete(api, partitions, (tp for tp, _ in answered)):
            raise error

    def recover(react: Reaction) -> None:
        if react is not Reaction.RETRY_SAME:
            cluster.refresh((tp.topic for tp in partitions), elsewhere=True)

    def wait() -> dict[TopicPartition, Any]:
        return dict(retry(api, attempt, errors, recover, budget=budget, sleep=cluster.sleep))

    return wait
