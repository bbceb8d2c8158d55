"""The ledger decides up to where the output must be complete, and a group that says otherwise is named."""

from __future__ import annotations

import pytest

from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.tools.verify import due

A, B, C = PARTITIONS = [TopicPartition("in", number) for number in range(3)]


def found(ledger=None, group=None, history=None):
    return due.due(PARTITIONS, ledger=ledger or {}, group="g", of_group=group or {}, history=history or {})


def test_the_ledger_comes_before_the_group_and_the_group_before_the_history():
    result = found({A: 5, TopicPartition("other", 0): 1}, {A: 5, B: 6}, {A: 1, B: 2, C: 3})
    assert result.ends == {A: 5, B: 6, C: 3}
    assert (result.up_to, result.doubt) == ("the offsets of the ledger and group 'g' and the history", "")


def test_what_the_drivers_know_to_be_committed_is_due_although_ledger_and_group_say_less():
    """As where the ledger has lost its last record."""
    result = found({A: 30}, {A: 90, B: 30}, {A: 90, B: 60})
    assert result.ends == {A: 90, B: 60}
    assert (result.up_to, result.doubt) == ("the offsets of the ledger and group 'g' and the history", "")


def test_nobody_who_knows_anything_is_named():
    assert found() == due.Due(ends={}, up_to="")


def test_a_group_that_is_behind_the_ledger_is_named_and_changes_nothing():
    result = found({A: 60, B: 60, C: 60}, {A: 30, B: 60, C: 31})
    assert result.ends == {A: 60, B: 60, C: 60}
    assert (result.up_to, result.doubt) == ("the offsets of the ledger (group 'g' is at in-0@30, in-2@31)", "")


def test_a_group_that_is_ahead_of_the_ledger_is_a_doubt():
    result = found({A: 30, B: 30}, {A: 60, B: 30, C: 7})
    assert result.ends == {A: 30, B: 30, C: 7}
    assert result.doubt == (
        "group 'g' is at in-0@60, but the ledger at in-0@30: somebody has set the group, or the ledger has lost a "
        "commit"
    )


@pytest.mark.parametrize(("ahead", "dots"), [(3, ""), (4, ", …")])
def test_a_few_places_are_named(ahead, dots):
    many = [TopicPartition("in", number) for number in range(ahead)]
    result = due.due(many, ledger=dict.fromkeys(many, 2), group="g", of_group=dict.fromkeys(many, 1), history={})
    assert result.up_to == f"the offsets of the ledger (group 'g' is at in-0@1, in-1@1, in-2@1{dots})"
