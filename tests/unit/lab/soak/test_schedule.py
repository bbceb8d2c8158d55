"""A seed is a soak: the same faults at the same times, of every kind, one broker at a time."""

import itertools

import pytest

from lab.soak.queries import MIRROR, STATEFUL, STATELESS, TRANSACTION_TIMEOUT_MS
from lab.soak.schedule import BROKERS, ELSEWHERE, FaultKind, PlannedFault, schedule

SEEDS = range(200)
FIVE_MINUTES = 300.0


def test_a_seed_always_makes_the_same_faults_and_another_seed_others():
    assert schedule(7, FIVE_MINUTES, brokers=3) == schedule(7, FIVE_MINUTES, brokers=3)
    assert schedule(7, FIVE_MINUTES, brokers=3) != schedule(8, FIVE_MINUTES, brokers=3)


def test_a_longer_soak_begins_as_a_shorter_one_of_the_same_seed():
    short, long = (schedule(7, seconds, brokers=3) for seconds in (FIVE_MINUTES, 10 * FIVE_MINUTES))
    assert long[: len(short)] == short


@pytest.mark.parametrize("brokers", [1, 3])
def test_five_minutes_hold_some_twenty_faults_of_every_kind(brokers):
    for seed in SEEDS:
        faults = schedule(seed, FIVE_MINUTES, brokers=brokers)
        assert 15 <= len(faults) <= 28
        assert {fault.kind for fault in faults} == set(FaultKind)


def test_faults_come_in_their_order_and_leave_the_end_alone():
    for seed in SEEDS:
        times = [fault.at for fault in schedule(seed, FIVE_MINUTES, brokers=3)]
        assert times == sorted(times)
        assert times[0] >= 3
        assert times[-1] <= FIVE_MINUTES - 5


def test_no_broker_goes_before_the_last_one_had_time_to_come_back():
    for seed in SEEDS:
        away = [fault for fault in schedule(seed, FIVE_MINUTES, brokers=3) if fault.kind in BROKERS]
        for before, after in itertools.pairwise(away):
            assert after.at > before.at + before.seconds + 10


def test_every_broker_and_every_query_is_hit():
    faults = [fault for seed in SEEDS for fault in schedule(seed, FIVE_MINUTES, brokers=3)]
    assert {fault.target for fault in faults if fault.kind in BROKERS} == {"1", "2", "3", ELSEWHERE}
    for kind in (FaultKind.DRIVER_KILLED, FaultKind.DRIVER_PAUSED):
        assert {fault.target for fault in faults if fault.kind is kind} == {STATELESS, STATEFUL, MIRROR}
    assert {fault.target for fault in faults if fault.kind is FaultKind.CHECKPOINT_LOST} == {MIRROR}
    assert {fault.target for fault in faults if fault.kind is FaultKind.EXECUTOR_KILLED} == {STATEFUL}


def test_some_pauses_outlast_the_transaction_timeout_and_most_do_not():
    pauses = [
        fault.seconds * 1000
        for seed in SEEDS
        for fault in schedule(seed, FIVE_MINUTES, brokers=3)
        if fault.kind in (FaultKind.BROKER_PAUSED, FaultKind.DRIVER_PAUSED)
    ]
    long = sum(pause > TRANSACTION_TIMEOUT_MS for pause in pauses)
    assert 0.2 < long / len(pauses) < 0.5


def test_faults_that_cannot_happen_at_once_share_a_lane():
    broker = PlannedFault(at=1, kind=FaultKind.BROKER_KILLED, target="1")
    other = PlannedFault(at=1, kind=FaultKind.BROKER_PAUSED, target="2")
    driver = PlannedFault(at=1, kind=FaultKind.DRIVER_KILLED, target=STATEFUL)
    executor = PlannedFault(at=1, kind=FaultKind.EXECUTOR_KILLED, target=STATEFUL)
    cut = PlannedFault(at=1, kind=FaultKind.CONNECTIONS_CUT)
    assert broker.lane == other.lane
    assert driver.lane == executor.lane
    assert len({broker.lane, driver.lane, cut.lane}) == 3


def test_a_fault_says_what_happens_to_what_and_for_how_long():
    assert (
        str(PlannedFault(at=1, kind=FaultKind.BROKER_PAUSED, target="2", seconds=4.6))
        == "broker paused (broker 2) for 5 s"
    )
    assert (
        str(PlannedFault(at=1, kind=FaultKind.BROKER_KILLED, target=ELSEWHERE, seconds=2))
        == "broker killed (elsewhere) for 2 s"
    )
    assert str(PlannedFault(at=1, kind=FaultKind.DRIVER_KILLED, target=STATEFUL)) == "driver killed (stateful)"
    assert str(PlannedFault(at=1, kind=FaultKind.CONNECTIONS_CUT)) == "connections cut"
