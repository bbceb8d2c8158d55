"""The supervisor of a long batch: what fails is started again, alone, until nothing helps."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence

import pytest

from spark_kafka_eos.errors import DataLoss, KafkaEosError, ProducerFenced, TransactionAborted
from spark_kafka_eos.kafka.producer import ProducerIdentity
from spark_kafka_eos.real_time.buckets import Bucket
from spark_kafka_eos.real_time.intervals import TaskReport
from spark_kafka_eos.real_time.supervisor import Supervisor

ABORTED = TransactionAborted("a broker was restarted")


class Tasks:
    """Buckets with an epoch for each start; tasks that end as `outcomes` of their first bucket say, one after the
    other. One that is to wait does so until it is cancelled.
    """

    def __init__(self, outcomes: dict[int, list[KafkaEosError | int | str]]) -> None:
        self.outcomes = outcomes
        self.epochs = dict.fromkeys(outcomes, 0)
        self.ran: list[tuple[int, ...]] = []
        self.cancelled = threading.Event()

    def start(self, numbers: Collection[int] | None) -> list[Bucket]:
        buckets = []
        for number in self.epochs if numbers is None else numbers:
            self.epochs[number] += 1
            identity = ProducerIdentity(transactional_id=f"x.{number}", producer_id=1, epoch=self.epochs[number])
            buckets.append(Bucket(number=number, identity=identity, ranges=()))
        return buckets

    def run(self, buckets: Sequence[Bucket], seconds: float) -> TaskReport:
        assert seconds >= 0
        self.ran.append(tuple(bucket.number for bucket in buckets))
        outcome = self.outcomes[buckets[0].number].pop(0)
        if outcome == "waits":
            assert self.cancelled.wait(10)
            return TaskReport(error=TransactionAborted("cancelled"))
        if isinstance(outcome, KafkaEosError):
            return TaskReport(error=outcome)
        assert isinstance(outcome, int)
        return TaskReport(transactions=outcome)

    def supervise(self, tasks: int = 9, *, skips_lost: bool = False) -> list[TaskReport]:
        return Supervisor(
            self.start,
            self.run,
            self.cancelled.set,
            tasks=tasks,
            seconds=60,
            most_failures=3,
            skips_lost=skips_lost,
        ).run()


def test_all_buckets_are_run_by_as_many_tasks_as_there_may_be() -> None:
    tasks = Tasks({0: [1], 1: [1], 2: [1]})
    assert sum(report.transactions for report in tasks.supervise(tasks=2)) == 2
    assert sorted(tasks.ran) == [(0, 2), (1,)]


def test_without_buckets_nothing_runs() -> None:
    assert Tasks({}).supervise() == []


def test_what_fails_is_started_again_with_new_epochs_and_the_others_are_not() -> None:
    tasks = Tasks({0: [ABORTED, ProducerFenced("another one"), 5], 1: [7]})
    reports = tasks.supervise()
    assert sorted(report.transactions for report in reports) == [0, 0, 5, 7]
    assert tasks.epochs == {0: 3, 1: 1}


def test_three_failures_in_a_row_end_the_batch_and_cancel_the_others() -> None:
    tasks = Tasks({0: [ABORTED] * 3, 1: ["waits"]})
    with pytest.raises(TransactionAborted, match="was restarted"):
        tasks.supervise()
    assert tasks.cancelled.is_set()


def test_a_task_that_begins_beside_the_error_that_ends_the_batch_is_cancelled_too() -> None:
    tasks = Tasks({0: [DataLoss("gone")], 1: ["waits"]})
    cancels = list[int]()

    def cancel() -> None:
        """What is begun only when the first one comes is cancelled by the second one."""
        cancels.append(1)
        if len(cancels) == 2:
            tasks.cancelled.set()

    supervisor = Supervisor(
        tasks.start,
        tasks.run,
        cancel,
        tasks=2,
        seconds=60,
        most_failures=3,
    )
    with pytest.raises(DataLoss):
        supervisor.run()
    assert tasks.cancelled.is_set()


def test_an_error_that_no_new_epoch_helps_ends_the_batch_at_once() -> None:
    tasks = Tasks({0: [DataLoss("gone"), 1], 1: ["waits"]})
    with pytest.raises(DataLoss):
        tasks.supervise()
    assert tasks.epochs[0] == 1


def test_lost_records_are_left_out_by_a_new_start_if_that_is_wanted() -> None:
    tasks = Tasks({0: [DataLoss("gone"), 4]})
    assert [report.transactions for report in tasks.supervise(skips_lost=True)] == [0, 4]


def test_a_driver_that_was_overtaken_ends_the_batch() -> None:
    tasks = Tasks({0: [ABORTED], 1: ["waits"]})
    begun = tasks.start

    def overtaken(numbers: Collection[int] | None) -> list[Bucket]:
        if numbers is not None:
            raise ProducerFenced("another driver has the query")
        return begun(numbers)

    tasks.start = overtaken  # type: ignore[method-assign]
    with pytest.raises(ProducerFenced, match="has the query"):
        tasks.supervise()
    assert tasks.cancelled.is_set()
