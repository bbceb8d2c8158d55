"""A week in which nobody commits: what brokers forget, what they keep, and when histories come by one."""

from __future__ import annotations

import pytest

from lab.simulation.chance import Seeded
from lab.simulation.conditions import Conditions
from lab.simulation.expiry import RETENTION_S, stand_still
from lab.simulation.history import live
from lab.simulation.run import run
from tests.transacting import ModelSide

ID = "id"
GROUPS = ("ledger", "source")
MOST_S = RETENTION_S + 1_200
FORGETFUL = Conditions(expiry=True)


@pytest.fixture(params=[1, 2], ids=["TV1", "TV2"])
def side(request):
    return ModelSide(request.param)


def begun(side, *groups):
    """A new epoch, with a record appended and the groups' offset 7 pending."""
    _, *held = side.init(ID)
    if side.version < 2:
        side.add(ID, held, 0)
    assert side.produce(ID, held, 0, 0, [b"a"])[0] == 0
    for group in groups:
        if side.version < 2:
            side.join(ID, held, group)
        assert side.offset(ID, held, group, 7) == [0]
    return held


def batch(side, *groups):
    held = begun(side, *groups)
    side.end(ID, held, commit=True)
    return held


def offsets(side):
    return [side.fetch(group) for group in GROUPS]


def test_both_groups_expire_and_what_is_in_topics_stays(side):
    batch(side, *GROUPS)
    assert offsets(side) == [(0, 7), (0, 7)]
    stand_still(side.world, side.kafka, GROUPS)
    side.world.pass_time(RETENTION_S - 60)
    assert offsets(side) == [(0, 7), (0, 7)]
    side.world.pass_time(MOST_S)
    assert offsets(side) == [(0, -1), (0, -1)]
    assert side.committed()[0] == [b"a"]
    batch(side, *GROUPS)
    assert offsets(side) == [(0, 7), (0, 7)]


def test_what_was_committed_in_the_meantime_stays(side):
    batch(side, *GROUPS)
    stand_still(side.world, side.kafka, GROUPS)
    side.world.pass_time(3_600)
    batch(side, GROUPS[0])
    side.world.pass_time(MOST_S)
    assert offsets(side) == [(0, 7), (0, -1)]


def test_offsets_that_wait_for_a_transaction_keep_their_group(side):
    batch(side, *GROUPS)
    held = begun(side, GROUPS[0])
    stand_still(side.world, side.kafka, GROUPS)
    side.world.pass_time(MOST_S)
    side.end(ID, held, commit=True)
    assert offsets(side) == [(0, 7), (0, -1)]


def test_the_week_may_end_when_one_group_has_expired_and_the_other_has_not():
    met = set()
    for seed in range(200):
        side = ModelSide(2)
        side.world.chance = Seeded(seed)
        batch(side, *GROUPS)
        side.world.pass_time(stand_still(side.world, side.kafka, GROUPS))
        met.add(tuple(offset for _, offset in offsets(side)))
    assert met == {(7, 7), (7, -1), (-1, 7), (-1, -1)}


@pytest.mark.parametrize("transactional_ids", [False, True])
def test_producers_expire_where_no_transaction_is_open(side, transactional_ids):
    before = batch(side)
    known = before[0]
    side.kafka.expire_producers(transactional_ids=transactional_ids)
    assert (side.state(ID)[0] is None) == transactional_ids
    _, producer_id, epoch = side.init(ID)
    if transactional_ids:
        assert (producer_id, epoch) == (known + 1, 0)
    else:
        assert producer_id == known and epoch > before[1]


def test_an_open_transaction_keeps_its_producer(side):
    held = begun(side)
    side.kafka.expire_producers(transactional_ids=True)
    assert side.state(ID)[0][0] == "Ongoing"
    assert side.produce(ID, held, 0, 0, [b"a"]) == (0, 0)  # known for the same batch
    side.end(ID, held, commit=True)
    assert side.committed()[0] == [b"a"]


def test_a_leader_that_has_forgotten_a_producer_has_forgotten_its_epoch():
    side = ModelSide(1, Conditions(verification=False))
    old = batch(side)
    batch(side)
    assert side.produce(ID, old, 0, 1, [b"late"]) == (47, -1)
    side.kafka.expire_producers(transactional_ids=False)
    assert side.produce(ID, old, 0, 1, [b"late"])[0] == 0


@pytest.fixture(scope="module")
def histories():
    return [live(seed, traced=True, conditions=FORGETFUL) for seed in range(400)]


def test_histories_come_by_weeks_where_they_are_asked_for_and_checkpoints_are_lost_in_them(histories):
    assert "group expired" not in run(range(20)).faults  # nor among the thousands of tests/simulation
    expired = [history.faults for history in histories if history.faults["group expired"]]
    assert len(expired) > 20
    assert any(faults["ids expired"] for faults in expired)
    assert any(faults["checkpoint lost"] for faults in expired)
    assert not any(history.wrong for history in histories)


def test_a_week_passes_between_two_drivers_or_before_one(histories):
    waited = [line for history in histories for line in history.trace if "FAULT group expired" in line]
    assert any(" driver " in line for line in waited)  # one that lives, and finds nothing to read
    assert any(" - " in line for line in waited)
