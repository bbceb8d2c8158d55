"""What the log of a table of Delta Lake says of a key. delta_protocol.py has the same on real tables."""

from __future__ import annotations

import json

import pytest

from spark_kafka_eos.errors import TableFailed
from spark_kafka_eos.participants.participant import TableVersion
from spark_kafka_eos.spark.delta import _Commit, _decode, _Entry, _look


def own(at: int, version: int, *, planned_on: int | None = None) -> _Entry:
    """The table's version `at`, which is the key's `version`."""
    planned_on = at - 1 if planned_on is None else planned_on
    commit = _Commit(key="k", version=version, token=f"token {version}", mark=str(at), planned_on=planned_on)
    return _Entry(version=at, commit=commit, keeps=None)


def other(at: int) -> _Entry:
    return _Entry(version=at, commit=None, keeps=None)


def restore(at: int, to: int) -> _Entry:
    return _Entry(version=at, commit=None, keeps=to)


def replaced(at: int) -> _Entry:
    return restore(at, -1)


def look(*log: _Entry):
    """Of this log, oldest first."""
    return _look(reversed(log), "shop.sales", "k")


KEPT = {
    "nothing came between": (own(4, 2), own(5, 3)),
    "others wrote meanwhile": (own(4, 2), other(5), other(6), own(7, 3, planned_on=4)),
    "a restore before the look": (own(4, 2), restore(5, 1), restore(6, 4), own(7, 3)),
    "a restore meanwhile, to what was there": (own(4, 2), other(5), restore(6, 5), own(7, 3, planned_on=5)),
    "a restore meanwhile, which keeps the key's commit": (own(4, 2), other(5), restore(6, 4), own(7, 3, planned_on=5)),
    "a restore and its undoing meanwhile": (own(4, 2), restore(5, 1), restore(6, 4), own(7, 3, planned_on=4)),
    "a restore of another commit of the key": (own(4, 2), own(5, 3), restore(6, 4), restore(7, 5)),
    "the key's first commit": (other(0), restore(1, 0), own(2, 1, planned_on=0)),
    "the key's first commit, in a table that was replaced meanwhile": (other(0), replaced(1), own(2, 1, planned_on=0)),
    "the one before is no longer in the log": (other(5), own(6, 3)),
    "nothing before is in the log": (own(6, 3),),
    "the look is no longer in the log": (other(8), own(9, 3, planned_on=2)),
    "a restore meanwhile, to a version in the log": (other(5), other(6), restore(7, 5), own(8, 3, planned_on=6)),
}


@pytest.mark.parametrize("log", KEPT.values(), ids=KEPT)
def test_a_table_that_has_what_the_key_committed_goes_on(log):
    version = max(entry.commit.version for entry in log if entry.commit is not None)
    assert look(*log) == (TableVersion(version=version, token=f"token {version}"), log[-1].version)


LOST_BEFORE = {
    "restored": (own(4, 2), restore(5, 3)),
    "replaced": (own(4, 2), other(5), replaced(6)),
    "restored to a version that was restored": (own(4, 2), restore(5, 3), other(6), restore(7, 6)),
}


@pytest.mark.parametrize("log", LOST_BEFORE.values(), ids=LOST_BEFORE)
def test_a_table_without_the_keys_last_commit_is_refused(log):
    with pytest.raises(TableFailed, match=r"restored or replaced: version 2 of the key 'k' \(the table's version 4\)"):
        look(*log)


LOST_MEANWHILE = {
    "restored": (own(4, 2), restore(5, 3), own(6, 3, planned_on=4)),
    "replaced": (own(4, 2), replaced(5), own(6, 3, planned_on=4)),
    "others wrote, too": (own(4, 2), other(5), other(6), restore(7, 3), other(8), own(9, 3, planned_on=5)),
    "restored to a version that was restored": (
        own(4, 2),
        restore(5, 3),
        restore(6, 4),
        restore(7, 5),
        own(8, 3, planned_on=6),
    ),
    "and then set to the last commit": (own(4, 2), restore(5, 3), own(6, 3, planned_on=4), other(7), restore(8, 6)),
}


@pytest.mark.parametrize("log", LOST_MEANWHILE.values(), ids=LOST_MEANWHILE)
def test_a_restore_that_came_while_the_next_version_was_committed_is_noticed_after_it(log):
    with pytest.raises(
        TableFailed, match=r"replaced while version 3 was committed: version 2 .* version 4\)"
    ) as failed:
        look(*log)
    assert "new key" in failed.value.action


@pytest.mark.parametrize("taken", [replaced(8), restore(8, 4)], ids=["replaced", "restored to before the log"])
def test_it_is_noticed_also_if_the_log_no_longer_has_the_version_that_is_missing(taken):
    with pytest.raises(TableFailed, match="while version 3 was committed: version 2 of the key 'k' is not in it"):
        look(other(6), other(7), taken, own(9, 3, planned_on=7))


def test_a_table_that_was_dropped_and_created_while_the_next_version_was_committed_is_refused():
    with pytest.raises(TableFailed, match="while version 3 was committed: version 2 of the key 'k' is not in it"):
        look(other(0), own(1, 3, planned_on=7))


def test_no_more_of_the_log_is_read_than_what_came_after_the_look():
    def log():
        yield own(9, 3, planned_on=7)
        yield other(8)
        yield other(7)
        raise AssertionError("this has to be read from the table's storage")

    assert _look(log(), "shop.sales", "k")[0].version == 3


def test_a_commit_that_does_not_say_when_its_look_was_counts_as_before():
    fields = {"key": "k", "version": 3, "token": "token 3", "mark": "m"}
    commit = _decode(json.dumps({"kafka-eos": fields}))
    assert commit == _Commit(key="k", version=3, token="token 3", mark="m")
    assert look(own(4, 2), restore(5, 1), _Entry(version=6, commit=commit, keeps=None))[0].version == 3
