"""Where the log of a leader epoch ends: OffsetForLeaderEpoch (KIP-101, KIP-320).

A leader knows with which epoch each part of its log was written. If the log that a reader saw in some epoch now ends
before the reader's position, an unclean leader election has truncated it, and the offsets after that are other records.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafka.protocol.consumer.offsets import OffsetForLeaderEpochRequest

from spark_kafka_eos.kafka.errors import BrokerError
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.codes import ErrorCode
from spark_kafka_eos.kafka.protocol.leaders import ask_leaders

_CONSUMER = -1  # a replica id: offsets beyond the high watermark do not count


def log_ends(cluster: Cluster, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """For each partition and leader epoch, the offset up to which the leader's log is of that epoch or an earlier one.

    A partition is left out if its leader does not know, as of a log in a format before Kafka 0.11. It is empty if the
    brokers do not offer the request. Raises UnknownTopic, AuthorizationFailed, BrokerError, BrokerUnreachable.
    """

    def request(members: Mapping[str, list[TopicPartition]]) -> Any:
        topic_class: Any = OffsetForLeaderEpochRequest.OffsetForLeaderTopic

        def asked(tp: TopicPartition) -> Any:
            return topic_class.OffsetForLeaderPartition(
                partition=tp.partition, current_leader_epoch=cluster.leader_epoch(tp), leader_epoch=epochs[tp]
            )

        topics = [topic_class(topic=name, partitions=[asked(tp) for tp in tps]) for name, tps in members.items()]
        return OffsetForLeaderEpochRequest(replica_id=_CONSUMER, topics=topics)

    try:
        answers = ask_leaders(cluster, "OffsetForLeaderEpoch", epochs, request, names=("topic", "partition"))
    except BrokerError as error:
        if error.code != ErrorCode.UNSUPPORTED_VERSION:
            raise
        return {}
    return {tp: int(answer.end_offset) for tp, answer in answers.items() if answer.end_offset >= 0}
