"""Micro-batches and what the ledger topic holds of them, as most tests need them."""

from __future__ import annotations

from collections.abc import Mapping

from spark_kafka_eos.appending.append import topic_ids
from spark_kafka_eos.appending.append_mode import Choice
from spark_kafka_eos.appending.report import AppendedTopic, appended_topics
from spark_kafka_eos.kafka.partitions import Offsets, TopicPartition
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.ledger.records import LedgerRecord
from spark_kafka_eos.micro_batch import SourceRange

BY_DRIVER, BY_EXECUTORS = Choice(mode="driver"), Choice(mode="executors")


def reads(start: Offsets | None, end: Offsets) -> tuple[SourceRange]:
    """Of a micro-batch with one source, which is Kafka: what it reads. `start` is None if it is unknown."""
    return (SourceRange(start=start, end=end),)


def appended_to(cluster: Cluster, *partitions: TopicPartition, records: int = 1) -> Mapping[str, AppendedTopic]:
    """What an attempt reports that appends so many records to each of these partitions after this call."""
    return appended_topics(topic_ids(cluster, partitions), dict.fromkeys(partitions, records))


def record(*, at_ms: int = 0) -> LedgerRecord:
    """A record of the ledger topic, written in a transaction."""
    return LedgerRecord(offset=0, timestamp_ms=at_ms, value=b"", producer_id=1, epoch=0)
