import uuid
from dataclasses import replace
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_eos.errors import ConfigurationError, DataLoss
from spark_kafka_eos.kafka.partitions import OffsetRange, TopicPartition
from spark_kafka_eos.options.source import Start, Timestamps
from spark_kafka_eos.options.values import LatestMinus
from spark_kafka_eos.reading.planning import (
    Lost,
    ReadPlan,
    available,
    bounded,
    end_offsets,
    ending_offsets,
    offsets_by_time,
    plan,
    remaining,
    starting_offsets,
    timestamps,
)

A, B, C = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("c", 0)
EARLIEST, LATEST = {A: 5, B: 0}, {A: 50, B: 20}


def covering(partition: TopicPartition, start: int, end: int) -> OffsetRange:
    return OffsetRange(partition=partition, start=start, end=end)


# First offsets


def test_earliest_and_latest_are_what_the_brokers_say() -> None:
    assert starting_offsets("earliest", earliest=EARLIEST, latest=LATEST) == EARLIEST
    assert starting_offsets("latest", earliest=EARLIEST, latest=LATEST) == LATEST


def test_committed_starts_at_the_groups_offsets() -> None:
    assert starting_offsets("committed", earliest=EARLIEST, latest=LATEST, committed={A: 7, B: 9}) == {A: 7, B: 9}


def test_a_partition_without_a_committed_offset_starts_at_its_earliest() -> None:
    for committed in ({B: 9}, {A: None, B: 9}):
        assert starting_offsets("committed", earliest=EARLIEST, latest=LATEST, committed=committed) == {A: 5, B: 9}


@pytest.mark.parametrize("committed", [None, {}, {A: None, B: None}, {C: 1}])
def test_where_nothing_is_committed_the_start_is_an_error_unless_the_user_names_another(
    committed: dict[TopicPartition, int | None] | None,
) -> None:
    with pytest.raises(ConfigurationError, match=r"no committed offsets for .*committed-or-earliest"):
        starting_offsets("committed", earliest=EARLIEST, latest=LATEST, committed=committed)
    earliest = starting_offsets("committed-or-earliest", earliest=EARLIEST, latest=LATEST, committed=committed)
    latest = starting_offsets("committed-or-latest", earliest=EARLIEST, latest=LATEST, committed=committed)
    assert (earliest, latest) == (EARLIEST, LATEST)


@pytest.mark.parametrize("wanted", ["committed", "committed-or-earliest", "committed-or-latest"])
def test_a_new_partition_beside_committed_ones_starts_at_its_earliest(wanted: Start) -> None:
    assert starting_offsets(wanted, earliest=EARLIEST, latest=LATEST, committed={A: 7, B: None}) == {
        A: 7,
        B: EARLIEST[B],
    }


def test_committed_offsets_of_partitions_that_are_not_read_do_not_count() -> None:
    committed = {A: 7, B: 9, C: 1}
    assert starting_offsets("committed", earliest=EARLIEST, latest=LATEST, committed=committed) == {A: 7, B: 9}


def test_explicit_offsets_may_say_earliest_and_latest() -> None:
    assert starting_offsets({A: -2, B: -1}, earliest=EARLIEST, latest=LATEST) == {A: 5, B: 20}
    assert starting_offsets({A: 8, B: 0}, earliest=EARLIEST, latest=LATEST) == {A: 8, B: 0}


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({A: 8}, "does not list a-1"),
        ({A: 8, B: 1, C: 1}, "lists c-0, which this query does not read"),
        ({C: 1}, " and lists c-0"),
    ],
)
def test_explicit_offsets_must_name_exactly_the_partitions_that_are_read(
    wanted: dict[TopicPartition, int], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message) as raised:
        starting_offsets(wanted, earliest=EARLIEST, latest=LATEST)
    assert raised.value.option == "startingOffsets"


@pytest.mark.parametrize(("strategy", "start"), [("earliest", {A: 8, B: 0}), ("latest", {A: 8, B: 20})])
def test_partitions_that_explicit_offsets_do_not_list_start_as_the_strategy_says(
    strategy: Literal["earliest", "latest"], start: dict[TopicPartition, int]
) -> None:
    assert starting_offsets({A: 8}, earliest=EARLIEST, latest=LATEST, strategy=strategy) == start
    with pytest.raises(ConfigurationError, match="lists c-0, which"):
        starting_offsets({C: 8}, earliest=EARLIEST, latest=LATEST, strategy=strategy)


def test_a_start_before_the_latest_offset_is_not_before_the_earliest() -> None:
    assert starting_offsets(LatestMinus(30), earliest=EARLIEST, latest=LATEST) == {A: 20, B: 0}
    assert starting_offsets(LatestMinus(1), earliest={A: 50}, latest={A: 50}) == {A: 50}


@pytest.mark.parametrize(
    ("begin", "end", "bound", "expected"),
    [
        (0, 10, 5, 5),
        (0, 10, 10, 10),
        (0, 10, 15, 10),
        (7, 10, 5, 7),
        (10, 10, 5, 10),
        (None, 10, 5, 5),
        (12, 10, 5, 10),
    ],
)
def test_a_stream_goes_to_its_bound_and_never_back(begin: int | None, end: int, bound: int, expected: int) -> None:
    assert bounded({} if begin is None else {A: begin}, {A: end}, {A: bound}) == {A: expected}


def test_many_unnamed_partitions_are_not_all_listed() -> None:
    latest = {TopicPartition("t", number): 0 for number in range(1_000)}
    with pytest.raises(ConfigurationError, match="t-4, 995 more"):
        starting_offsets({}, earliest=latest, latest=latest)


# Ends of a batch read


def test_a_batch_read_ends_at_the_latest_or_where_it_is_told() -> None:
    assert ending_offsets("latest", latest=LATEST) == LATEST
    assert ending_offsets({A: -1, B: 7}, latest=LATEST) == {A: 50, B: 7}


def test_an_explicit_end_past_the_last_stable_offset_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match="a-1 ends at offset 20, before 21"):
        ending_offsets({A: -1, B: 21}, latest=LATEST)


def test_explicit_ends_must_name_every_partition() -> None:
    with pytest.raises(ConfigurationError, match="endingOffsets"):
        ending_offsets({A: 10}, latest=LATEST)


# Positions by time


def test_one_time_holds_for_every_partition() -> None:
    assert timestamps("startingTimestamp", Timestamps(everywhere=0), LATEST) == {A: 0, B: 0}


def test_times_by_partition_must_name_every_partition() -> None:
    assert timestamps("startingOffsetsByTimestamp", Timestamps(partitions={A: 1, B: 2}), LATEST) == {A: 1, B: 2}
    with pytest.raises(ConfigurationError, match="startingOffsetsByTimestamp"):
        timestamps("startingOffsetsByTimestamp", Timestamps(partitions={A: 1}), LATEST)


def test_a_time_after_the_last_record_is_an_error_or_the_latest_offset() -> None:
    found = {A: 7, B: None}
    with pytest.raises(ConfigurationError, match="a-1 has no record"):
        offsets_by_time("startingTimestamp", Timestamps(everywhere=9), found, latest=LATEST)
    lenient = Timestamps(everywhere=9, if_none="latest")
    assert offsets_by_time("startingTimestamp", lenient, found, latest=LATEST) == {A: 7, B: 20}


# Ends of micro-batches


def test_without_a_limit_a_micro_batch_ends_at_the_last_stable_offset() -> None:
    assert end_offsets({A: 5, B: 0}, earliest=EARLIEST, latest=LATEST) == LATEST


def test_a_limit_is_shared_out_in_proportion() -> None:
    assert end_offsets({A: 10, B: 10}, earliest=EARLIEST, latest={A: 50, B: 20}, limit=10) == {A: 18, B: 12}


def test_a_small_partition_is_not_starved() -> None:
    assert end_offsets({A: 0, B: 0}, earliest={A: 0, B: 0}, latest={A: 1_000_000, B: 1}, limit=10) == {A: 9, B: 1}


def test_a_limit_above_what_waits_takes_everything() -> None:
    assert end_offsets({A: 5, B: 0}, earliest=EARLIEST, latest=LATEST, limit=2**62) == LATEST


def test_nothing_waiting_stays_where_it_is() -> None:
    assert end_offsets(LATEST, earliest=EARLIEST, latest=LATEST, limit=1) == LATEST


def test_a_new_partition_has_its_share_from_its_earliest_offset_on() -> None:
    assert end_offsets({A: 40}, earliest={A: 5, B: 10}, latest={A: 50, B: 20}, limit=10) == {A: 45, B: 15}


def test_deleted_offsets_take_no_share_of_a_limit() -> None:
    assert end_offsets({A: 0, B: 0}, earliest={A: 99_000, B: 0}, latest={A: 99_040, B: 20}, limit=30) == {
        A: 99_020,
        B: 10,
    }
    assert available({A: 0, B: 0}, earliest={A: 99_000, B: 0}, latest={A: 99_040, B: 20}) == 60


def test_a_partition_of_which_all_was_deleted_leaves_the_limit_to_the_others() -> None:
    assert end_offsets({A: 0, B: 0}, earliest={A: 50, B: 0}, latest={A: 50, B: 20}, limit=10) == {A: 50, B: 10}


def test_a_partition_that_is_gone_has_no_end() -> None:
    assert end_offsets({A: 5, C: 3}, earliest=EARLIEST, latest=LATEST) == LATEST
    assert C not in end_offsets({A: 5, C: 3}, earliest=EARLIEST, latest=LATEST, limit=1)


def test_an_end_that_moved_back_is_left_for_the_plan_to_judge() -> None:
    assert end_offsets({A: 60, B: 0}, earliest=EARLIEST, latest=LATEST, limit=10) == {A: 50, B: 10}


def test_what_waits_counts_new_partitions_and_nothing_below_zero() -> None:
    assert available({A: 60}, earliest={A: 5, B: 15}, latest=LATEST) == 5


# (earliest, start or None for a new partition, latest) of each partition; a start may have been deleted
logs = st.lists(
    st.tuples(st.integers(0, 10**6), st.none() | st.integers(0, 10**6), st.integers(0, 10**6)).map(
        lambda log: (log[0], log[1], log[0] + log[2])
    ),
    min_size=1,
    max_size=8,
)


@given(logs, st.integers(1, 10**7))
def test_a_limited_batch_moves_on_and_keeps_its_limit(log: list[tuple[int, int | None, int]], limit: int) -> None:
    partitions = [TopicPartition("t", number) for number in range(len(log))]
    earliest = {tp: one[0] for tp, one in zip(partitions, log, strict=True)}
    latest = {tp: one[2] for tp, one in zip(partitions, log, strict=True)}
    start = {tp: one[1] for tp, one in zip(partitions, log, strict=True) if one[1] is not None}
    end = end_offsets(start, earliest=earliest, latest=latest, limit=limit)
    first = {tp: max(start.get(tp, 0), earliest[tp]) for tp in partitions}
    taken = {tp: end[tp] - first[tp] for tp in partitions if latest[tp] > first[tp]}
    assert end.keys() == latest.keys()
    assert all(end[tp] <= latest[tp] for tp in partitions)
    assert all(count >= 1 for count in taken.values())
    assert sum(taken.values()) <= limit + len(taken)
    assert sum(taken.values()) >= min(limit, available(start, earliest=earliest, latest=latest)) - len(taken)


# The plan


def test_a_plan_covers_the_offsets_from_start_to_end_ordered_by_partition() -> None:
    done = plan({B: 3, A: 10}, {B: 20, A: 50}, earliest=EARLIEST)
    assert done == ReadPlan(ranges=(covering(A, 10, 50), covering(B, 3, 20)))


def test_empty_ranges_are_left_out() -> None:
    assert plan({A: 50, B: 3}, LATEST, earliest=EARLIEST).ranges == (covering(B, 3, 20),)


def test_an_empty_range_loses_nothing() -> None:
    assert plan({A: 2, B: 3}, {A: 2, B: 20}, earliest=EARLIEST) == ReadPlan(ranges=(covering(B, 3, 20),))


def test_a_query_that_must_not_lose_data_learns_all_that_was_deleted_also_after_the_batch() -> None:
    with pytest.raises(DataLoss, match="from 2 to 5 "):
        plan({A: 2}, {A: 4}, earliest=EARLIEST)


def test_a_new_partition_is_read_from_its_beginning() -> None:
    assert plan({A: 50}, LATEST, earliest=EARLIEST).ranges == (covering(B, 0, 20),)


def lost(partition: TopicPartition, start: int, end: int | None, why: str) -> Lost:
    return Lost(partition=partition, start=start, end=end, why=why)


LOSSES = {
    "offsets deleted by retention": ({A: 2, B: 20}, LATEST, (covering(A, 5, 50),), lost(A, 2, 5, "deleted")),
    "all of a range deleted": ({A: 2, B: 20}, {A: 4, B: 20}, (), lost(A, 2, 4, "deleted")),
    "a new partition that lost its beginning": ({B: 20}, LATEST, (covering(A, 5, 50),), lost(A, 0, 5, "deleted")),
    "a partition that is gone": ({A: 50, B: 9, C: 1}, LATEST, (covering(B, 9, 20),), lost(C, 1, None, "gone")),
    "a partition gone after its end was listed": ({**LATEST, C: 1}, {**LATEST, C: 4}, (), lost(C, 1, 4, "gone")),
    "a log that ends before the start": (
        {A: 60, B: 9},
        LATEST,
        (covering(B, 9, 20),),
        lost(A, 60, None, "ends at 50: the topic was deleted and created again"),
    ),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_a_query_that_must_not_lose_data_stops_at(loss: str) -> None:
    start, end, _, expected = LOSSES[loss]
    with pytest.raises(DataLoss, match=rf"{expected.partition} from {expected.start}.*{expected.why}") as raised:
        plan(start, end, earliest=EARLIEST)
    way = f"removedTopics={expected.partition.topic}" if "gone" in expected.why else "once with failOnDataLoss=false"
    assert way in str(raised.value)


def test_each_kind_of_loss_is_given_up_in_its_own_way() -> None:
    with pytest.raises(DataLoss) as raised:
        plan({A: 2, B: 9, TopicPartition("gone", 0): 1}, LATEST, earliest=EARLIEST)
    assert "deleted, set removedTopics=gone. To continue without the other offsets, restart once" in str(raised.value)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_query_that_may_lose_data_reads_on_and_reports(loss: str) -> None:
    start, end, ranges, expected = LOSSES[loss]
    done = plan(start, end, earliest=EARLIEST, fail_on_data_loss=False)
    assert done.ranges == ranges
    assert [(one.partition, one.start, one.end) for one in done.lost] == [
        (expected.partition, expected.start, expected.end)
    ]


# What is left of a plan


REMAINDERS = {
    "all of it": (covering(A, 10, 20), (5, 50), (covering(A, 10, 20),), ()),
    "the end": (covering(A, 2, 20), (5, 50), (covering(A, 5, 20),), (lost(A, 2, 5, "deleted"),)),
    "the beginning": (covering(A, 10, 60), (5, 50), (covering(A, 10, 50),), (lost(A, 50, 60, "ends at 50"),)),
    "the middle": (
        covering(A, 2, 60),
        (5, 50),
        (covering(A, 5, 50),),
        (lost(A, 2, 5, "deleted"), lost(A, 50, 60, "ends at 50")),
    ),
    "nothing before": (covering(A, 2, 4), (5, 50), (), (lost(A, 2, 4, "deleted"),)),
    "nothing behind": (covering(A, 60, 70), (5, 50), (), (lost(A, 60, 70, "ends at 50"),)),
    "no partition": (covering(B, 2, 4), (5, 50), (), (lost(B, 2, 4, "gone"),)),
}


@pytest.mark.parametrize("what", REMAINDERS)
def test_what_can_still_be_read_is(what: str) -> None:
    wanted, (earliest, latest), ranges, losses = REMAINDERS[what]
    done = remaining([wanted], earliest={A: earliest}, latest={A: latest})
    assert done.ranges == ranges
    assert [(one.partition, one.start, one.end) for one in done.lost] == [
        (one.partition, one.start, one.end) for one in losses
    ]
    assert all(expected.why in one.why for one, expected in zip(done.lost, losses, strict=True))


@pytest.mark.parametrize(
    ("wanted", "log_end", "ranges", "start"),
    [
        (covering(A, 10, 30), 20, (covering(A, 10, 20),), 20),
        (covering(A, 25, 30), 20, (), 25),
        (covering(A, 10, 30), 10, (), 10),
    ],
)
def test_of_a_truncated_log_what_is_left_of_the_planned_one_remains(
    wanted: OffsetRange, log_end: int, ranges: tuple[OffsetRange, ...], start: int
) -> None:
    done = remaining([wanted], earliest={A: 5}, latest={A: 50}, log_ends={A: log_end})
    assert done.ranges == ranges
    [only] = done.lost
    assert (only.start, only.end) == (start, 30)
    assert f"the log was truncated to {log_end}, and has other records there now" in str(only)


def test_what_remains_is_of_the_same_topic() -> None:
    wanted = replace(covering(A, 2, 60), topic_id=uuid.UUID(int=7))
    (kept,) = remaining([wanted], earliest={A: 5}, latest={A: 50}).ranges
    assert kept.topic_id == wanted.topic_id


def test_a_plan_without_losses_does_not_depend_on_what_may_be_lost() -> None:
    start = {A: 5, B: 0}
    assert plan(start, LATEST, earliest=EARLIEST) == plan(start, LATEST, earliest=EARLIEST, fail_on_data_loss=False)
