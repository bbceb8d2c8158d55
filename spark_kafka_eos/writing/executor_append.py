"""The tasks that append in the `executors` mode: one attempt of a task, and the driver's judgement of them all.

A task never fails on purpose. Spark would run it again, and a second attempt must not append: what the first one sent
may still be on its way with the same sequences, and the broker compares nothing else. So an error is a report, a second
attempt appends nothing and says so, and the driver decides (core.barrier).
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
from spark_kafka_eos.model import ProducerIdentity, TopicPartition
from spark_kafka_eos.writing.append import append, records_by_partition
from spark_kafka_eos.writing.commit import Appended

_log = logging.getLogger(__name__)

WRITTEN_AGAIN = "The whole batch is written again under a new epoch."


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodeNote:
    """What an encode task says to the append tasks: how much it made, or why it stopped."""

    task: int
    records: dict[TopicPartition, int]
    error: KafkaEosError | None = None
    milliseconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendTaskReport:
    """What one append task tells the driver; `notes` are those of the encode tasks that reached it."""

    report: AppendReport
    notes: tuple[EncodeNote, ...]
    bytes: int = 0
    milliseconds: float = 0.0
    error: KafkaEosError | None = None


class Blocks(Protocol):
    """A task's `(partition, records, block)`s. `notes` and `sent` (records per partition) grow as they are read; a
    note with an error is raised."""

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
) -> AppendTaskReport:
    """One attempt of the append task of `slot`; the first one appends its blocks, any other nothing."""

    def report(sent: Counts, acked: Counts) -> AppendReport:
        return AppendReport(stage_id=stage_id, slot=slot, attempt=attempt, sent=sent, acked=acked)

    if attempt > 0:
        return AppendTaskReport(report=report({}, {}), notes=())
    started = time.perf_counter()
    try:
        acks = append(cluster, identity, blocks, transaction_timeout_ms=transaction_timeout_ms, batch_id=batch_id)
    except KafkaEosError as error:
        # Of a straggler, whose report reaches nobody, its executor's log is the only place that tells.
        _log.warning("append task %d of batch %d, epoch %d: %s", slot, batch_id, identity.epoch, error)
        return AppendTaskReport(report=report(blocks.sent, {}), notes=tuple(blocks.notes), error=error)
    return AppendTaskReport(
        report=report(blocks.sent, records_by_partition(acks)),
        notes=tuple(blocks.notes),
        bytes=sum(ack.bytes for ack in acks),
        milliseconds=(time.perf_counter() - started) * 1e3,
    )


def judge(reports: Sequence[AppendTaskReport], attempts: Callable[[set[int]], Mapping[int, StageAttempts]]) -> Appended:
    """The barrier: every record appended exactly once, or TransactionAborted, or the error a task reported.

    `attempts` tells how often the stages of these ids ran.
    """
    errors = [report.error for report in reports if report.error is not None]
    for error in sorted(errors, key=lambda error: isinstance(error, TransactionAborted)):
        raise error  # one that no further try mends comes first
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
