"""Reads a topic's end offsets and a group's committed offsets with librdkafka."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from spark_kafka_eos.kafka import partitions

_LEVEL = {"read_committed": IsolationLevel.READ_COMMITTED, "read_uncommitted": IsolationLevel.READ_UNCOMMITTED}
_TIMEOUT_S = 60.0
_LOOK_EVERY_S = 0.05
# While a broker makes its topic of offsets or loads it, librdkafka's consumer raises some of these.
_STARTING = (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.COORDINATOR_LOAD_IN_PROGRESS)


def ends(bootstrap: str, topic: str, isolation_level: partitions.IsolationLevel) -> dict[int, int]:
    """The end of each partition: the last stable offset for read_committed, otherwise the high watermark."""
    admin = _admin(bootstrap)
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    partitions = admin.list_topics(topic).topics[topic].partitions
    request = {TopicPartition(topic, number): latest for number in partitions}
    futures = admin.list_offsets(request, isolation_level=_LEVEL[isolation_level])
    return {partition.partition: future.result().offset for partition, future in futures.items()}


def group_offsets(
    bootstrap: str, group: str, topic: str, isolation_level: partitions.IsolationLevel = "read_uncommitted"
) -> dict[int, int]:
    """The offset that `group` committed for each partition of `topic`; partitions without one are omitted.

    With read_committed it waits for the end of a transaction that is about to commit one; otherwise it ignores it.
    Uses a consumer, because librdkafka's admin client crashes while a broker loads its group coordinator.
    """
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "log_level": 2}
    consumer = Consumer(settings | {"isolation.level": isolation_level})
    try:
        partitions = consumer.list_topics(topic, _TIMEOUT_S).topics[topic].partitions
        committed = _committed(consumer, [TopicPartition(topic, number) for number in partitions])
    finally:
        consumer.close()
    return {tp.partition: tp.offset for tp in committed if tp.offset >= 0}


def _committed(consumer: Consumer, partitions: list[TopicPartition]) -> list[TopicPartition]:
    """Their committed offsets, asked for again while the group's coordinator starts."""
    deadline = time.monotonic() + _TIMEOUT_S
    while True:
        try:
            return consumer.committed(partitions, _TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() not in _STARTING or time.monotonic() > deadline:
                raise
        time.sleep(_LOOK_EVERY_S)


def _admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
