"""The barrier before a commit: may what the append tasks report become visible?

EndTxn does not stop a straggler: until its marker reaches a partition, an append with the same epoch is still accepted
and ends with the transaction. And a second attempt's records may be acknowledged and dropped, because the broker
compares only sequences. So a transaction is committed only if each append task ran exactly once: attempt 0 of its task
in attempt 0 of its stage (a task's attempt number starts again at 0 when its stage does), no failure seen, every record
acknowledged, and the counts equal to what the encode stage made. Anything else, and anything not known, is another try
under a new epoch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spark_kafka_eos.model import TopicPartition

Counts = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendReport:
    """What one append task did, in records; `slot` is its TaskContext's partition id, `attempt` its attempt number."""

    stage_id: int
    slot: int
    attempt: int
    sent: Counts
    acked: Counts


@dataclass(frozen=True, slots=True, kw_only=True)
class StageAttempts:
    """What Spark's status store says of an append stage once its job is done."""

    current_attempt: int
    completed_tasks: int
    failed_tasks: int
    num_tasks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """Every record was appended exactly once."""

    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Redo:
    """The transaction must be aborted and the whole batch written again under a new epoch."""

    reason: str


def decide(reports: Sequence[AppendReport], stages: Mapping[int, StageAttempts], expected: Counts) -> Commit | Redo:
    """Whether to commit: `stages` are all that append in this transaction, by id; `expected` the encoded records."""
    reason = (
        _unknown_stage(reports, stages)
        or _stage_that_ran_again(stages)
        or _task_that_ran_again(reports)
        or _slots_not_once(reports, stages)
        or _partition_in_two_slots(reports)
        or _unacknowledged(reports)
        or _wrong_counts(reports, expected)
    )
    return Redo(reason=reason) if reason else Commit(records=sum(expected.values()))


def _unknown_stage(reports: Sequence[AppendReport], stages: Mapping[int, StageAttempts]) -> str | None:
    unknown = {report.stage_id for report in reports} - stages.keys()
    return f"Spark tells nothing of append stage {min(unknown)}, so it may have run again" if unknown else None


def _stage_that_ran_again(stages: Mapping[int, StageAttempts]) -> str | None:
    for stage_id, stage in stages.items():
        if stage.current_attempt > 0:
            return f"append stage {stage_id} was attempted {stage.current_attempt + 1} times"
        if stage.failed_tasks > 0:
            return f"{stage.failed_tasks} tasks of append stage {stage_id} failed"
        if stage.completed_tasks != stage.num_tasks:
            # The status store lags or lost events: what it does not confirm may have happened otherwise.
            return f"Spark confirms {stage.completed_tasks} of the {stage.num_tasks} tasks of append stage {stage_id}"
    return None


def _task_that_ran_again(reports: Sequence[AppendReport]) -> str | None:
    for report in reports:
        if report.attempt > 0:
            return f"append task {report.slot} of stage {report.stage_id} reported from attempt {report.attempt}"
    return None


def _slots_not_once(reports: Sequence[AppendReport], stages: Mapping[int, StageAttempts]) -> str | None:
    for stage_id, stage in stages.items():
        seen = Counter(report.slot for report in reports if report.stage_id == stage_id)
        for slot in range(stage.num_tasks):
            if seen[slot] != 1:
                return f"append task {slot} of stage {stage_id} reported {seen[slot]} times, not once"
        if len(seen) > stage.num_tasks:
            return f"{len(seen)} tasks of append stage {stage_id} reported, there are {stage.num_tasks}"
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
            return f"{task} sent {_show(report.sent)}, acknowledged {_show(report.acked)}"
    return None


def _wrong_counts(reports: Sequence[AppendReport], expected: Counts) -> str | None:
    appended: Counter[TopicPartition] = Counter()
    for report in reports:
        appended.update(report.acked)
    for tp in sorted(appended.keys() | expected.keys()):
        if appended[tp] != expected.get(tp, 0):
            return f"{appended[tp]} records were appended to {tp}, {expected.get(tp, 0)} were encoded for it"
    return None


def _show(counts: Counts) -> str:
    return ", ".join(f"{tp}: {counts[tp]}" for tp in sorted(counts)) or "nothing"
