"""Blocks enter the shared transaction: stamped with its identity and the partition's next sequence, then produced.

The driver calls this for staged blocks, append tasks for what the shuffle brought them. In one transaction no two
callers may append to the same partition: sequences count per partition, and the broker's duplicate detection does not
compare content.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from spark_kafka_eos import failpoints
from spark_kafka_eos.broker.cluster import Cluster
from spark_kafka_eos.broker.produce import Appender
from spark_kafka_eos.broker.transactions import TransactionCoordinator
from spark_kafka_eos.core.sequences import next_sequence
from spark_kafka_eos.model import Ack, ProducerIdentity, TopicPartition
from spark_kafka_eos.wire.record_batch import stamp


def append(
    cluster: Cluster,
    identity: ProducerIdentity,
    blocks: Iterable[tuple[TopicPartition, int, bytearray]],
    *,
    partitions: Iterable[TopicPartition] = (),
    transaction_timeout_ms: int = 60_000,
    batch_id: int | None = None,
) -> list[Ack]:
    """Append `(partition, records, block)`s under `identity`, whose sequences start at 0, and wait for every
    acknowledgement.

    The blocks are stamped in place. `partitions`, where they are known beforehand, are added to the transaction in one
    request on TV1; others are added as they come. Raises what `Appender` raises; nothing is visible before the commit.
    """
    failpoints.failpoint("before append", batch_id)
    transactional = bool(identity.transactional_id)  # else idempotent: nothing to add partitions to
    version = identity.transaction_version
    coordinator = TransactionCoordinator(
        cluster, identity.transactional_id, transaction_timeout_ms, transaction_version=version
    )
    added: set[TopicPartition] = set()

    def add(wanted: set[TopicPartition]) -> None:
        if transactional and (missing := wanted - added):
            coordinator.add_partitions(identity, missing)  # TV1; in TV2 the first Produce adds a partition (KIP-890)
            added.update(missing)

    add(set(partitions))
    failpoints.failpoint("partitions added", batch_id)
    sequences: dict[TopicPartition, int] = {}
    acks: list[Ack] = []
    with Appender(cluster, identity, transaction_version=version) as appender:
        for number, (partition, records, block) in enumerate(blocks):
            if number == 1 and failpoints.armed("half appended"):
                acks += appender.flush()
                failpoints.failpoint("half appended", batch_id)
            add({partition})
            sequence = sequences.get(partition, 0)
            stamp(
                block,
                producer_id=identity.producer_id,
                epoch=identity.epoch,
                base_sequence=sequence,
                transactional=transactional,
            )
            appender.append(partition, block, records=records, base_sequence=sequence)
            sequences[partition] = next_sequence(sequence, records)
        acks += appender.flush()
    return acks


def records_by_partition(acks: Iterable[Ack]) -> Mapping[TopicPartition, int]:
    """How many records were acknowledged, per partition."""
    counts: Counter[TopicPartition] = Counter()
    for ack in acks:
        counts[ack.partition] += ack.records
    return counts
