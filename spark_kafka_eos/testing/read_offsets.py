"""Reads the offsets of a topic and a group with librdkafka's admin client."""

from __future__ import annotations

from confluent_kafka import ConsumerGroupTopicPartitions, IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from spark_kafka_eos import model

_LEVEL = {"read_committed": IsolationLevel.READ_COMMITTED, "read_uncommitted": IsolationLevel.READ_UNCOMMITTED}


def ends(bootstrap: str, topic: str, isolation: model.IsolationLevel) -> dict[int, int]:
    """End of each partition: the last stable offset (read_committed) or the high watermark."""
    admin = _admin(bootstrap)
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    asked = {TopicPartition(topic, number): latest for number in admin.list_topics(topic).topics[topic].partitions}
    answers = admin.list_offsets(asked, isolation_level=_LEVEL[isolation])
    return {partition.partition: answer.result().offset for partition, answer in answers.items()}


def group_offsets(bootstrap: str, group: str, topic: str) -> dict[int, int]:
    """By partition, the offset that `group` committed for `topic`; partitions without one are left out."""
    admin = _admin(bootstrap)  # named, so that it lives until its answer is there
    answer = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result()
    return {tp.partition: tp.offset for tp in answer.topic_partitions if tp.topic == topic and tp.offset >= 0}


def _admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
