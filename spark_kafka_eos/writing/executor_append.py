"""Append tasks of `appendMode=executors`: one attempt of a task, and the driver's decision about all of them.

A task never fails on purpose. Spark would retry it, and a second attempt must not append: requests of the first one may
still be in flight with the same sequence numbers, and the broker compares nothing else. So a task returns its error in
the report, a second attempt appends nothing and reports that, and the driver decides (core.barrier).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from spark_kafka_eos.broker.cluster import Cluster
from spark_kafka_eos.core import barrier
from spark_kafka_eos.core.barrier import AppendReport, Counts, StageAttempts
from spark_kafka_eos.errors import KafkaEosError, TransactionAborted
from spark_kafka_eos.model import Ack, ProducerIdentity, TopicPartition
from spark_kafka_eos.writing.append import append, records_by_partition
from spark_kafka_eos.writing.commit import Appended

_log = logging.getLogger(__name__)

WRITTEN_AGAIN = "The whole batch is written again under a new producer epoch."


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodeNote:
    """An encode task's message to the append tasks: its record counts, or the error that stopped it."""

    task: int
    records: dict[TopicPartition, int]
    error: KafkaEosError | None = None
    milliseconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendTaskReport:
    """An append task's report to the driver; `notes` are the encode tasks' notes that it received."""

    report: AppendReport
    notes: tuple[EncodeNote, ...]
    bytes: int = 0
    milliseconds: float = 0.0
    error: KafkaEosError | None = None


class Blocks(Protocol):
    """A task's `(partition, records, block)` tuples. Iterating fills `notes` and `sent` (records per partition), and
    raises the error of a note.
    """

    notes: list[EncodeNote]
    sent: dict[TopicPartition, int]

    def __iter__(self) -> Iterator[tuple[TopicPartition, int, bytearray]]: ...


def append_attempt(
    cluster: Cluster,
    identity: ProducerIdentity,
    blocks: Blocks,
    *,
    stage_id: int,
    slot: int,
    attempt: int,
    transaction_timeout_ms: int,
    batch_id: int,
    append: Callable[..., list[Ack]] = append,
) -> AppendTaskReport:
    """One attempt of the append task of `slot`. Only the first attempt appends its blocks."""

    def report(sent: Counts, acked: Counts) -> AppendReport:
        return AppendReport(stage_id=stage_id, slot=slot, attempt=attempt, sent=sent, acked=acked)

    if attempt > 0:
        return AppendTaskReport(report=report({}, {}), notes=())
    started = time.perf_counter()
    try:
        acks = append(cluster, identity, blocks, transaction_timeout_ms=transaction_timeout_ms, batch_id=batch_id)
    except KafkaEosError as error:
        # The report of a straggler is lost, so its executor's log is the only trace.
        _log.warning("append task %d of batch %d, epoch %d: %s", slot, batch_id, identity.epoch, error)
        return AppendTaskReport(report=report(blocks.sent, {}), notes=tuple(blocks.notes), error=error)
    return AppendTaskReport(
        report=report(blocks.sent, records_by_partition(acks)),
        notes=tuple(blocks.notes),
        bytes=sum(ack.bytes for ack in acks),
        milliseconds=(time.perf_counter() - started) * 1e3,
    )


def judge(reports: Sequence[AppendTaskReport], attempts: Callable[[set[int]], Mapping[int, StageAttempts]]) -> Appended:
    """The barrier: every record was appended exactly once, else raise TransactionAborted or the error of a task.

    `attempts` returns the attempts of the stages with these ids.
    """
    errors = [report.error for report in reports if report.error is not None]
    for error in sorted(errors, key=lambda error: isinstance(error, TransactionAborted)):
        raise error  # an error that no retry can fix comes first
    notes = [note for report in reports for note in report.notes]
    expected: dict[TopicPartition, int] = {}
    for note in notes:
        for partition, records in note.records.items():
            expected[partition] = expected.get(partition, 0) + records
    stages = attempts({report.report.stage_id for report in reports})
    match barrier.decide([report.report for report in reports], stages, expected):
        case barrier.Redo(reason=reason):
            raise TransactionAborted(reason, action=WRITTEN_AGAIN)
        case barrier.Commit(records=records):
            return Appended(
                partitions=len(expected),
                records=records,
                bytes=sum(report.bytes for report in reports),
                milliseconds={
                    "encode": max((note.milliseconds for note in notes), default=0.0),
                    "append": max((report.milliseconds for report in reports), default=0.0),
                },
            )
