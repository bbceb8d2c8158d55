"""Where batches end that repeat what a sink has committed."""

from __future__ import annotations

import pytest

from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.ledger.entry import SourceProgress
from spark_kafka_eos.reading.batch_boundaries import BatchBoundary, began_before, is_empty, next_boundary

P0, P1, P2 = (TopicPartition("t", number) for number in range(3))
LATEST = {P0: 100, P1: 100}


def last_batch(start, end):
    """The last committed batch of a source."""
    return SourceProgress(cluster="c", start=start, offsets=end)


LAST = last_batch({P0: 20, P1: 30}, {P0: 25, P1: 30})


@pytest.mark.parametrize(
    ("begin", "ends", "exact"),
    [
        ({P0: 0, P1: 0}, {P0: 20, P1: 30}, False),
        ({P0: 20, P1: 12}, {P0: 20, P1: 30}, False),
        ({P0: 22, P1: 12}, {P0: 22, P1: 30}, False),
        ({P0: 20, P1: 30}, {P0: 25, P1: 30}, True),
        ({P0: 22, P1: 44}, {P0: 25, P1: 44}, True),
    ],
)
def test_batches_end_where_the_last_committed_one_began_and_where_it_ended(begin, ends, exact):
    assert next_boundary(begin, LAST, LATEST) == BatchBoundary(ends=ends, exact=exact)


@pytest.mark.parametrize("begin", [{P0: 25, P1: 30}, {P0: 99, P1: 99}])
def test_behind_the_last_committed_batch_nothing_ends_a_batch(begin):
    assert next_boundary(begin, LAST, LATEST) is None


def test_of_an_entry_without_a_start_only_the_end_is_a_boundary_and_limits_apply():
    last = last_batch(None, {P0: 25})
    assert next_boundary({P0: 0}, last, {P0: 100}) == BatchBoundary(ends={P0: 25}, exact=False)
    assert not is_empty(last)
    assert not began_before({P0: 0}, last)


def test_a_partition_that_the_ledger_does_not_know_does_not_move():
    assert next_boundary({P0: 0, P2: 7}, LAST, LATEST | {P2: 50}) == BatchBoundary(
        ends={P0: 20, P1: 30, P2: 7}, exact=False
    )
    assert next_boundary({P0: 0}, LAST, LATEST | {P2: 50}) == BatchBoundary(ends={P0: 20, P1: 30}, exact=False), (
        "an added one"
    )


def test_a_partition_that_was_added_in_the_last_batch_is_read_in_the_last_batch():
    last = last_batch({P0: 20, P1: 0}, {P0: 20, P1: 9})
    first = next_boundary({P0: 3}, last, LATEST)
    assert first == BatchBoundary(ends={P0: 20}, exact=False)
    assert next_boundary(first.ends, last, LATEST) == BatchBoundary(ends={P0: 20, P1: 9}, exact=True)


def test_what_can_not_be_reached_any_more_stops_nobody():
    assert next_boundary({P0: 20, P1: 30}, LAST, {P0: 22, P1: 100}) == BatchBoundary(ends={P0: 22, P1: 30}, exact=True)
    assert next_boundary({P0: 22, P1: 30}, LAST, {P0: 22, P1: 100}) is None
    assert next_boundary({P1: 30}, LAST, {P1: 100}) is None, "a partition that was deleted"


def test_a_batch_that_read_nothing_is_empty():
    assert is_empty(last_batch({P0: 20}, {P0: 20}))
    assert not is_empty(LAST)
    assert not is_empty(last_batch({}, {P0: 5}))
    assert began_before({P0: 19, P1: 30}, LAST)
    assert not began_before({P0: 20, P1: 30}, LAST)
