"""An append task's attempts and the judgement of their reports, without Spark and without a broker."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest

from spark_kafka_eos.appending.append_task import append_attempt, judge
from spark_kafka_eos.appending.barrier import AppendReport, StageAttempts
from spark_kafka_eos.appending.blocks import Block
from spark_kafka_eos.appending.report import EncodeReport, encoded
from spark_kafka_eos.errors import InvalidRow, TooManyDeadLetters, TransactionAborted
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.producer import Ack, ProducerIdentity
from spark_kafka_eos.kafka.protocol.recorder import connecting, recording
from spark_kafka_eos.options.values import Limit
from tests.model_kafka import KafkaModel

IDENTITY = ProducerIdentity(transactional_id="id", producer_id=1, epoch=0)
OUT = TopicPartition("out", 0)
ONCE = StageAttempts(current_attempt=0, completed_tasks=1, failed_tasks=0, num_tasks=1)


BLOCK = Block(partition=OUT, task=0, number=0, records=3, data=bytearray(b"block"))
SHUFFLED = (EncodeReport(task=0, blocks=(encoded(BLOCK),), milliseconds=2.0), BLOCK)


class Appended(list):
    """What `append` was given; `error` makes it fail."""

    def __init__(self, error=None):
        super().__init__()
        self.error = error
        self.partitions = []

    def append_all(self, cluster, identity, blocks, *, partitions, **options):
        self.partitions.append(set(partitions))
        self.extend(blocks)
        if self.error is not None:
            raise self.error
        return [Ack(partition=OUT, base_sequence=0, records=3, bytes=5, base_offset=0)]


def attempt(number, appended, shuffled=SHUFFLED):
    return append_attempt(
        KafkaModel(topics={"out": 1}).cluster(),
        IDENTITY,
        shuffled,
        stage_id=7,
        slot=0,
        attempt=number,
        batch_id=1,
        append=appended.append_all,
    )


def judged(*reports, stage=ONCE):
    return judge(reports, lambda stages: dict.fromkeys(stages, stage))


def test_a_first_attempt_appends_and_reports_what_was_acknowledged():
    appended = Appended()
    report = attempt(0, appended)
    assert len(appended) == 1
    counts = {OUT: 3}
    assert (report.slot, report.attempt, report.encoded, report.sent, report.acked) == (0, 0, counts, counts, counts)
    result = judged(report)
    assert (result.partitions, result.records, result.bytes, result.milliseconds["encode"]) == (1, 3, 5, 2.0)


def test_a_task_names_its_partitions_before_it_appends():
    other = Block(partition=TopicPartition("out", 4), task=1, number=0, records=1, data=bytearray(b"other"))
    reports = [EncodeReport(task=block.task, blocks=(encoded(block),)) for block in (BLOCK, other)]
    appended = Appended()
    attempt(0, appended, [*reports, EncodeReport(task=2), BLOCK, other])
    assert (appended.partitions, len(appended)) == ([{OUT, other.partition}], 2)


@pytest.mark.parametrize("error", [None, InvalidRow("too large")])
def test_the_requests_of_a_task_are_in_the_batchs_trace_also_if_it_failed(error):
    class Recorded(Appended):
        def append_all(self, *given, **options):
            with connecting("broker:9092"):
                return super().append_all(*given, **options)

    report = attempt(0, Recorded(error))
    with recording() as batch, contextlib.suppress(InvalidRow):
        judged(report)
    (request,) = batch.trace().requests
    assert (request.api, request.node, request.task) == ("connect", "broker:9092", 0)


def test_a_second_attempt_appends_nothing_and_the_batch_is_written_again():
    appended = Appended()
    report = attempt(1, appended)
    assert appended == []
    with pytest.raises(TransactionAborted, match="attempt 1"):
        judged(report)


def test_an_error_is_a_report_and_raised_by_the_driver():
    with pytest.raises(InvalidRow, match="too large"):
        judged(attempt(0, Appended(InvalidRow("too large"))))


def test_an_encode_error_stops_each_append_task_before_its_first_block():
    appended = Appended()
    failed = EncodeReport(task=0, error=InvalidRow("too large"))
    with pytest.raises(InvalidRow, match="too large"):
        judged(attempt(0, appended, (failed, BLOCK)))
    assert appended == []


def test_an_error_that_no_further_attempt_resolves_goes_first():
    void = AppendReport(stage_id=7, slot=0, attempt=0)
    reports = [
        replace(void, error=TransactionAborted("void")),
        replace(void, error=InvalidRow("too large")),
    ]
    with pytest.raises(InvalidRow):
        judged(*reports)


def test_a_stage_that_ran_twice_is_written_again():
    again = StageAttempts(current_attempt=1, completed_tasks=1, failed_tasks=0, num_tasks=1)
    with pytest.raises(TransactionAborted, match="attempted 2 times"):
        judged(attempt(0, Appended()), stage=again)


def test_dead_letters_are_counted_over_all_tasks_and_too_many_fail_the_batch():
    reports = [
        attempt(0, Appended(), [replace(SHUFFLED[0], dead_letters={"undecodable": 1}), BLOCK]),
        replace(attempt(0, Appended(), []), slot=1, dead_letters={"not-framed": 1, "undecodable": 1}, acked={}),
    ]
    two = replace(ONCE, completed_tasks=2, num_tasks=2)
    assert judge(reports, lambda stages: dict.fromkeys(stages, two)).dead_letters == {"undecodable": 2, "not-framed": 1}
    with pytest.raises(TooManyDeadLetters, match="3 of the batch's 3 records.*undecodable=2, not-framed=1"):
        judge(reports, lambda stages: dict.fromkeys(stages, two), Limit(count=2))
