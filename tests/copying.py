"""A query without Spark: copies a topic batch by batch through everything of this package that Spark would call.

`reading.records` reads the source, `appending.blocks` turns rows into blocks, two append tasks send them with
`appending.append`, the barrier judges the tasks, `transaction.commit` and the shared transaction do the rest. The
caller says what Spark would do by itself: tasks that die, stages that run again, drivers that are killed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np
import pyarrow as pa

from spark_kafka_eos.appending import barrier
from spark_kafka_eos.appending.append import append, records_by_partition, topic_ids
from spark_kafka_eos.appending.barrier import AppendReport, StageAttempts
from spark_kafka_eos.appending.blocks import Block, BlockEncoder, EncodeSettings, Target
from spark_kafka_eos.appending.report import Appended, CommitReport, appended_topics
from spark_kafka_eos.errors import TransactionAborted
from spark_kafka_eos.kafka.partitions import OffsetRange, TopicPartition
from spark_kafka_eos.kafka.producer import ProducerIdentity
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.ledger.decide import decide_micro_batch
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.options import SourceOptions, sink_options
from spark_kafka_eos.reading.records import read
from spark_kafka_eos.tools.verify.history import HistoryEntry
from spark_kafka_eos.tools.verify.provenance_bytes import pack
from spark_kafka_eos.transaction.commit import commit_batch
from spark_kafka_eos.transaction.shared import SharedTransaction
from tests.batches import BY_EXECUTORS, reads

SLOTS = 2  # append tasks, one for each output partition
_BLOCK_BYTES = 61 + 10 * 60  # ten records, by the encoder's estimate: so a second attempt's blocks are of the same size

_AS_IT_SHOULD_BE = StageAttempts(current_attempt=0, completed_tasks=SLOTS, failed_tasks=0, num_tasks=SLOTS)


@dataclass(slots=True)
class Stage:
    """An append stage as Spark runs it: what each slot's task appended, what Spark would say of it in the end."""

    append: Callable[[int, Sequence[Block]], AppendReport]
    blocks: dict[int, list[Block]]
    attempts: StageAttempts = _AS_IT_SHOULD_BE
    reports: list[AppendReport] = field(default_factory=list)

    def run(self, slots: Iterable[int] = range(SLOTS)) -> None:
        """Each of these slots' tasks, as it should be."""
        self.reports += [self.append(slot, self.blocks[slot]) for slot in slots]


def traced(rows: pa.RecordBatch, batch: int) -> pa.RecordBatch:
    """Values that say where they come from, in the place of the source's."""
    return with_values(rows, pack(rows["partition"].to_numpy(), rows["offset"].to_numpy(), batch))


def with_values(rows: pa.RecordBatch, values: pa.Array) -> pa.RecordBatch:
    """The rows with other values."""
    return rows.set_column(rows.schema.get_field_index("value"), "value", values)


class Copy:
    """One driver of the query that copies `source` to `target`; another one is what a restart makes.

    `origin` is the source's cluster, by default that of the target; `options` are additional options of the sink.
    `spark(stage)` runs an attempt's append stage, by default without faults. `write_as(rows, batch)` turns the source's
    rows into the written ones; by default each value contains its origin. `history` is what the driver did.
    """

    def __init__(
        self,
        bootstrap: str,
        cluster: Cluster,
        source: str,
        target: str,
        *,
        query: str = "query",
        origin: Cluster | None = None,
        options: Mapping[str, object] = MappingProxyType({}),
    ) -> None:
        usual = {"kafka.bootstrap.servers": bootstrap, "kafka.transactional.id": f"id-{target}", "topic": target}
        self.options = sink_options({**usual, **options})
        self.cluster, self.source, self.target, self.query = cluster, source, target, query
        self.origin = origin or cluster
        self.transaction = SharedTransaction(self.options, cluster, decide_micro_batch(self.options))
        self.history: list[HistoryEntry] = []
        self.spark: Callable[[Stage], None] = Stage.run
        self.write_as: Callable[[pa.RecordBatch, int], pa.RecordBatch] = traced

    def batch(self, number: int, start: int, end: int) -> MicroBatch:
        """The micro-batch that reads offsets `[start, end)` of each of the source's two partitions."""
        ranges = [{TopicPartition(self.source, number): at for number in (0, 1)} for at in (start, end)]
        digest = f"{start} to {end}"
        return MicroBatch(query_id=self.query, batch_id=number, digest=digest, sources=reads(ranges[0], ranges[1]))

    def run(self, number: int, start: int, end: int, *, max_attempts: int = 3) -> CommitReport:
        """The whole micro-batch, as `TransactionalWriter` does it."""
        batch = self.batch(number, start, end)
        report = commit_batch(
            self.transaction,
            batch,
            lambda identity: self.write(batch, identity),
            max_attempts=max_attempts,
            choice=BY_EXECUTORS,
        )
        if report.outcome == "committed":
            self.note(batch, report.producer_id, report.epoch)
        return report

    def note(self, batch: MicroBatch, producer_id: int, epoch: int) -> None:
        """Keep in mind that the batch was committed."""
        entry = HistoryEntry(batch_id=batch.batch_id, event="committed", start=batch.start, end=batch.end)
        self.history.append(replace(entry, producer_id=producer_id, epoch=epoch, query_id=batch.query_id))

    def write(self, batch: MicroBatch, identity: ProducerIdentity) -> Appended:
        """One attempt: read, encode, append, and ask the barrier."""
        blocks = sorted(self.blocks(batch), key=lambda block: (block.task, block.number))
        slots = {slot: [block for block in blocks if block.partition.partition == slot] for slot in range(SLOTS)}
        ids = topic_ids(self.cluster, [block.partition for block in blocks])
        stage = Stage(append=lambda slot, some: self.append(identity, slot, some), blocks=slots)
        self.spark(stage)
        expected: dict[TopicPartition, int] = {}
        for block in blocks:
            expected[block.partition] = expected.get(block.partition, 0) + block.records
        if reason := barrier.obstacle(stage.reports, {0: stage.attempts}, expected):
            raise TransactionAborted(reason)
        records = sum(expected.values())
        return Appended(partitions=len(expected), records=records, bytes=0, topics=appended_topics(ids, expected))

    def append(self, identity: ProducerIdentity, slot: int, blocks: Sequence[Block], attempt: int = 0) -> AppendReport:
        """One append task."""
        sent: dict[TopicPartition, int] = {}
        for block in blocks:
            sent[block.partition] = sent.get(block.partition, 0) + block.records
        acks = append(
            self.cluster, identity, [(block.partition, block.records, bytearray(block.data)) for block in blocks]
        )
        return AppendReport(stage_id=0, slot=slot, attempt=attempt, sent=sent, acked=records_by_partition(acks))

    def tasks(self, batch: MicroBatch) -> Iterator[tuple[Cluster, OffsetRange]]:
        """What each encode task reads, and on which cluster."""
        for tp, start in sorted((batch.start or {}).items()):
            yield self.origin, OffsetRange(partition=tp, start=start, end=batch.end[tp])

    def blocks(self, batch: MicroBatch) -> Iterator[Block]:
        """One encode task for each source partition; rows go to the output partitions in turn."""
        settings = EncodeSettings(
            topic=self.target, targets={self.target: Target(partitions=SLOTS)}, max_request_size=_BLOCK_BYTES
        )
        for task, (origin, wanted) in enumerate(self.tasks(batch)):
            builder = BlockEncoder(settings, task, lambda _: Target(partitions=SLOTS), lambda: int(time.time() * 1000))
            options = SourceOptions(client=origin.options, subscribe=(wanted.partition.topic,))
            for found in read([wanted], options, origin):
                rows = self.write_as(found, batch.batch_id)
                columns = {
                    "key": rows["key"],
                    "value": rows["value"],
                    "partition": pa.array((rows["offset"].to_numpy() % SLOTS).astype(np.int32)),
                }
                yield from builder.add(pa.RecordBatch.from_pydict(columns))
            yield from builder.finish()
