"""The append stage of the `executors` mode: each task appends the blocks of the partitions it owns to the shared
transaction.

The task never fails on purpose. Spark would run it again, and a second attempt must not append: what the first one sent
may still be on its way with the same sequences, and the broker compares nothing else. So an error is a report, a second
attempt appends nothing and says so, and the driver decides (core.barrier).
"""

from __future__ import annotations

import logging
import pickle
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from spark_kafka_eos.broker.cluster import shared_cluster
from spark_kafka_eos.core.barrier import AppendReport, Counts
from spark_kafka_eos.eos.appending import append, records_by_partition
from spark_kafka_eos.errors import KafkaEosError
from spark_kafka_eos.model import ProducerIdentity, TopicPartition
from spark_kafka_eos.options import SinkOptions
from spark_kafka_eos.spark.encoding import Batches, EncodeNote, report_row, task_context

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendTaskReport:
    """What one append task tells the driver; `notes` are those of the encode tasks that reached it."""

    report: AppendReport
    notes: tuple[EncodeNote, ...]
    bytes: int = 0
    milliseconds: float = 0.0
    error: KafkaEosError | None = None


def append_task(options: SinkOptions, identity: ProducerIdentity, batch_id: int) -> Callable[[Batches], Batches]:
    """For `mapInArrow(…, REPORT)` behind the shuffle: one row per task, a pickled AppendTaskReport."""

    def run(batches: Batches) -> Batches:
        yield report_row(_append(batches, options, identity, batch_id))

    return run


def _append(batches: Batches, options: SinkOptions, identity: ProducerIdentity, batch_id: int) -> AppendTaskReport:
    context = task_context()

    def report(sent: Counts, acked: Counts) -> AppendReport:
        return AppendReport(
            stage_id=context.stageId(),
            slot=context.partitionId(),
            attempt=context.attemptNumber(),
            sent=sent,
            acked=acked,
        )

    if context.attemptNumber() > 0:
        return AppendTaskReport(report=report({}, {}), notes=())
    blocks = _Blocks(batches)
    started = time.perf_counter()
    try:
        acks = append(
            shared_cluster(options.client),
            identity,
            blocks,
            transaction_timeout_ms=options.transaction_timeout_ms,
            batch_id=batch_id,
        )
    except KafkaEosError as error:
        # Of a straggler, whose report reaches nobody, its executor's log is the only place that tells.
        _log.warning("append task %d of batch %d, epoch %d: %s", context.partitionId(), batch_id, identity.epoch, error)
        return AppendTaskReport(report=report(blocks.sent, {}), notes=tuple(blocks.notes), error=error)
    return AppendTaskReport(
        report=report(blocks.sent, records_by_partition(acks)),
        notes=tuple(blocks.notes),
        bytes=sum(ack.bytes for ack in acks),
        milliseconds=(time.perf_counter() - started) * 1e3,
    )


class _Blocks:
    """The blocks of the shuffled rows, notes put aside; the notes come first, so an encode error stops the first
    append."""

    def __init__(self, batches: Batches) -> None:
        self._batches = batches
        self.notes: list[EncodeNote] = []
        self.sent: dict[TopicPartition, int] = {}

    def __iter__(self) -> Iterator[tuple[TopicPartition, int, bytearray]]:
        for batch in self._batches:
            for index in range(batch.num_rows):
                row = {name: batch.column(name)[index] for name in ("topic", "partition", "records", "block", "note")}
                if row["note"].is_valid:
                    note: EncodeNote = pickle.loads(row["note"].as_py())
                    self.notes.append(note)
                    if note.error is not None:
                        raise note.error
                    continue
                partition = TopicPartition(row["topic"].as_py(), row["partition"].as_py())
                records = row["records"].as_py()
                self.sent[partition] = self.sent.get(partition, 0) + records
                yield partition, records, bytearray(row["block"].as_buffer())
