"""Writes the marker of a transaction that no coordinator will end in a partition: WriteTxnMarkers (KIP-664)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kafka.protocol.producer.transaction import WriteTxnMarkersRequest

from spark_kafka_eos.kafka.logs import logger
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.acl_hints import ResourceRef
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.error_codes import Reaction
from spark_kafka_eos.kafka.protocol.facts import ProducerState
from spark_kafka_eos.kafka.protocol.responses import incomplete
from spark_kafka_eos.kafka.protocol.retry import retry

_log = logger(__name__)


def write_marker(cluster: Cluster, hanging: ProducerState, *, commit: bool) -> None:
    """Commit or abort what this producer has open in this partition, and log it. The broker refuses an outdated epoch,
    no more: be sure that no coordinator has the partition in a transaction, and of the outcome.

    Needs ClusterAction on the cluster, or Alter since Kafka 3.8 (KIP-1037). Raises ProducerFenced if the partition has
    a newer epoch, AuthorizationFailed, BrokerError, BrokerUnreachable, UnknownTopic.
    """
    tp = hanging.partition
    marker_class: Any = WriteTxnMarkersRequest.WritableTxnMarker
    marker = marker_class(
        producer_id=hanging.producer_id,
        producer_epoch=hanging.epoch,
        transaction_result=commit,
        topics=[marker_class.WritableTxnMarkerTopic(name=tp.topic, partition_indexes=[tp.partition])],
        # Of a producer whose first transaction hangs, the leader has seen no marker: any epoch of a coordinator passes.
        coordinator_epoch=max(0, hanging.coordinator_epoch),
    )
    request = WriteTxnMarkersRequest(markers=[marker])

    def errors(response: Any) -> Iterable[tuple[ResourceRef, int]]:
        answered = {
            TopicPartition(topic.name, partition.partition_index): partition.error_code
            for result in response.markers
            if result.producer_id == hanging.producer_id
            for topic in result.topics
            for partition in topic.partitions
        }
        yield from ((ResourceRef(partition=at), code) for at, code in answered.items())
        if error := incomplete("WriteTxnMarkers", [tp], answered):
            raise error

    def recover(react: Reaction) -> None:
        if react is not Reaction.RETRY_SAME:
            cluster.refresh([tp.topic], elsewhere=True)

    retry(
        "WriteTxnMarkers",
        lambda: cluster.connection(cluster.leader(tp)).call(request),
        errors,
        recover,
        budget=cluster.budget(),
        sleep=cluster.sleep,
    )
    _log.warning(
        "wrote %s marker to %s: producer %d, epoch %d, transaction from offset %s",
        *("a commit" if commit else "an abort", tp, hanging.producer_id, hanging.epoch, hanging.start_offset),
    )
