"""The model's group coordinators: what a transaction's end makes of a group's offsets, in both kinds."""

from __future__ import annotations

import pytest

from lab.simulation.chance import Seeded
from lab.simulation.conditions import USUAL, Conditions
from lab.simulation.offsets import Group
from spark_kafka_eos.kafka.partitions import TopicPartition
from tests.transacting import ModelSide

CLASSIC = Conditions(classic_groups=True)
ID, GROUP = "id", "group"


def begun(side):
    """A new epoch, whose transaction the group has joined."""
    _, *held = side.init(ID)
    if side.version < 2:
        assert side.join(ID, held, GROUP) == 0
    return held


def batch(side, offset):
    held = begun(side)
    assert side.offset(ID, held, GROUP, offset) == [0]
    assert side.end(ID, held, commit=True)[0] == 0
    return held


@pytest.mark.parametrize(("commit", "found"), [(True, 2), (False, 1)])
@pytest.mark.parametrize("version", [1, 2])
def test_offsets_are_the_groups_once_their_transaction_is_committed(version, commit, found):
    side = ModelSide(version)
    assert side.fetch(GROUP) == (0, -1)
    batch(side, 1)
    held = begun(side)
    side.offset(ID, held, GROUP, 2)
    assert side.fetch(GROUP) == (88, -1)
    side.end(ID, held, commit)
    assert side.fetch(GROUP) == (0, found)


@pytest.mark.parametrize(
    ("version", "conditions", "pending", "found"),
    [(1, CLASSIC, (0, 1), 1), (1, USUAL, (88, -1), 2), (2, CLASSIC, (88, -1), 2)],
    ids=["classic", "Kafka 4", "TV2"],
)
def test_a_refused_commit_of_an_older_epoch_takes_pending_offsets_along_in_a_classic_coordinator(
    version, conditions, pending, found
):
    side = ModelSide(version, conditions)
    old = batch(side, 1)
    held = begun(side)
    side.offset(ID, held, GROUP, 2)
    assert side.offset(ID, old, GROUP, 1) == [47]
    assert side.fetch(GROUP) == pending
    assert side.end(ID, held, commit=True)[0] == 0
    assert side.fetch(GROUP) == (0, found)
    other = side.kafka.coordinated_by[GROUP] ^ 1
    chance = Seeded(0)
    while side.kafka.coordinated_by[GROUP] != other:
        side.kafka.move(chance)
    assert side.fetch(GROUP) == (0, 2)


def test_a_commit_of_an_older_epoch_is_refused_before_the_newer_one_has_anything_pending():
    side = ModelSide(1, CLASSIC)
    old = batch(side, 1)
    held = begun(side)
    assert side.offset(ID, old, GROUP, 1) == [47]
    assert side.offset(ID, held, GROUP, 2) == [0]
    assert side.end(ID, held, commit=True) == (0,)
    assert side.fetch(GROUP) == (0, 2)


@pytest.mark.parametrize("conditions", [USUAL, CLASSIC], ids=["Kafka 4", "classic"])
def test_of_two_transactions_offsets_those_count_that_are_later_in_the_log(conditions):
    """As `OffsetMetadataManager` and `GroupMetadata` compare their places there: markers may come in any order."""
    group, at = Group(0, classic=conditions.classic_groups), TopicPartition("in", 0)
    assert group.commit(1, 0, {at: (3, "")}) == 0
    assert group.commit(2, 0, {at: (5, "")}) == 0
    group.mark(2, 0, True)
    assert group.offsets == {at: (5, "")}
    group.mark(1, 0, True)
    assert group.offsets == {at: (5, "")}
    group.reload()
    assert group.offsets == {at: (5, "")}
