"""What planning costs with thousands of partitions and topics, of a broker in memory. CPU time, with wide margins."""

from __future__ import annotations

import gc
import sys

from spark_kafka_eos.lab.bench import scale
from spark_kafka_eos.lab.bench.scale import Planner


def test_ten_thousand_partitions_are_planned_in_less_than_a_second_with_the_requests_of_hundreds():
    planned = []
    for count in (200, 10_000):
        planner = Planner({"orders": count}, subscribe="orders")
        first = planner.plan()
        planned.append([first, planner.plan()])
    assert [one.requests for one in planned[0]] == [one.requests for one in planned[1]]
    assert planned[1][1].seconds < 1.0
    assert planned[1][1].bytes < 200 * 10_000


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
