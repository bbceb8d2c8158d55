"""Buckets: the source partitions that are committed together, under a transactional id of their own. Pure.

Their number is fixed when a query runs in real time for the first time, and kept in the ledger: a partition that went
to another bucket while the old one's last transaction is open would be read from before it.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from spark_kafka_eos.kafka.partitions import OffsetRange, TopicPartition
from spark_kafka_eos.kafka.producer import ProducerIdentity


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """Bucket `number`, with the identity under which it is committed, and what its partitions are read from on.
    `sequences` are those of the next record in each partition of the output, where an earlier task of the same epoch
    has written. `serial` is that of the ledger's entry that has started it.
    """

    number: int
    identity: ProducerIdentity
    ranges: tuple[OffsetRange, ...]
    sequences: Mapping[TopicPartition, int] = field(default_factory=dict)
    serial: int = 0


def bucket_of(partition: TopicPartition, count: int) -> int:
    """The bucket of a partition; those of a topic are spread evenly."""
    return (zlib.crc32(partition.topic.encode()) + partition.partition) % count


def by_bucket(partitions: Iterable[TopicPartition], count: int) -> Mapping[int, list[TopicPartition]]:
    """The partitions of each bucket that has any, sorted."""
    buckets: dict[int, list[TopicPartition]] = {}
    for tp in sorted(partitions):
        buckets.setdefault(bucket_of(tp, count), []).append(tp)
    return buckets


def by_task(numbers: Sequence[int], tasks: int) -> list[list[int]]:
    """These buckets, divided among at most so many tasks, each with at least one."""
    groups = [list(numbers[start::tasks]) for start in range(tasks)]
    return [group for group in groups if group]
