"""What the leaders of partitions remember of producer ids: DescribeProducers (KIP-664)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.facts import ProducerState
from spark_kafka_eos.kafka.protocol.leaders import ask_leaders_ahead


def producers(
    cluster: Cluster, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, tuple[ProducerState, ...]]:
    """The producer ids that the leader of each partition remembers. Needs Read on the topics.

    Raises UnknownTopic, AuthorizationFailed, BrokerError, BrokerUnreachable.
    """
    return producers_ahead(cluster, partitions)()


def producers_ahead(
    cluster: Cluster, partitions: Collection[TopicPartition]
) -> Callable[[], dict[TopicPartition, tuple[ProducerState, ...]]]:
    """As `producers`, whose responses the function that is returned waits for; the requests are sent now."""
    answers = ask_leaders_ahead(cluster, "DescribeProducers", partitions, _request)
    return lambda: {
        tp: tuple(_producer(tp, producer) for producer in answer.active_producers) for tp, answer in answers().items()
    }


def _request(members: Mapping[str, list[TopicPartition]]) -> Any:
    from kafka.protocol.admin.transactions import DescribeProducersRequest

    topic_class: Any = DescribeProducersRequest.TopicRequest
    return DescribeProducersRequest(
        topics=[topic_class(name=name, partition_indexes=[tp.partition for tp in tps]) for name, tps in members.items()]
    )


def _producer(partition: TopicPartition, producer: Any) -> ProducerState:
    started, last = producer.current_txn_start_offset, producer.last_timestamp
    return ProducerState(
        partition=partition,
        producer_id=producer.producer_id,
        epoch=producer.producer_epoch,
        coordinator_epoch=producer.coordinator_epoch,
        last_sequence=producer.last_sequence,
        last_timestamp_ms=last if last >= 0 else None,
        start_offset=started if started >= 0 else None,
    )
