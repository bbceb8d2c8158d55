"""The append stage of `appendMode=executors`: each task appends the blocks of its partitions to the shared transaction
(writing.executor_append).
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator

from spark_kafka_eos.broker.cluster import shared_cluster
from spark_kafka_eos.model import ProducerIdentity, TopicPartition
from spark_kafka_eos.options import SinkOptions
from spark_kafka_eos.spark.encode_stage import Batches, report_row, task_context
from spark_kafka_eos.spark.worker import spare_the_collector
from spark_kafka_eos.writing.executor_append import AppendTaskReport, EncodeNote, append_attempt


def append_task(options: SinkOptions, identity: ProducerIdentity, batch_id: int) -> Callable[[Batches], Batches]:
    """For `mapInArrow(…, REPORT)` after the shuffle: one row per task, a pickled AppendTaskReport."""

    def run(batches: Batches) -> Batches:
        yield report_row(_append(batches, options, identity, batch_id))

    return run


def _append(batches: Batches, options: SinkOptions, identity: ProducerIdentity, batch_id: int) -> AppendTaskReport:
    spare_the_collector()
    context = task_context()
    return append_attempt(
        shared_cluster(options.client),
        identity,
        _Blocks(batches),
        stage_id=context.stageId(),
        slot=context.partitionId(),
        attempt=context.attemptNumber(),
        transaction_timeout_ms=options.transaction_timeout_ms,
        batch_id=batch_id,
    )


class _Blocks:
    """The blocks of the shuffled rows; `notes` collects the notes. Notes come first, so that an encode error prevents
    the first append.
    """

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
