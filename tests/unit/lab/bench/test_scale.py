"""What planning costs with thousands of partitions and topics, of a broker in memory. CPU time, with wide margins."""

from __future__ import annotations

import gc
import sys

import pytest

from lab.bench import scale
from lab.bench.scale import Planner


@pytest.mark.usefixtures("without_collector")
def test_ten_thousand_partitions_are_planned_in_less_than_a_second_with_the_requests_of_hundreds():
    few, many = ([planner.plan() for _ in range(4)] for planner in (planned(200), planned(10_000)))
    assert [one.requests for one in few] == [one.requests for one in many]
    assert min(one.seconds for one in many[1:]) < 1.0
    assert many[1].bytes < 200 * 10_000


def planned(partitions: int) -> Planner:
    return Planner({"orders": partitions}, subscribe="orders")


def test_a_planned_batch_leaves_nothing_behind():
    planner = Planner({"orders": 100}, subscribe="orders")
    held = []
    for number in range(60):
        planner.plan()
        if number in (19, 59):
            gc.collect()
            held.append(sys.getallocatedblocks())
    assert held[1] - held[0] < 40 * 20  # each of 40 batches has at least an offset for each of 100 partitions


def test_append_tasks_are_measured_with_the_real_append_and_barrier():
    found = scale.tasks(runs=1, counts=(2, 5), partitions=20)
    assert set(found.lines) == {scale.ROWS, scale.ATTEMPTS, scale.BARRIER}
    assert all(point.value > 0 for point in found.points)
