"""Where the next micro-batch starts, by the calls of Spark 4.0 and 4.1."""

from __future__ import annotations

import pytest

from spark_kafka_eos.errors import ConfigurationError
from spark_kafka_eos.kafka.partitions import offsets_from_json
from spark_kafka_eos.reading.next_start import NextMicroBatch
from spark_kafka_eos.source_offset import UNRESOLVED, SourceOffset
from tests.unit.reading.brokers import OPEN

A, B, C = ({"t": {"0": number, "1": number}} for number in (10, 20, 30))
BEGIN = offsets_from_json({"t": {"0": 0, "1": 0}})
FIRST = SourceOffset(offsets=offsets_from_json(A), start=BEGIN).to_json()  # the end of a new query's batch 0


def test_what_asks_first_for_an_end_is_a_new_query():
    assert NextMicroBatch().start == UNRESOLVED


def test_an_end_that_was_planned_is_the_next_start_whether_its_rows_are_read_or_not():
    following = NextMicroBatch()
    following.planned(FIRST)
    assert following.start == FIRST
    following.runs(OPEN, FIRST)
    following.planned(B)
    following.planned(C)
    assert following.start == C


def test_after_a_restart_the_checkpoints_last_end_is_the_next_start():
    following = NextMicroBatch()
    following.runs(FIRST, FIRST)
    assert following.start == FIRST


def test_so_it_is_if_that_batch_runs_again():
    following = NextMicroBatch()
    following.runs(B, B)
    following.runs(FIRST, B)
    assert following.start == B


def test_a_first_batch_that_runs_again_is_no_contradiction():
    following = NextMicroBatch()
    following.runs(FIRST, FIRST)
    following.runs(OPEN, FIRST)
    assert following.start == FIRST


def test_an_end_may_go_back_where_a_topic_was_created_again():
    following = NextMicroBatch()
    following.runs(C, C)
    following.planned(B)
    following.runs(C, B)
    assert following.start == B


@pytest.mark.parametrize("at", [B, {"t": {"0": 0, "1": 11}}])
def test_a_restart_that_looked_like_a_new_query_is_refused_before_spark_records_the_end(at):
    following = NextMicroBatch()
    following.planned(FIRST)
    with pytest.raises(ConfigurationError, match="triggerAvailableNowWrapper.*Nothing was read"):
        following.runs(at, at)


def test_so_is_a_recorded_end_of_this_kind_in_a_later_process():
    following = NextMicroBatch()
    following.runs(FIRST, FIRST)
    with pytest.raises(ConfigurationError, match="delete it"):
        following.runs(B, FIRST)


def test_an_end_of_a_new_query_that_reads_on_is_as_good_as_any():
    following = NextMicroBatch()
    following.planned(FIRST)
    at = {"t": {"0": 10, "1": 9}}
    following.runs(at, at)
    following.runs(at, FIRST)
    assert following.start == FIRST


def test_a_partition_that_is_gone_is_not_what_this_refuses():
    following = NextMicroBatch()
    following.planned(FIRST)
    at = {"t": {"0": 10}, "deleted": {"0": 99}}
    following.runs(at, at)
    assert following.start == at
