"""Where partitions begin and end, and which offset a time has: ListOffsets (KIP-79; KIP-98 for the last stable offset).

Asked over our own connections: librdkafka answers an unknown topic with a local error that does not tell it from an
unreachable broker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from kafka.protocol.consumer import ListOffsetsRequest

from spark_kafka_eos.broker.cluster import Cluster
from spark_kafka_eos.broker.responses import incomplete
from spark_kafka_eos.broker.retry import retry
from spark_kafka_eos.core.reactions import Reaction
from spark_kafka_eos.core.rights import Subject
from spark_kafka_eos.model import TopicPartition

Isolation = Literal["read_committed", "read_uncommitted"]

ISOLATION_LEVELS: Mapping[Isolation, int] = {"read_uncommitted": 0, "read_committed": 1}

_EARLIEST, _LATEST = -2, -1


def earliest(cluster: Cluster, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """The first offset each partition still holds."""
    return _list(cluster, dict.fromkeys(partitions, _EARLIEST), "read_uncommitted")


def latest(
    cluster: Cluster, partitions: Iterable[TopicPartition], *, isolation: Isolation = "read_committed"
) -> dict[TopicPartition, int]:
    """The end of each partition: the last stable offset when read_committed, else the high watermark."""
    return _list(cluster, dict.fromkeys(partitions, _LATEST), isolation)


def at_times(
    cluster: Cluster, milliseconds: Mapping[TopicPartition, int], *, isolation: Isolation = "read_committed"
) -> dict[TopicPartition, int | None]:
    """The first offset whose timestamp is at or after the given one (ms since the epoch); None when there is none."""
    found = _list(cluster, milliseconds, isolation)
    return {tp: offset if offset >= 0 else None for tp, offset in found.items()}


def _list(cluster: Cluster, wanted: Mapping[TopicPartition, int], isolation: Isolation) -> dict[TopicPartition, int]:
    """One request to each leader, all at once; all again until none has a retriable error.

    Raises UnknownTopic, AuthorizationFailed, BrokerError, BrokerUnreachable.
    """

    def attempt() -> list[tuple[TopicPartition, Any]]:
        by_leader: dict[int, list[TopicPartition]] = {}
        for tp in sorted(wanted):
            by_leader.setdefault(cluster.leader(tp), []).append(tp)
        asked = []
        for node, members in by_leader.items():
            connection = cluster.connection(node)
            asked.append((connection, connection.send(_request(cluster, members, wanted, isolation))))
        responses = [connection.receive(correlation_id) for connection, correlation_id in asked]
        return [
            (TopicPartition(topic.name, p.partition_index), p)
            for response in responses
            for topic in response.topics
            for p in topic.partitions
        ]

    def errors(found: list[tuple[TopicPartition, Any]]) -> Iterable[tuple[Subject, int]]:
        yield from ((Subject(partition=tp), answer.error_code) for tp, answer in found)
        if error := incomplete("ListOffsets", wanted, (tp for tp, _ in found)):
            raise error

    def recover(react: Reaction) -> None:
        if react is not Reaction.RETRY_SAME:
            cluster.refresh(tp.topic for tp in wanted)

    if not wanted:
        return {}
    found = retry("ListOffsets", attempt, errors, recover, budget=cluster.budget(), sleep=cluster.sleep)
    return {tp: int(answer.offset) for tp, answer in found}


def _request(
    cluster: Cluster, partitions: Iterable[TopicPartition], wanted: Mapping[TopicPartition, int], isolation: Isolation
) -> Any:
    topic_class: Any = ListOffsetsRequest.ListOffsetsTopic
    topics: dict[str, list[Any]] = {}
    for tp in partitions:
        topics.setdefault(tp.topic, []).append(
            topic_class.ListOffsetsPartition(
                partition_index=tp.partition, current_leader_epoch=cluster.leader_epoch(tp), timestamp=wanted[tp]
            )
        )
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=ISOLATION_LEVELS[isolation],
        topics=[topic_class(name=name, partitions=members) for name, members in topics.items()],
    )
