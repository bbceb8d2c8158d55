from dataclasses import replace

import pytest

from spark_kafka_eos.appending.barrier import AppendReport, StageAttempts, obstacle
from spark_kafka_eos.kafka.partitions import TopicPartition

A, B, C = TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("alerts", 0)
ONCE = StageAttempts(current_attempt=0, completed_tasks=2, failed_tasks=0, num_tasks=2)


def report(slot: int, counts: dict[TopicPartition, int], *, stage_id: int = 7, attempt: int = 0) -> AppendReport:
    return AppendReport(stage_id=stage_id, slot=slot, attempt=attempt, sent=counts, acked=counts)


FIRST, SECOND = report(0, {A: 10}), report(1, {B: 20, C: 3})
EXPECTED = {A: 10, B: 20, C: 3}


def redone(reports: list[AppendReport], stages: dict[int, StageAttempts], expected: dict[TopicPartition, int]) -> str:
    reason = obstacle(reports, stages, expected)
    assert reason is not None
    return reason


def test_every_task_once_and_every_record_acknowledged_commits() -> None:
    assert obstacle([SECOND, FIRST], {7: ONCE}, EXPECTED) is None


def test_a_batch_without_rows_commits() -> None:
    assert obstacle([], {}, {}) is None


def test_a_slot_without_records_reports_too() -> None:
    assert obstacle([report(0, {A: 10}), report(1, {})], {7: ONCE}, {A: 10}) is None


def test_several_frames_may_append_to_the_same_partition_in_stages_of_their_own() -> None:
    reports = [FIRST, SECOND, report(0, {A: 5}, stage_id=9)]
    stages = {7: ONCE, 9: replace(ONCE, completed_tasks=1, num_tasks=1)}
    assert obstacle(reports, stages, EXPECTED | {A: 15}) is None


def test_a_retried_task_is_redone_though_its_counts_add_up() -> None:
    assert "attempt 1" in redone([FIRST, replace(SECOND, attempt=1)], {7: ONCE}, EXPECTED)


def test_a_stage_attempted_again_is_redone_though_its_tasks_report_attempt_0() -> None:
    assert "attempted 2 times" in redone([FIRST, SECOND], {7: replace(ONCE, current_attempt=1)}, EXPECTED)


def test_a_failed_task_is_redone_though_all_slots_reported() -> None:
    assert "1 tasks" in redone([FIRST, SECOND], {7: replace(ONCE, failed_tasks=1)}, EXPECTED)


def test_a_stage_that_spark_does_not_confirm_as_complete_is_redone() -> None:
    assert "confirms only 1 of the 2" in redone([FIRST, SECOND], {7: replace(ONCE, completed_tasks=1)}, EXPECTED)


def test_a_speculative_copy_that_reported_too_is_redone() -> None:
    assert "reported 2 times" in redone([FIRST, SECOND, SECOND], {7: ONCE}, EXPECTED)


def test_a_slot_that_did_not_report_is_redone() -> None:
    assert "task 1 of stage 7 reported 0 times" in redone([FIRST], {7: ONCE}, {A: 10})


def test_a_slot_that_spark_does_not_know_is_redone() -> None:
    assert "but it has 2" in redone([FIRST, SECOND, report(2, {})], {7: ONCE}, EXPECTED)


def test_a_stage_without_a_status_is_redone() -> None:
    assert "no status of append stage 7" in redone([FIRST, SECOND], {}, EXPECTED)


def test_a_stage_without_a_task_report_is_redone() -> None:
    assert "stage 8" in redone([FIRST, SECOND], {7: ONCE, 8: ONCE}, EXPECTED)


def test_a_record_sent_but_not_acknowledged_is_redone() -> None:
    assert "but orders-0: 9 was acknowledged" in redone([replace(FIRST, acked={A: 9}), SECOND], {7: ONCE}, EXPECTED)


def test_of_thousands_of_partitions_the_reason_names_some_that_differ() -> None:
    sent = {TopicPartition("many", number): 1 for number in range(5_000)}
    report = replace(FIRST, sent=sent, acked={tp: 1 for tp in sent if tp.partition < 4_000})
    reason = redone([report, SECOND], {7: ONCE}, EXPECTED)
    assert "many-4000: 1" in reason and "many-0:" not in reason
    assert len(reason) < 200


def test_an_acknowledgement_for_what_was_not_sent_is_redone() -> None:
    redone([replace(FIRST, acked={A: 10, B: 1}), SECOND], {7: ONCE}, EXPECTED)


@pytest.mark.parametrize(
    "expected", [EXPECTED | {A: 11}, EXPECTED | {A: 9}, {A: 10, B: 20}, EXPECTED | {TopicPartition("x", 0): 1}]
)
def test_counts_that_differ_from_what_was_encoded_are_redone(expected: dict[TopicPartition, int]) -> None:
    assert "were encoded" in redone([FIRST, SECOND], {7: ONCE}, expected)


def test_records_lost_before_any_task_are_redone() -> None:
    assert "0 records were appended to orders-0" in redone([], {}, {A: 10})


def test_a_partition_appended_by_two_slots_is_redone_though_its_counts_add_up() -> None:
    assert "2 tasks" in redone([report(0, {A: 6}), report(1, {A: 4})], {7: ONCE}, {A: 10})
