"""Appends blocks to the shared transaction, after stamping them with producer id, epoch and sequence number.

`BlockAppender` appends in the driver what encode tasks staged; with `appendMode=executors`, append tasks do
(`append_task`). Within a transaction, no two callers may append to the same partition: sequence numbers count per
partition, and the broker's duplicate detection does not compare content.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from spark_kafka_eos import failpoints
from spark_kafka_eos.appending import formats
from spark_kafka_eos.appending.report import Appended, EncodeReport, appended_topics, total
from spark_kafka_eos.appending.staging import Staging, TooLargeToTravel
from spark_kafka_eos.dead_letters import causes
from spark_kafka_eos.errors import CorruptRecordBatch, StagingLost, TransactionAborted
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.producer import Ack, ProducerIdentity
from spark_kafka_eos.kafka.producing.produce import Appender
from spark_kafka_eos.kafka.producing.sequences import next_sequence
from spark_kafka_eos.kafka.protocol import recorder
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.transactions import add_partitions
from spark_kafka_eos.kafka.wire.record_batch import stamp
from spark_kafka_eos.options import SinkOptions
from spark_kafka_eos.options.reserved import reserved_topics

_NO_SEQUENCE = -1
WRITTEN_AGAIN = "The whole batch is written again under a new producer epoch."


def append(
    cluster: Cluster,
    identity: ProducerIdentity,
    blocks: Iterable[tuple[TopicPartition, int, bytearray]],
    *,
    partitions: Iterable[TopicPartition] = (),
    added: Iterable[TopicPartition] = (),
    batch_id: int | None = None,
    ledger_topic: str = "",
) -> list[Ack]:
    """Append `(partition, records, block)` tuples under `identity`, with sequence numbers from 0, and wait for all
    acknowledgements.

    The blocks are stamped in place. On TV1, `partitions` that are known beforehand are added to the transaction in one
    request, others when they occur; those in `added` are part of it already. `ledger_topic` is the query's own: no
    block may go there. Raises what `Appender` raises, and StagingLost for a block that was damaged since it was
    encoded; nothing is visible before the commit.
    """
    failpoints.failpoint("before append", batch_id)
    version = identity.transaction_version
    there = set(added)

    def add(requested: set[TopicPartition]) -> None:
        appender.allow({tp.topic for tp in requested})
        if missing := requested - there:
            add_partitions(cluster, identity, missing)  # TV1; in TV2 the first Produce adds a partition (KIP-890)
            there.update(missing)

    sequences: dict[TopicPartition, int] = {}
    acks: list[Ack] = []
    producer = identity if identity.is_idempotent else None
    without = formats.without_producer_ids(cluster) if identity.requested else ()
    with Appender(
        cluster, producer, transaction_version=version, reserved=reserved_topics(ledger_topic), without=without
    ) as appender:
        try:
            add(set(partitions))
            failpoints.failpoint("partitions added", batch_id)
            for number, (partition, records, block) in enumerate(blocks):
                if number == 1 and failpoints.armed("half appended"):
                    acks += appender.flush()
                    failpoints.failpoint("half appended", batch_id)
                add({partition})
                sequence = sequences.get(partition, 0)
                _stamp(partition, block, identity, sequence if producer else _NO_SEQUENCE)
                appender.append(partition, block, records=records, base_sequence=sequence)
                sequences[partition] = next_sequence(sequence, records)
            acks += appender.flush()
        finally:
            formats.note(cluster, appender.refused)
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


def topic_ids(cluster: Cluster, partitions: Iterable[TopicPartition], *, anew: bool = False) -> dict[str, uuid.UUID]:
    """The ids of these partitions' topics, looked up `anew` or as last looked up. Ask before anything is appended: then
    the records are in the topics with these ids, or in later ones of the same names. Raises UnknownTopic.
    """
    topics = sorted({tp.topic for tp in partitions})
    if anew and topics:
        cluster.refresh(topics)
    cluster.look_up(topics)
    return {topic: cluster.topic(topic).id for topic in topics}


class BlockAppender:
    """Appends the blocks that encode tasks staged, in `appendMode=driver` and in the sink. A retry stamps the same
    blocks.

    Raises a row's error, TooManyDeadLetters or TooLargeToTravel before anything is appended.
    """

    def __init__(
        self,
        cluster: Cluster,
        options: SinkOptions,
        staging: Staging,
        reports: Callable[[], Sequence[EncodeReport]],
        batch_id: int,
        append: Callable[..., list[Ack]] = append,
    ) -> None:
        self._cluster = cluster
        self._append = append
        self._options = options
        self._staging = staging
        self._stage = reports
        self._reports: Sequence[EncodeReport] | None = None
        self._batch_id = batch_id

    def __call__(self, identity: ProducerIdentity) -> Appended:
        if self._reports is None:
            with recorder.phase("job"):
                self._reports = self._stage()
        reports = self._reports
        recorder.add_links(link for report in reports for link in report.links)
        for report in reports:
            if report.error is not None:
                raise report.error
        if any(report.too_large for report in reports):
            raise TooLargeToTravel
        expected = total(report.records for report in reports)
        dead = causes.counted(report.dead_letters for report in reports)
        causes.check_limit(dead, sum(expected.values()), self._options.max_dead_letters)
        started = time.perf_counter()
        with recorder.phase("append"):
            ids = topic_ids(self._cluster, expected)
            acks = self._append(
                self._cluster,
                identity,
                ((block.partition, block.records, data) for block, data in self._staging.read(reports)),
                partitions=expected,
                batch_id=self._batch_id,
                ledger_topic=self._options.ledger_topic,
            )
        if records_by_partition(acks) != expected:
            raise TransactionAborted(
                f"{sum(ack.records for ack in acks)} records were acknowledged, but {sum(expected.values())} were "
                "staged"
            )
        return Appended(
            partitions=len(expected),
            records=sum(expected.values()),
            bytes=sum(ack.bytes for ack in acks),
            topics=appended_topics(ids, expected),
            dead_letters=dead,
            milliseconds={
                "encode": max((report.milliseconds for report in reports), default=0.0),
                "append": (time.perf_counter() - started) * 1e3,
            },
        )
