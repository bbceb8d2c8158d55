import uuid
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_eos.kafka.partitions import OffsetRange, TopicPartition
from spark_kafka_eos.reading.task_split import Task, split


def ranges(*sizes: int) -> list[OffsetRange]:
    """One range for each partition, beginning at ten times its number."""
    return [
        OffsetRange(partition=TopicPartition("t", number), start=10 * number, end=10 * number + size)
        for number, size in enumerate(sizes)
    ]


def sizes(tasks: Sequence[Task]) -> list[list[int]]:
    return [[one.size for one in task] for task in tasks]


def test_no_ranges_make_no_tasks() -> None:
    assert split([]) == []
    assert split(ranges(0, 0), min_partitions=3) == []


def test_pieces_are_of_the_same_topic() -> None:
    wanted = [replace(one, topic_id=uuid.UUID(int=7)) for one in ranges(100)]
    tasks = split(wanted, min_partitions=4)
    assert [one.topic_id for task in tasks for one in task] == [uuid.UUID(int=7)] * 4


def test_a_task_for_each_core() -> None:
    assert sizes(split(ranges(500, 500, 500, 500), parallelism=2)) == [[500, 500], [500, 500]]


def test_a_task_is_worth_a_thousand_offsets_unless_min_partitions_asks_for_more() -> None:
    assert sizes(split(ranges(500, 500, 499), parallelism=8)) == [[500, 500, 499]]
    assert sizes(split(ranges(*[1_000] * 3), parallelism=8)) == [[1_000]] * 3
    assert len(split(ranges(*[500] * 20), parallelism=16)) == 10
    assert sizes(split(ranges(5, 5, 5, 5), parallelism=1, min_partitions=2)) == [[5, 5], [5, 5]]


def test_never_more_tasks_than_ranges() -> None:
    assert sizes(split(ranges(5_000, 0, 5_000), parallelism=8)) == [[5_000], [5_000]]


def test_a_trickle_over_many_partitions_is_one_task() -> None:
    assert len(split(ranges(*[3] * 100), parallelism=4)) == 1


def test_large_ranges_have_a_task_of_their_own() -> None:
    assert sizes(split(ranges(1_000, 1_000, 1_000), parallelism=2, target=1_000)) == [[1_000], [1_000], [1_000]]


def test_a_large_range_among_small_ones_is_alone() -> None:
    assert sizes(split(ranges(9_000, 1, 1, 1), parallelism=2)) == [[9_000], [1, 1, 1]]
    assert sizes(split(ranges(1, 1, 1, 9_000), parallelism=2)) == [[1, 1, 1], [9_000]]


def test_without_an_option_a_range_is_never_cut() -> None:
    assert sizes(split(ranges(10**9), parallelism=8)) == [[10**9]]


def test_min_partitions_below_the_number_of_ranges_is_a_lower_bound() -> None:
    assert len(split(ranges(*[3] * 10), parallelism=2, min_partitions=5)) == 5


def test_min_partitions_cuts_ranges_in_proportion() -> None:
    assert sizes(split(ranges(100, 300), min_partitions=8)) == [[50], [50], [50], [50], [50], [50], [50], [50]]


def test_small_ranges_do_not_weigh_on_the_share_of_the_large_ones() -> None:
    assert sizes(split(ranges(1, 1, 200), min_partitions=10)) == [[1], [1]] + [[25]] * 8


def test_a_range_is_not_cut_finer_than_its_offsets() -> None:
    assert sizes(split(ranges(2), min_partitions=100)) == [[1], [1]]


def test_max_records_cuts_every_range_into_equal_pieces() -> None:
    assert sizes(split(ranges(10, 3), max_records_per_partition=4)) == [[3], [3], [4], [3]]


def test_both_options_hold_together() -> None:
    tasks = split(ranges(10, 10), min_partitions=8, max_records_per_partition=5)
    assert len(tasks) >= 8
    assert max(one.size for task in tasks for one in task) <= 5


def weighing(wanted: Sequence[OffsetRange], *each: float) -> dict[TopicPartition, float]:
    """Bytes per offset of the ranges' partitions."""
    return {one.partition: weight for one, weight in zip(wanted, each, strict=True)}


def test_a_range_above_max_bytes_is_cut_into_tasks_of_their_own() -> None:
    wanted = ranges(1_000, 10, 10)
    tasks = split(wanted, parallelism=1, max_bytes=30_000, bytes_per_offset=weighing(wanted, 100, 100, 100))
    assert sizes(tasks) == [[250], [250], [250], [250], [10, 10]]


def test_ranges_below_max_bytes_share_tasks_up_to_it() -> None:
    wanted = ranges(10, 10, 10, 10)
    assert (
        sizes(split(wanted, max_bytes=2_000, bytes_per_offset=weighing(wanted, 100, 100, 100, 100))) == [[10, 10]] * 2
    )


def test_a_large_record_is_a_task_however_small_the_limit() -> None:
    wanted = ranges(2)
    assert sizes(split(wanted, max_bytes=1, bytes_per_offset=weighing(wanted, 10**9))) == [[1], [1]]


def test_min_partitions_and_max_bytes_hold_together() -> None:
    wanted = ranges(100)
    heavy, light = weighing(wanted, 100), weighing(wanted, 1)
    assert sizes(split(wanted, min_partitions=2, max_bytes=1_000, bytes_per_offset=heavy)) == [[10]] * 10
    assert sizes(split(wanted, min_partitions=2, max_bytes=1_000, bytes_per_offset=light)) == [[50], [50]]


def test_max_records_takes_precedence_over_max_bytes() -> None:
    wanted = ranges(100)
    tasks = split(wanted, max_records_per_partition=50, max_bytes=1, bytes_per_offset=weighing(wanted, 100))
    assert sizes(tasks) == [[50], [50]]


any_ranges = st.lists(st.integers(0, 2_000), max_size=12).map(lambda drawn: ranges(*drawn))
an_option = st.none() | st.integers(1, 60)


@given(any_ranges, st.integers(1, 9), an_option, st.none() | st.integers(50, 900), st.integers(1, 3_000))
def test_tasks_read_exactly_the_ranges_in_their_order(
    wanted: list[OffsetRange], parallelism: int, least: int | None, most: int | None, target: int
) -> None:
    tasks = split(wanted, parallelism=parallelism, min_partitions=least, max_records_per_partition=most, target=target)
    joined: list[OffsetRange] = []
    for one in (one for task in tasks for one in task):
        assert one.size > 0
        if joined and joined[-1].partition == one.partition and joined[-1].end == one.start:
            joined[-1] = OffsetRange(partition=one.partition, start=joined[-1].start, end=one.end)
        else:
            joined.append(one)
    assert all(tasks)
    assert joined == [one for one in wanted if one.size]


@given(any_ranges, st.data(), st.integers(1, 9), an_option, st.integers(1, 20_000))
def test_with_max_bytes_tasks_read_exactly_the_ranges_one_piece_of_each_and_about_that_size(
    wanted: list[OffsetRange], data: st.DataObject, parallelism: int, least: int | None, most: int
) -> None:
    weights = {one.partition: data.draw(st.floats(0, 500)) for one in wanted}
    tasks = split(wanted, parallelism=parallelism, min_partitions=least, max_bytes=most, bytes_per_offset=weights)
    for task in tasks:
        assert len({one.partition for one in task}) == len(task)
        [largest, *_] = sorted((one.size * weights[one.partition] for one in task), reverse=True)
        assert largest <= most + weights[task[0].partition] or len(task) == 1
    pieces = [one for task in tasks for one in task]
    for one in wanted:
        mine = [(piece.start, piece.end) for piece in pieces if piece.partition == one.partition]
        assert [at for bounds in mine for at in bounds][1:-1] == [at for _, end in mine[:-1] for at in (end, end)]
        assert (mine[0][0], mine[-1][1]) == (one.start, one.end) if one.size else not mine


@given(any_ranges, st.integers(1, 9), st.integers(1, 3_000), st.integers(1, 3_000))
def test_there_are_as_many_tasks_as_cores_and_target_ask_for_if_they_are_worth_it(
    wanted: list[OffsetRange], parallelism: int, target: int, worth: int
) -> None:
    full, total = [one for one in wanted if one.size], sum(one.size for one in wanted)
    enough = max(min(parallelism, max(total // worth, 1)), -(-total // target))
    assert len(split(wanted, parallelism=parallelism, target=target, worth=worth)) == min(len(full), enough)


@given(any_ranges, st.integers(50, 900))
def test_no_task_reads_more_than_max_records(wanted: list[OffsetRange], most: int) -> None:
    assert all(one.size <= most for task in split(wanted, max_records_per_partition=most) for one in task)


@pytest.mark.parametrize("least", [1, 7, 20, 100])
@given(any_ranges)
def test_about_min_partitions_tasks_are_made(least: int, wanted: list[OffsetRange]) -> None:
    full = [one for one in wanted if one.size]
    tasks = split(wanted, min_partitions=least)
    assert len(tasks) >= min(sum(one.size for one in full), least) - len(full)
    assert len(tasks) <= max(least, len(full)) + len(full)
