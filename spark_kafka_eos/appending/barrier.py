"""The barrier before a commit: decides from the append tasks' reports whether the transaction may be committed. Pure.

EndTxn does not stop a straggler: until its marker reaches a partition, an append with the same epoch is still accepted
and becomes part of the transaction. And a second attempt's records may be acknowledged and dropped, because the broker
compares only sequence numbers. So a transaction is committed only if each append task ran exactly once: attempt 0 of
its task in attempt 0 of its stage (a task's attempt number restarts at 0 when its stage is retried), without failures,
with every record acknowledged and counts equal to those of the encode stage. Otherwise, or if anything is unknown, the
batch is retried under a new epoch.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from spark_kafka_eos.appending.report import Counts, total
from spark_kafka_eos.errors import KafkaEosError
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.trace import Trace
from spark_kafka_eos.kafka.words import first_three


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendReport:
    """What one append task reports to the driver. `slot` is its TaskContext's partition id, `attempt` its attempt
    number.

    The record counts are per partition: `encoded` by the encode tasks that reported to this task, `sent` by this task,
    `acked` by the brokers. `topic_ids` are those that the topics had before. `dead_letters` of those encode tasks are
    counted by cause. `milliseconds` has the time of the steps `encode` and `append`. `error` stopped the task. `trace`
    has its requests to brokers.
    """

    stage_id: int
    slot: int
    attempt: int
    encoded: Counts = field(default_factory=dict)
    sent: Counts = field(default_factory=dict)
    acked: Counts = field(default_factory=dict)
    topic_ids: Mapping[str, uuid.UUID] = field(default_factory=dict)
    bytes: int = 0
    dead_letters: Mapping[str, int] = field(default_factory=dict)
    milliseconds: Mapping[str, float] = field(default_factory=dict)
    error: KafkaEosError | None = None
    trace: Trace | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StageAttempts:
    """An append stage in Spark's status store after its job has finished."""

    current_attempt: int
    completed_tasks: int
    failed_tasks: int
    num_tasks: int


def obstacle(reports: Sequence[AppendReport], stages: Mapping[int, StageAttempts], expected: Counts) -> str | None:
    """Why the transaction must be aborted and the whole batch written again under a new epoch; None to commit it.

    `stages` are all append stages of this transaction, by id; `expected` are the encoded records.
    """
    return (
        _unknown_stage(reports, stages)
        or _stage_that_ran_again(stages)
        or _task_that_ran_again(reports)
        or _slots_not_once(reports, stages)
        or _partition_in_two_slots(reports)
        or _unacknowledged(reports)
        or _topic_of_two_ids(reports)
        or _wrong_counts(reports, expected)
    )


def _unknown_stage(reports: Sequence[AppendReport], stages: Mapping[int, StageAttempts]) -> str | None:
    unknown = {report.stage_id for report in reports} - stages.keys()
    return f"Spark has no status of append stage {min(unknown)}, so it may have run again" if unknown else None


def _stage_that_ran_again(stages: Mapping[int, StageAttempts]) -> str | None:
    for stage_id, stage in stages.items():
        if stage.current_attempt > 0:
            return f"append stage {stage_id} was attempted {stage.current_attempt + 1} times"
        if stage.failed_tasks > 0:
            return f"{stage.failed_tasks} tasks of append stage {stage_id} failed"
        if stage.completed_tasks != stage.num_tasks:
            # The status store lags behind or has lost events, so unconfirmed tasks may have run again.
            return (
                f"Spark confirms only {stage.completed_tasks} of the {stage.num_tasks} tasks of append stage {stage_id}"
            )
    return None


def _task_that_ran_again(reports: Sequence[AppendReport]) -> str | None:
    for report in reports:
        if report.attempt > 0:
            return f"append task {report.slot} of stage {report.stage_id} ran again (attempt {report.attempt})"
    return None


def _slots_not_once(reports: Sequence[AppendReport], stages: Mapping[int, StageAttempts]) -> str | None:
    for stage_id, stage in stages.items():
        seen = Counter(report.slot for report in reports if report.stage_id == stage_id)
        for slot in range(stage.num_tasks):
            if seen[slot] != 1:
                return f"append task {slot} of stage {stage_id} reported {seen[slot]} times instead of once"
        if len(seen) > stage.num_tasks:
            return f"{len(seen)} tasks of append stage {stage_id} reported, but it has {stage.num_tasks}"
    return None


def _partition_in_two_slots(reports: Sequence[AppendReport]) -> str | None:
    owners = Counter((report.stage_id, tp) for report in reports for tp in report.sent)
    for (stage_id, tp), owning in owners.items():
        if owning > 1:
            return f"{owning} tasks of append stage {stage_id} appended to {tp}"
    return None


def _unacknowledged(reports: Sequence[AppendReport]) -> str | None:
    for report in reports:
        if dict(report.sent) != dict(report.acked):
            task = f"append task {report.slot} of stage {report.stage_id}"
            places = sorted(report.sent.keys() | report.acked.keys())
            wrong = [tp for tp in places if report.sent.get(tp) != report.acked.get(tp)]
            return f"{task} sent {_show(report.sent, wrong)}, but {_show(report.acked, wrong)} was acknowledged"
    return None


def _topic_of_two_ids(reports: Sequence[AppendReport]) -> str | None:
    ids: dict[str, uuid.UUID] = {}
    for report in reports:
        for topic, topic_id in report.topic_ids.items():
            if ids.setdefault(topic, topic_id) != topic_id:
                return f"topic {topic} was created again: append tasks know it by two ids"
    return None


def _wrong_counts(reports: Sequence[AppendReport], expected: Counts) -> str | None:
    appended = total(report.acked for report in reports)
    for tp in sorted(appended.keys() | expected.keys()):
        if appended.get(tp, 0) != expected.get(tp, 0):
            return f"{appended.get(tp, 0)} records were appended to {tp}, but {expected.get(tp, 0)} were encoded"
    return None


def _show(counts: Counts, partitions: Iterable[TopicPartition]) -> str:
    return first_three(f"{tp}: {counts[tp]}" for tp in partitions if tp in counts) or "nothing"
