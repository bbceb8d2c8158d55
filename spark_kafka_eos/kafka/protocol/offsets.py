"""Earliest and latest offsets, and offsets by timestamp: ListOffsets (KIP-79; KIP-98 for the last stable offset).

It uses our own connections: librdkafka returns a local error for an unknown topic, which cannot be distinguished from
an unreachable broker.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kafka.protocol.consumer.offsets import ListOffsetsRequest

from spark_kafka_eos.kafka.errors import BrokerUnreachable
from spark_kafka_eos.kafka.partitions import IsolationLevel, TopicPartition
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.leaders import ask_leaders

if TYPE_CHECKING:
    from spark_kafka_eos.kafka.protocol.facts import LogEnds


ISOLATION_LEVELS: Mapping[IsolationLevel, int] = {"read_uncommitted": 0, "read_committed": 1}

_EARLIEST, _LATEST, _MAX_TIMESTAMP = -2, -1, -3


def earliest(cluster: Cluster, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """The first available offset of each partition."""
    return _bounds(cluster, partitions, _EARLIEST, "read_uncommitted")


def latest(
    cluster: Cluster, partitions: Iterable[TopicPartition], *, isolation_level: IsolationLevel = "read_committed"
) -> dict[TopicPartition, int]:
    """The end of each partition: the last stable offset with read_committed, else the high watermark."""
    return _bounds(cluster, partitions, _LATEST, isolation_level)


def log_ends(cluster: Cluster, partitions: Collection[TopicPartition]) -> dict[TopicPartition, LogEnds]:
    """Last stable offset and high watermark of each partition; requested in this order, so that their lag is real."""
    from spark_kafka_eos.kafka.protocol.facts import LogEnds

    stable = latest(cluster, partitions)
    high = latest(cluster, partitions, isolation_level="read_uncommitted")
    return {tp: LogEnds(last_stable_offset=stable[tp], high_watermark=high[tp]) for tp in high}


def at_times(
    cluster: Cluster, milliseconds: Mapping[TopicPartition, int], *, isolation_level: IsolationLevel = "read_committed"
) -> dict[TopicPartition, int | None]:
    """The first offset whose timestamp is at or after the given one (ms since 1970); None if the brokers name none.

    It may be that of a marker of a transaction, or of an aborted record, with either isolation level, and None although
    there is one: `reading.by_time` has what a reader sees.
    """
    offsets = _list(cluster, milliseconds, isolation_level)
    return {tp: answer.offset if answer.offset >= 0 else None for tp, answer in offsets.items()}


def max_timestamps(cluster: Cluster, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """The largest timestamp (ms since 1970) of each partition's records and markers, -1 if there is none (KIP-734)."""
    answers = _list(cluster, dict.fromkeys(partitions, _MAX_TIMESTAMP), "read_uncommitted")
    return {tp: int(answer.timestamp) for tp, answer in answers.items()}


def _bounds(
    cluster: Cluster, partitions: Iterable[TopicPartition], which: int, isolation_level: IsolationLevel
) -> dict[TopicPartition, int]:
    answers = _list(cluster, dict.fromkeys(partitions, which), isolation_level)
    offsets = {tp: int(answer.offset) for tp, answer in answers.items()}
    if unknown := sorted(tp for tp, offset in offsets.items() if offset < 0):
        # An offset of -1 is "none" only for a time. Taken for a position, it would be one before all records.
        raise BrokerUnreachable(
            f"ListOffsets returned neither an offset nor an error for {', '.join(map(str, unknown[:5]))}",
            action="Try again. If it stays so, what answers for the brokers does not know where these partitions begin "
            "or end.",
        )
    return offsets


def _list(
    cluster: Cluster, timestamps: Mapping[TopicPartition, int], isolation_level: IsolationLevel
) -> dict[TopicPartition, Any]:
    """The answers. Raises UnknownTopic, AuthorizationFailed, BrokerError, BrokerUnreachable."""

    def request(members: Mapping[str, list[TopicPartition]]) -> Any:
        return _request(cluster, members, timestamps, isolation_level)

    return ask_leaders(cluster, "ListOffsets", timestamps, request)


def _request(
    cluster: Cluster,
    members: Mapping[str, list[TopicPartition]],
    timestamps: Mapping[TopicPartition, int],
    isolation_level: IsolationLevel,
) -> Any:
    topic_class: Any = ListOffsetsRequest.ListOffsetsTopic

    def asked(tp: TopicPartition) -> Any:
        return topic_class.ListOffsetsPartition(
            partition_index=tp.partition, current_leader_epoch=cluster.leader_epoch(tp), timestamp=timestamps[tp]
        )

    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=ISOLATION_LEVELS[isolation_level],
        topics=[topic_class(name=name, partitions=[asked(tp) for tp in tps]) for name, tps in members.items()],
    )
