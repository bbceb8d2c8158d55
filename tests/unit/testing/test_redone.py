"""What was written again is read from the very lines that the writer logs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from spark_kafka_eos.appending.report import Appended
from spark_kafka_eos.errors import TransactionAborted
from spark_kafka_eos.kafka.producer import ProducerIdentity
from spark_kafka_eos.ledger.entry import BatchCounts
from spark_kafka_eos.ledger.verdicts import Write
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.testing.redone import redone
from spark_kafka_eos.transaction.commit import commit_batch
from tests.batches import BY_EXECUTORS, reads


def test_a_log_without_aborted_attempts_has_no_batch_written_again() -> None:
    assert redone(["26/11/21 14:45:18 WARN TaskSetManager: Lost task 1.0", "batch 3: 20,000 rows in 0.61 s"]) == {}


def test_the_attempts_at_a_batch_are_kept_in_order_and_separate_from_other_batches() -> None:
    log = [
        "batch 1 of query a-b, attempt 1: append stage 7 was attempted 2 times",
        "batch 1 of query a-b, attempt 2: 1 tasks of append stage 9 failed",
        "batch 12 of query a-b, attempt 1: Spark lost encoded blocks",
    ]
    assert redone(log) == {
        1: ["append stage 7 was attempted 2 times", "1 tasks of append stage 9 failed"],
        12: ["Spark lost encoded blocks"],
    }


@dataclass(kw_only=True)
class Aborting:
    """A transaction that notes how often it was aborted."""

    aborted: int = 0
    milliseconds: dict[str, float] = field(default_factory=dict)

    @property
    def identity(self) -> ProducerIdentity:
        return ProducerIdentity(transactional_id="t", producer_id=1, epoch=self.aborted)

    def begin(self, batch: MicroBatch) -> Write:
        return Write(reason="follows")

    def append(self, write: Callable[[ProducerIdentity], Appended]) -> Appended:
        return write(self.identity)

    def commit(self, batch: MicroBatch, *, written: BatchCounts) -> None:
        """Nothing to commit."""

    def abort(self) -> None:
        self.aborted += 1

    def start_over(self) -> None:
        """Nothing to forget."""


def test_the_lines_are_those_that_settling_a_batch_logs(caplog: pytest.LogCaptureFixture) -> None:
    transaction = Aborting()

    def write(identity: ProducerIdentity) -> Appended:
        if transaction.aborted < 2:
            raise TransactionAborted(f"executor {transaction.aborted} died", action="Written again.")
        return Appended(partitions=1, records=1, bytes=1)

    batch = MicroBatch(query_id="f3-9a", batch_id=4, digest="", sources=reads(None, {}))
    with caplog.at_level(logging.INFO):
        commit_batch(transaction, batch, write, max_attempts=3, choice=BY_EXECUTORS)
    assert redone(caplog.messages) == {4: ["executor 0 died", "executor 1 died"]}
