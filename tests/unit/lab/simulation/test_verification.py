"""Leaders that do not ask whether a partition is part of the transaction: what comes late opens one nobody ends."""

from __future__ import annotations

import pytest

from lab.simulation.conditions import USUAL, Conditions
from lab.simulation.history import live
from tests.transacting import ModelSide

NOT_VERIFYING = Conditions(verification=False)
ID, GROUP = "id", "group"
REFUSED = (47, -1)


@pytest.fixture
def side():
    return ModelSide(1, NOT_VERIFYING)


def opened(side, *partitions):
    """A new epoch, with a transaction that spans the partitions and the group."""
    _, *held = side.init(ID)
    assert side.add(ID, held, *partitions) == [0] * len(partitions)
    assert side.join(ID, held, GROUP) == 0
    return held


def given_up(side):
    """An epoch that appended `a` to partition 0 and was aborted."""
    old = opened(side, 0)
    side.produce(ID, old, 0, 0, [b"a"])
    assert side.end(ID, old, commit=False) == (0,)
    return old


def stable(side):
    (_, stable, ends) = side.state(ID)
    return [ends[n] == stable[n] for n in (0, 1)]


@pytest.mark.parametrize(("sequence", "partition"), [(1, 0), (0, 1)], ids=["where it appended before", "anywhere else"])
def test_an_append_after_the_abort_opens_a_transaction_that_never_ends(side, sequence, partition):
    old = given_up(side)
    code, _ = side.produce(ID, old, partition, sequence, [b"late"])
    assert code == 0
    assert side.state(ID)[0][:3] == ("CompleteAbort", 0, 0)
    assert not stable(side)[partition]
    assert side.end(ID, old, commit=False) == (0,)  # the abort once more: it was done, says the coordinator
    assert not stable(side)[partition]


def test_verifying_leaders_refuse_it():
    side = ModelSide(1, USUAL)
    old = given_up(side)
    assert side.produce(ID, old, 0, 1, [b"late"]) == (120, -1)
    assert side.produce(ID, old, 1, 0, [b"late"]) == (120, -1)
    assert side.offset(ID, old, GROUP, 7) == [120]
    assert stable(side) == [True, True]


def test_in_tv2_leaders_ask_all_the_same():
    answers = []
    for conditions in (USUAL, NOT_VERIFYING):
        side = ModelSide(2, conditions)
        old = side.init(ID)[1:]
        side.produce(ID, old, 0, 0, [b"a"])
        new = side.end(ID, old, commit=False)[1:]
        answers.append([side.produce(ID, old, 1, 0, [b"late"]), side.produce(ID, new, 0, 0, [b"b"]), side.state(ID)])
    assert answers[0] == answers[1]
    assert answers[0][0] == REFUSED


def test_what_came_late_is_committed_with_the_next_epoch(side):
    old = given_up(side)
    side.produce(ID, old, 0, 1, [b"late"])
    new = opened(side, 0)
    assert side.produce(ID, new, 0, 0, [b"b"])[0] == 0
    assert side.end(ID, new, commit=True) == (0,)
    assert side.committed()[0] == [b"late", b"b"]
    assert stable(side) == [True, True]


def test_an_empty_transaction_of_the_new_epoch_ends_what_came_late_and_fences_what_comes_later(side):
    old = given_up(side)
    side.produce(ID, old, 0, 1, [b"late"])
    side.offset(ID, old, GROUP, 7)
    assert side.fetch(GROUP) == (88, -1)
    fence = opened(side, 0, 1)
    assert side.end(ID, fence, commit=False) == (0,)
    assert side.fetch(GROUP) == (0, -1)
    assert stable(side) == [True, True]
    for partition, sequence in ((0, 2), (1, 0)):
        assert side.produce(ID, old, partition, sequence, [b"later"]) == REFUSED
    assert side.offset(ID, old, GROUP, 7) == [47]
    new = opened(side, 0, 1)
    assert new == [fence[0], fence[1] + 1]
    for partition in (0, 1):
        assert side.produce(ID, new, partition, 0, [b"b"])[0] == 0
    assert side.offset(ID, new, GROUP, 8) == [0]
    assert side.end(ID, new, commit=True) == (0,)
    assert side.committed() == {0: [b"b"], 1: [b"b"]}
    assert side.fetch(GROUP) == (0, 8)


def test_a_fence_holds_only_where_it_was_written(side):
    old = given_up(side)
    fence = opened(side, 0)
    side.end(ID, fence, commit=False)
    assert side.produce(ID, old, 0, 1, [b"late"]) == REFUSED
    assert side.produce(ID, old, 1, 0, [b"late"])[0] == 0


def test_offsets_that_come_late_wait_for_the_next_epoch_and_are_committed_by_it(side):
    old = given_up(side)
    assert side.offset(ID, old, GROUP, 7) == [0]
    assert side.fetch(GROUP) == (88, -1)
    new = opened(side, 0)
    assert side.end(ID, new, commit=True) == (0,)
    assert side.fetch(GROUP) == (0, 7)


def test_the_first_sequence_of_a_producer_is_any(side):
    """So an append whose predecessor is still on its way is taken; a leader that asks remembers the lower one."""
    held = opened(side, 0)
    assert side.produce(ID, held, 0, 3, [b"second"]) == (0, 0)
    assert side.produce(ID, held, 0, 0, [b"first"]) == (45, -1)


def test_late_offsets_do_not_prevent_the_next_batch():
    for seed in range(5_000):
        history = live(seed, traced=True, conditions=NOT_VERIFYING)
        told = "\n".join(history.trace).partition("something is still open: there is more to read")[2]
        if told and not history.wrong:
            break
    assert ": committed" in told
