"""Reads a whole topic with librdkafka's consumer, to check independently what the connector wrote."""

from __future__ import annotations

import time
from collections.abc import Iterator

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from spark_kafka_eos.errors import BrokerUnreachable, UnknownTopic
from spark_kafka_eos.kafka.partitions import IsolationLevel


def read_topic(
    bootstrap: str, topic: str, isolation_level: IsolationLevel, *, timeout: float = 30.0
) -> Iterator[Message]:
    """Every record of `topic` that a consumer with this isolation level sees, in order within a partition.

    Ends at each partition's end: the last stable offset for read_committed, otherwise the high watermark. Raises
    UnknownTopic, BrokerUnreachable after `timeout` seconds without a record or an end, and confluent_kafka's errors.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "log_level": 2,  # relevant errors are raised
            "group.id": f"{topic}-witness",
            "isolation.level": isolation_level,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,  # default: 500 ms until the end of a partition is reported
            "fetch.queue.backoff.ms": 1,  # default: a full queue stalls the consumer for a second
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout).topics[topic].partitions
        if not partitions:
            raise UnknownTopic(f"topic {topic!r} does not exist")
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        open_partitions = set(partitions)
        last_message = time.monotonic()
        while open_partitions:
            # Returns after 10,000 messages or at the timeout; at the topic's end, always at the timeout.
            messages = consumer.consume(10_000, 0.02)
            if messages:
                last_message = time.monotonic()
            elif time.monotonic() - last_message > timeout:
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
