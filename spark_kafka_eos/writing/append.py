"""Appends blocks to the shared transaction, after stamping them with producer id, epoch and sequence number.

The driver calls this for staged blocks, append tasks for shuffled blocks. Within a transaction, no two callers may
append to the same partition: sequence numbers count per partition, and the broker's duplicate detection does not
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
from spark_kafka_eos.errors import CorruptRecordBatch, StagingLost
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
    """Append `(partition, records, block)` tuples under `identity`, with sequence numbers from 0, and wait for all
    acknowledgements.

    The blocks are stamped in place. On TV1, `partitions` that are known beforehand are added to the transaction in one
    request, others when they occur. Raises what `Appender` raises, and StagingLost for a block that was damaged
    since it was encoded; nothing is visible before the commit.
    """
    failpoints.failpoint("before append", batch_id)
    transactional = bool(identity.transactional_id)  # else idempotent: there is no transaction to add partitions to
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
            _stamp(partition, block, identity, sequence)
            appender.append(partition, block, records=records, base_sequence=sequence)
            sequences[partition] = next_sequence(sequence, records)
        acks += appender.flush()
    return acks


def _stamp(partition: TopicPartition, block: bytearray, identity: ProducerIdentity, sequence: int) -> None:
    try:
        stamp(
            block,
            producer_id=identity.producer_id,
            epoch=identity.epoch,
            base_sequence=sequence,
            transactional=bool(identity.transactional_id),
        )
    except CorruptRecordBatch as error:
        raise StagingLost(
            f"a block of {len(block)} bytes for {partition} was damaged between encoding and appending: {error.what}",
            action="Check the disks of stagingDir (appendMode=driver) or of Spark's shuffle (executors), and restart; "
            "the batch is encoded again.",
        ) from error


def records_by_partition(acks: Iterable[Ack]) -> Mapping[TopicPartition, int]:
    """The number of acknowledged records per partition."""
    counts: Counter[TopicPartition] = Counter()
    for ack in acks:
        counts[ack.partition] += ack.records
    return counts
