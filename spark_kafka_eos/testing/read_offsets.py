"""How far a topic and a group are, as librdkafka sees them."""

from __future__ import annotations

from confluent_kafka import Consumer, IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from spark_kafka_eos import model

_LEVEL = {"read_committed": IsolationLevel.READ_COMMITTED, "read_uncommitted": IsolationLevel.READ_UNCOMMITTED}
_TIMEOUT_S = 60.0


def ends(bootstrap: str, topic: str, isolation: model.IsolationLevel) -> dict[int, int]:
    """End of each partition: the last stable offset (read_committed) or the high watermark."""
    admin = _admin(bootstrap)
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    asked = {TopicPartition(topic, number): latest for number in admin.list_topics(topic).topics[topic].partitions}
    answers = admin.list_offsets(asked, isolation_level=_LEVEL[isolation])
    return {partition.partition: answer.result().offset for partition, answer in answers.items()}


def group_offsets(bootstrap: str, group: str, topic: str) -> dict[int, int]:
    """By partition, the offset that `group` committed for `topic`; partitions without one are left out.

    A consumer asks, not the admin client: librdkafka's crashes while a broker still loads its group coordinator.
    """
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "log_level": 2}
    # Offsets of an open transaction do not count, and are not waited for.
    consumer = Consumer(settings | {"isolation.level": "read_uncommitted"})
    try:
        partitions = consumer.list_topics(topic, _TIMEOUT_S).topics[topic].partitions
        found = consumer.committed([TopicPartition(topic, number) for number in partitions], _TIMEOUT_S)
    finally:
        consumer.close()
    return {tp.partition: tp.offset for tp in found if tp.offset >= 0}


def _admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
