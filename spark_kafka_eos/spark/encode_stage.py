"""The encode stage: encodes the partitions of a DataFrame as blocks, which are staged for the driver or shuffled.

Runs in Spark's Python workers. An invalid row's error is returned to the driver as a value. If it were raised, Spark
would retry the task in vain and show a worker's traceback instead of the error.
"""

from __future__ import annotations

import pickle
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from zlib import crc32

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.pandas.types import from_arrow_schema

from spark_kafka_eos.broker.cluster import shared_cluster
from spark_kafka_eos.errors import KafkaEosError
from spark_kafka_eos.model import TopicPartition
from spark_kafka_eos.options import ClientOptions
from spark_kafka_eos.spark.rows import arrow_rows
from spark_kafka_eos.spark.worker import spare_the_collector
from spark_kafka_eos.writing.blocks import Block, BlockEncoder, Layout, Target
from spark_kafka_eos.writing.executor_append import EncodeNote
from spark_kafka_eos.writing.layout import target
from spark_kafka_eos.writing.staging import StageReport, Staging

Batches = Iterator[pa.RecordBatch]

_REPORT = pa.schema([("report", pa.binary())])

# A shuffled row is either a block or a note (a pickled EncodeNote) for the append task of `slot`.
_SHUFFLED = pa.schema(
    [
        ("slot", pa.int32()),
        ("task", pa.int32()),
        ("number", pa.int32()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("records", pa.int32()),
        ("block", pa.binary()),
        ("note", pa.binary()),
    ]
)

# For `mapInArrow`. As types, because the JVM would parse a string in each micro-batch.
REPORT = from_arrow_schema(_REPORT)
SHUFFLED = from_arrow_schema(_SHUFFLED)


def slot_of(partition: TopicPartition, slots: int) -> int:
    """The append task that owns `partition`; adjacent partitions have different slots."""
    return (crc32(partition.topic.encode()) + partition.partition) % slots


def stage_rows(batches: Batches, client: ClientOptions, layout: Layout, staging: Staging, folder: str) -> StageReport:
    """Encode one task's rows and stage the blocks. The report contains a KafkaEosError instead of raising it."""
    task = task_context().partitionId()
    started = time.perf_counter()
    try:
        report = staging.stage(folder, task, _encode(batches, client, layout, task))
    except KafkaEosError as error:
        return StageReport(task=task, path=None, blocks=(), error=error)
    return replace(report, milliseconds=(time.perf_counter() - started) * 1e3)


def staging_task(client: ClientOptions, layout: Layout, staging: Staging, folder: str) -> Callable[[Batches], Batches]:
    """For `mapInArrow(…, REPORT)`: one row per task, a pickled StageReport."""

    def run(batches: Batches) -> Batches:
        report = stage_rows(batches, client, layout, staging, folder)
        yield report_row(report)

    return run


def shuffling_task(client: ClientOptions, layout: Layout, slots: int) -> Callable[[Batches], Batches]:
    """For `mapInArrow(…, SHUFFLED)`: one row per block, then the task's notes."""

    def run(batches: Batches) -> Batches:
        task = task_context().partitionId()
        started = time.perf_counter()
        records: Counter[TopicPartition] = Counter()
        try:
            for block in _encode(batches, client, layout, task):
                records[block.partition] += block.records
                yield _block_row(block, slots)
        except KafkaEosError as error:
            note = EncodeNote(task=task, records={}, error=error)
            # Every append task must get the error, so that none appends.
            yield from (_note_row(note, slot) for slot in range(slots))
        else:
            elapsed = (time.perf_counter() - started) * 1e3
            yield _note_row(EncodeNote(task=task, records=dict(records), milliseconds=elapsed), task % slots)

    return run


def report_row(report: object) -> pa.RecordBatch:
    """The output of a task with schema REPORT: one row, the pickled report."""
    return pa.record_batch([pa.array([pickle.dumps(report)], pa.binary())], schema=_REPORT)


def task_context() -> TaskContext:
    """The running task's context. Only for use in a Spark task."""
    context = TaskContext.get()
    assert context is not None, "runs in a Spark task only"
    return context


def _encode(batches: Batches, client: ClientOptions, layout: Layout, task: int) -> Iterator[Block]:
    spare_the_collector()

    def lookup(topic: str) -> Target:
        return target(shared_cluster(client), topic)

    encoder = BlockEncoder(layout, task, lookup, lambda: time.time_ns() // 1_000_000)
    for rows in arrow_rows(batches):
        yield from encoder.add(rows)
    yield from encoder.finish()


def _block_row(block: Block, slots: int) -> pa.RecordBatch:
    topic, partition = block.partition
    row = (slot_of(block.partition, slots), block.task, block.number, topic, partition, block.records, block.data, None)
    return _row(*row)


def _note_row(note: EncodeNote, slot: int) -> pa.RecordBatch:
    return _row(slot, note.task, -1, None, None, None, None, pickle.dumps(note))


def _row(*values: object) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([value], field.type) for value, field in zip(values, _SHUFFLED, strict=True)], schema=_SHUFFLED
    )
