"""Fills topics through librdkafka, which shares no code with the package."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Sequence
from typing import Literal

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from spark_kafka_eos.testing.read_offsets import ends

KEEP = {"retention.ms": "-1"}

_transactional_ids = (f"filler-{number}" for number in itertools.count(1))


def produce(
    bootstrap: str,
    topic: str,
    values: Iterable[bytes | None],
    *,
    partition: int = 0,
    key: bytes | None = None,
    timestamp: int = 0,
    headers: Sequence[tuple[str, str | bytes | None]] = (),
    compression: str = "none",
) -> None:
    """Append `values` to one partition, outside of transactions. `timestamp` is in ms; 0 means now.

    Records with an old time are gone before the test is over, unless the topic has `KEEP`.
    """
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": compression, "linger.ms": 50})
    for value in values:
        producer.produce(topic, value, key, partition, timestamp=timestamp, headers=[*headers])
    assert producer.flush(30) == 0


def transact(
    bootstrap: str,
    topic: str,
    values: Iterable[bytes],
    end: Literal["commit", "abort", "leave open"],
    *,
    partition: int = 0,
    key: bytes | None = None,
    transactional_id: str | None = None,
) -> Producer:
    """Append `values` to one partition in one transaction. An open one stays so until the producer is garbage."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id or next(_transactional_ids),
            "transaction.timeout.ms": 600_000,  # what is left open stays open while tests look at it
            "linger.ms": 50,
        }
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, key, partition)
    assert producer.flush(30) == 0
    if end != "leave open":
        end_transaction(producer, bootstrap, topic, end, partition=partition)
    return producer


def end_transaction(
    producer: Producer, bootstrap: str, topic: str, end: Literal["commit", "abort"], *, partition: int = 0
) -> None:
    """End the open transaction and wait for its marker in that partition: a broker answers before it has written it."""
    before = ends(bootstrap, topic, "read_uncommitted")[partition]
    if end == "commit":
        producer.commit_transaction(30)
    else:
        producer.abort_transaction(30)
    deadline = time.monotonic() + 60
    while ends(bootstrap, topic, "read_uncommitted")[partition] == before:
        assert time.monotonic() < deadline, "the marker does not come"


def delete_records(bootstrap: str, topic: str, before: int) -> None:
    """Delete what partition 0 has before this offset, as retention does."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    [done] = admin.delete_records([TopicPartition(topic, 0, before)]).values()
    assert done.result(30).low_watermark == before
