"""Reads a whole topic with librdkafka's consumer: an independent witness of what the connector wrote."""

from __future__ import annotations

import time
from collections.abc import Iterator

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from spark_kafka_eos.errors import BrokerUnreachable, UnknownTopic
from spark_kafka_eos.model import IsolationLevel


def read_topic(bootstrap: str, topic: str, isolation: IsolationLevel, *, timeout: float = 30.0) -> Iterator[Message]:
    """Every record of `topic` that a consumer of this isolation level sees, in order within a partition.

    Ends at each partition's end: the last stable offset for read_committed, else the high watermark. Raises
    BrokerUnreachable after `timeout` seconds without a record or an end, UnknownTopic, and confluent_kafka's own.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "log_level": 2,  # what matters is raised
            "group.id": f"{topic}-witness",
            "isolation.level": isolation,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,  # the default, half a second, is what it takes to learn of each end
            "fetch.queue.backoff.ms": 1,  # the default of a second stalls a consumer that reads as fast as it can
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout).topics[topic].partitions
        if not partitions:
            raise UnknownTopic(f"topic {topic!r} does not exist")
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        open_partitions = set(partitions)
        heard = time.monotonic()
        while open_partitions:
            # Returns when it has all 10,000 or the time is over: at a topic's end it is always the time.
            messages = consumer.consume(10_000, 0.02)
            if messages:
                heard = time.monotonic()
            elif time.monotonic() - heard > timeout:
                raise BrokerUnreachable(f"nothing read from {topic!r} for {timeout:g} s, before its end")
            for message in messages:
                error = message.error()
                if error is None:
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                    open_partitions.discard(message.partition())
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()
