"""A seed's history: always the same, right with the product as it is, wrong with a guard taken out."""

from __future__ import annotations

import gc
import time

import pytest

from lab.simulation.conditions import Conditions
from lab.simulation.run import replay, run
from lab.simulation.world import World
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from tests.seeded_bugs import BUGS, LATE_DRIVERS

_FEW = 4_000


def test_a_seed_is_the_same_history_every_time_on_a_machine_of_any_speed(monkeypatch):
    real = time.perf_counter
    for seed in range(20):
        monkeypatch.setattr(time, "perf_counter", real)
        once = replay(seed)
        monkeypatch.setattr(time, "perf_counter", lambda: real() * 1_000)
        again = replay(seed)
        assert once.trace == again.trace
        assert len(once.trace) > 10


def test_seeds_differ():
    assert len({tuple(replay(seed).trace) for seed in range(20)}) == 20


def test_the_connector_is_correct_under_a_hundred_seeds():  # and under thousands in tests/simulation
    summary = run(range(100))
    assert summary.wrong == {}
    assert summary.seeds == 100
    assert summary.outcomes["finished"] >= 100


def test_nothing_of_a_history_stays_in_memory():
    def worlds():
        gc.collect()
        return sum(type(each) in (World, Cluster) for each in gc.get_objects())

    before = worlds()
    for seed in range(20):
        replay(seed)
    assert worlds() <= before


def test_late_drivers_leave_the_live_one_alone_under_a_few_hundred_seeds():
    summary = run(range(250), conditions=Conditions(late=True))
    assert summary.wrong == {}
    assert summary.outcomes["ProducerFenced"] > 100


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(36_202, id="the other driver has begun a transaction"),
        pytest.param(52_453, id="the other driver has begun nothing"),
    ],
)
def test_a_late_driver_whose_init_producer_id_got_lost_leaves_the_live_one_alone(seed):
    assert replay(seed).wrong == []


def test_a_late_driver_does_not_take_an_abort_of_the_live_one_for_that_of_the_coordinator():
    """Else both name the same epoch in InitProducerId, and get the same new one."""
    assert replay(733_661).wrong == []


# Rare since drivers look before they take the id: without verification, seed 5,626 is the first. What a straggler does
# without the fence is tested on brokers (tests/broker/test_straggler.py).
#
# A late driver that goes by an entry's earlier runs is nearly always stopped by Spark before, which finds its batch
# recorded as done: no harm was found in 19,000 seeds. A trace shows the entry (tests/spec/test_many_traces.py).
#
# An abort of another driver that is taken for the coordinator's was at seed 733,661 until each batch looked up its
# topics' ids twice more. Since then none is known: none in 0 to 10,499, 733,600 to 737,599 and 742,000 to 744,499.
# Eight tests of tests/unit/transaction/test_shared.py fail with this bug, such as
# test_who_comes_back_before_its_first_request_takes_no_id_from_a_driver_that_aborts.
RARE = ("no-fence", "earlier-runs-unknown", "any-abort-is-the-coordinators")


# Takes several coincidences, so the search begins shortly before the first seed that has them.
BEGIN_AT = {
    "ledger-before-init": 3_790,
    "held-is-not-asked": 1_210,
    "look-always-counts": 510,
    "no-look-again": 1_960,
    "no-owner-check": 5_610,
    "epoch-is-not-named": 52_450,
}


@pytest.mark.parametrize("bug", [bug for bug in BUGS if bug not in RARE])
def test_a_guard_that_is_missing_is_found_within_a_few_thousand_seeds(bug, cell):
    # Late drivers are rare, unless they are wanted.
    conditions = Conditions(late=bug in LATE_DRIVERS, left_out=bug == "nothing-hangs")
    with BUGS[bug]():
        begin = BEGIN_AT.get(bug, 0)
        found = run(range(begin, begin + _FEW), conditions=conditions, most_wrong=1)
        seed = next(iter(found.wrong))
        cell("seeded bugs", bug.replace("-", " "), "simulation", f"seed {seed}")
        assert replay(seed, conditions=conditions).wrong == found.wrong[seed]
    assert replay(seed, conditions=conditions).wrong == []
