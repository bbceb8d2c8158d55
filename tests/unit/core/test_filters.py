"""What filters leave to be read: never less than fulfils them, whatever the order of the timestamps."""

from __future__ import annotations

import operator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_eos.core.filters import (
    Condition,
    Numbers,
    Operator,
    Wanted,
    from_times,
    up_to_times,
    wanted,
    within,
)
from spark_kafka_eos.model import TopicPartition

A, B, C = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
START, END = {A: 5, B: 0, C: 0}, {A: 50, B: 20, C: 10}
_TESTS = {"=": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


def on(column: str, compared: Operator, *values: int | str) -> Condition:
    return Condition(column=column, operator=compared, values=values)


def left(*conditions: Condition) -> dict[TopicPartition, tuple[int, int]]:
    start, end = within(START, END, wanted(conditions))
    assert start.keys() == end.keys()
    return {tp: (start[tp], end[tp]) for tp in start}


def test_without_conditions_everything_is_left() -> None:
    assert left() == {A: (5, 50), B: (0, 20), C: (0, 10)}


def test_conditions_on_other_columns_leave_everything() -> None:
    assert wanted([on("key", "=", "k"), on("topic", ">", "a")]) == Wanted()


@pytest.mark.parametrize(
    ("condition", "partitions"),
    [
        (on("partition", "=", 1), [B]),
        (on("partition", "=", 0, 1), [A, B, C]),
        (on("partition", ">", 0), [B]),
        (on("partition", "<=", 0), [A, C]),
        (on("partition", "=", 7), []),
        (on("topic", "=", "u"), [C]),
        (on("topic", "=", "u", "v"), [C]),
    ],
)
def test_a_partition_that_is_not_asked_for_is_not_read(condition: Condition, partitions: list[TopicPartition]) -> None:
    assert list(left(condition)) == partitions


@pytest.mark.parametrize(
    ("conditions", "bounds"),
    [
        ([on("offset", ">=", 7)], (7, 50)),
        ([on("offset", ">", 7)], (8, 50)),
        ([on("offset", "<", 7)], (5, 7)),
        ([on("offset", "<=", 7)], (5, 8)),
        ([on("offset", "=", 7)], (7, 8)),
        ([on("offset", "=", 30, 7)], (7, 31)),
        ([on("offset", ">", 7), on("offset", "<", 20)], (8, 20)),
        ([on("offset", ">=", 0), on("offset", "<", 1_000)], (5, 50)),
    ],
)
def test_offsets_bound_the_range(conditions: list[Condition], bounds: tuple[int, int]) -> None:
    assert left(*conditions)[A] == bounds


@pytest.mark.parametrize(
    "conditions",
    [
        [on("offset", "=", 7), on("offset", "=", 8)],
        [on("offset", "<", 7), on("offset", ">", 8)],
        [on("partition", "=", 0), on("partition", "=", 1)],
        [on("topic", "=", "t"), on("topic", "=", "u")],
        [on("timestamp", "=", 1_500)],  # not a whole millisecond
        [on("timestamp", ">=", 2_000), on("timestamp", "<", 2_000)],
    ],
)
def test_conditions_that_nothing_fulfils_leave_nothing(conditions: list[Condition]) -> None:
    assert left(*conditions) == {}


@pytest.mark.parametrize(
    ("condition", "low", "high"),
    [
        (on("timestamp", ">=", 2_000), 2, None),
        (on("timestamp", ">=", 2_001), 3, None),
        (on("timestamp", ">", 2_000), 3, None),
        (on("timestamp", "<", 2_000), None, 2),
        (on("timestamp", "<", 2_001), None, 3),
        (on("timestamp", "<=", 2_000), None, 3),
        (on("timestamp", "=", 2_000, 5_000), 2, 6),
        (on("timestamp", ">", -1_500), -1, None),
    ],
)
def test_microseconds_become_the_milliseconds_that_fulfil_the_condition(
    condition: Condition, low: int | None, high: int | None
) -> None:
    times = wanted([condition]).times
    assert (times.low, times.high) == (low, high)


def test_a_partition_without_a_record_that_young_is_left_out_or_read_to_its_end() -> None:
    start, end = {A: 5, B: 0}, {A: 50, B: 20}
    assert from_times(start, end, {A: 30, B: None}) == ({A: 30}, {A: 50})
    assert up_to_times(start, end, {A: 30, B: None}) == ({A: 5, B: 0}, {A: 30, B: 20})


def test_numbers_are_narrowed_by_both() -> None:
    both = Numbers(low=3, some=frozenset({3, 4})).both(Numbers(low=1, high=9, some=frozenset({4, 5})))
    assert both == Numbers(low=3, high=9, some=frozenset({4}))


times = st.integers(-3, 30)
logs = st.lists(st.lists(times, max_size=20), min_size=1, max_size=3)
conditions = st.one_of(
    st.builds(on, st.just("partition"), st.sampled_from(list(_TESTS)), st.integers(0, 3)),
    st.builds(on, st.just("offset"), st.sampled_from(list(_TESTS)), st.integers(0, 20)),
    st.builds(on, st.just("timestamp"), st.sampled_from(list(_TESTS)), st.integers(-2_000, 30_000)),
    st.builds(lambda values: on("timestamp", "=", *values), st.lists(times.map(lambda ms: ms * 1_000), min_size=1)),
    st.builds(lambda values: on("offset", "=", *values), st.lists(st.integers(0, 20), min_size=1)),
)


@given(logs, st.lists(conditions, max_size=4), st.booleans())
def test_filtered_is_the_same_as_read_in_full_and_then_filtered(
    logs: list[list[int]], conditions: list[Condition], with_delay: bool
) -> None:
    log = {TopicPartition("t", number): records for number, records in enumerate(logs)}
    delay = max((max(records[:at], default=-3) - ms for records in logs for at, ms in enumerate(records)), default=0)

    def list_offsets(partitions: dict[TopicPartition, int], time: int) -> dict[TopicPartition, int | None]:
        """Kafka's answer: the first record from that time on."""
        return {tp: next((at for at, ms in enumerate(log[tp]) if ms >= time), None) for tp in partitions}

    asked = wanted(conditions)
    start, end = within(dict.fromkeys(log, 0), {tp: len(records) for tp, records in log.items()}, asked)
    if asked.times.low is not None:
        start, end = from_times(start, end, list_offsets(start, asked.times.low))
    if asked.times.high is not None and with_delay:
        start, end = up_to_times(start, end, list_offsets(start, asked.times.high + max(delay, 0)))

    def fulfils(tp: TopicPartition, offset: int) -> bool:
        row = {"partition": tp.partition, "offset": offset, "timestamp": log[tp][offset] * 1_000}
        return all(any(_TESTS[c.operator](row[c.column], value) for value in c.values) for c in conditions)

    everything = {(tp, offset) for tp, records in log.items() for offset in range(len(records))}
    read = {(tp, offset) for tp in start for offset in range(start[tp], end[tp])}
    assert {row for row in everything if fulfils(*row)} == {row for row in read if fulfils(*row)}


def test_without_a_bound_on_the_delay_an_older_record_after_the_end_would_be_missed() -> None:
    """Why a time alone must not end a range: offset 2 is older than offset 1."""
    late = [10, 30, 15]
    first_from_20 = next(at for at, ms in enumerate(late) if ms >= 20)
    assert [at for at, ms in enumerate(late) if ms < 20 and at >= first_from_20] == [2]
