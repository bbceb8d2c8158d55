"""How many bytes are asked for: from what earlier responses showed, and how they arrived."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_eos.kafka.fetching.fetch_sizes import FetchSizes, SizeEstimates, next_byte_budget, partition_budgets
from spark_kafka_eos.kafka.fetching.fetch_steps import Arrival
from spark_kafka_eos.kafka.partitions import TopicPartition

KIB, MIB = 1 << 10, 1 << 20
MOST = 50 * MIB
A, B, OTHER = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("other", 0)


def over(link, room=256 * KIB, *, cut_after=None, responses=20):
    """The rooms of requests whose responses fill them, through a link of so many bytes per second. The first one is cut
    after so many seconds."""
    rooms = [room]
    for number in range(responses):
        seconds = rooms[-1] / link
        cut = number == 0 and cut_after is not None
        arrival = Arrival(size=int(link * min(seconds, cut_after)), seconds=cut_after, is_cut=True) if cut else None
        rooms.append(next_byte_budget(rooms[-1], arrival or Arrival(size=rooms[-1], seconds=seconds), MOST))
    return rooms


@pytest.mark.parametrize("link", [100_000, 200_000, 1_000_000, 5_000_000, 20_000_000])
def test_a_response_takes_about_a_second_whatever_the_link(link):
    assert 0.4 <= over(link)[-1] / link <= 1.1


def test_a_fast_link_is_asked_for_all_after_four_responses():
    assert over(1_000_000_000)[:5] == [SizeEstimates().first_byte_budget, MIB, 4 * MIB, 16 * MIB, MOST]


def used(link, *, lost_every, first_cut, seconds=25, again=0.15):
    """The share of a link that is used, if the connection is lost now and then and takes so long to come back."""
    now, room, read, cut = 0.0, SizeEstimates().first_byte_budget, 0, first_cut
    while read < seconds * link:
        if now + room / link <= cut:
            arrival = Arrival(size=room, seconds=room / link)
            now, read = now + arrival.seconds, read + room
        else:
            arrival = Arrival(size=int((cut - now) * link), seconds=cut - now, is_cut=True)
            now, cut = cut + again, cut + lost_every
        room = next_byte_budget(room, arrival, MOST)
    return read / link / now


@pytest.mark.parametrize("link", [200_000, 1_000_000, 5_000_000])
def test_most_of_a_link_is_used_that_is_lost_every_seven_seconds_whenever_the_first_time_is(link):
    assert min(used(link, lost_every=7.0, first_cut=tenths / 10) for tenths in range(1, 70)) >= 0.85


def test_a_link_that_becomes_fast_again_is_asked_for_more_again():
    slow = over(50_000)[-1]
    assert over(1_000_000_000, slow)[-1] == MOST


def test_what_came_before_a_connection_was_lost_shows_how_much_can_come():
    assert over(200_000, MOST, cut_after=2.0)[1] == 200_000


@pytest.mark.parametrize("size", [0, 5])
def test_a_connection_that_was_lost_at_once_halves_the_next_request(size):
    assert next_byte_budget(8 * MIB, Arrival(size=size, is_cut=True), MOST) == 4 * MIB


def test_a_small_response_changes_nothing():
    assert next_byte_budget(MIB, Arrival(size=300, seconds=0.2), MOST) == MIB


@given(
    room=st.integers(1, MOST),
    arrival=st.builds(Arrival, size=st.integers(0, 1 << 31), seconds=st.floats(0, 1e6), is_cut=st.booleans()),
    most=st.integers(1, MOST),
)
def test_a_room_stays_within_bounds_and_a_lost_connection_never_makes_it_larger(room, arrival, most):
    found = next_byte_budget(room, arrival, most)
    assert min(64 * KIB, most) <= found <= most
    if arrival.is_cut:
        assert found <= max(room, 64 * KIB)


@given(
    wanted=st.lists(st.integers(0, 1 << 40), max_size=400),
    room=st.integers(64 * KIB, MOST),
    partition_most=st.integers(1, MOST),
)
def test_shares_are_those_of_the_first_partitions_and_fill_the_room(wanted, room, partition_most):
    asked = partition_budgets(wanted, room, partition_most)
    assert asked == [min(each, room, partition_most) for each in wanted[: len(asked)]]
    assert len(asked) == len(wanted) or (len(asked) >= 100 and sum(asked) >= 2 * room)


def sizes_with(estimates=None):
    return FetchSizes(fetch_max_bytes=MOST, max_partition_fetch_bytes=8 * MIB, estimates=estimates)


def after(*sizes, offsets=1):
    """After record batches of these sizes of partition A, with so many offsets each."""
    of = sizes_with()
    for size in sizes:
        of.learn(A, size=size, offsets=offsets, batch_bytes=size)
    return of


@pytest.mark.parametrize("size", [80, 170, 1_100, 100_000])
def test_one_offset_asks_for_one_record_batch(size):
    (asked,) = after(size, size, size).partition_budgets(1, [(A, 1)])
    assert size < asked <= size * 33 / 32 + 16


@pytest.mark.parametrize("offsets", [1, 10, 1_000])
@pytest.mark.parametrize("wanted", [1, 2, 9, 10, 11, 35])
def test_a_range_asks_for_as_many_record_batches_as_it_overlaps_on_average(wanted, offsets):
    (asked,) = after(50 * offsets, offsets=offsets).partition_budgets(1, [(A, wanted)])
    overlapped = sum((first + wanted - 1) // offsets + 1 for first in range(offsets)) / offsets
    assert overlapped * 50 * offsets <= asked <= (overlapped * 50 * offsets) * 9 / 8 + 16


def test_a_partition_with_a_marker_behind_each_record_asks_for_enough_of_both():
    data, marker = 171, 78
    of = after(*[data, marker] * 5)
    assert of.partition_budgets(1, [(A, 1)])[0] >= data


def test_after_a_large_record_batch_a_partition_asks_for_less_again_step_by_step():
    (large,) = after(1_000, 9_000).partition_budgets(1, [(A, 1)])
    (later,) = after(1_000, 9_000, *[1_000] * 10).partition_budgets(1, [(A, 1)])
    (last,) = after(1_000, 9_000, *[1_000] * 80).partition_budgets(1, [(A, 1)])
    assert large > 9_000 > later > 3_000
    assert last < 1_100


def test_a_partition_that_was_not_read_yet_is_taken_to_be_like_its_topic():
    of = sizes_with()
    of.learn(A, size=5_000, offsets=10, batch_bytes=5_000)
    assert (
        of.partition_budgets(1, [(B, 10)])
        == of.partition_budgets(1, [(A, 10)])
        != of.partition_budgets(1, [(OTHER, 10)])
    )


def test_a_record_batch_that_did_not_fit_is_asked_for_with_its_size():
    of = sizes_with(SizeEstimates(first_byte_budget=MIB))
    of.note_truncated(A, 500_000)
    assert of.partition_budgets(1, [(A, 1), (B, 1)])[0] == 500_000
    of.learn(A, size=400_000, offsets=1, batch_bytes=400_000)
    assert of.partition_budgets(1, [(A, 1)]) == [412_500]


def test_a_record_batch_of_unknown_size_is_soon_asked_for():
    of = sizes_with(SizeEstimates(first_byte_budget=MOST))
    of.learn(A, size=100, offsets=1, batch_bytes=100)
    for _ in range(8):
        of.note_truncated(A, 0)
    assert of.partition_budgets(1, [(A, 1)])[0] >= MIB


def test_what_one_task_learned_serves_the_next_one():
    estimates = SizeEstimates()
    sizes_with(estimates).arrived(1, Arrival(size=MIB, seconds=5.0))
    sizes_with(estimates).learn(A, size=5_000, offsets=10, batch_bytes=5_000)
    assert sizes_with(estimates).byte_budget(1) == MIB // 5
    assert sizes_with(estimates).byte_budget(2) == SizeEstimates().first_byte_budget
    assert sizes_with(estimates).partition_budgets(1, [(A, 3)]) == [int(2 * 500 * 1.125 + 5_000 * 33 / 32)]
