"""A topic and a SQLite table, on real brokers of both protocols, with processes that are killed at each step: both have
each row once.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from spark_kafka_eos.errors import CommitOutcomeUnknown, ProducerFenced
from spark_kafka_eos.participants.participant import Conflict
from tests import held
from tests.broker.write_both import table_at

pytestmark = pytest.mark.broker

UNDECIDED = [*held.UNDECIDED, "table half committed"]
DECIDED = ["table committed", "ended"]


@pytest.mark.parametrize(
    "points",
    [
        pytest.param(["table half committed", "table committed"], id="some"),
        pytest.param([*UNDECIDED, *DECIDED], id="all", marks=pytest.mark.slow),
    ],
)
def test_a_process_killed_at_each_step_is_followed_by_one_that_completes_both(scene, points):
    for number, point in enumerate(points):
        scene.killed(number, point)
        report = scene.write(scene.driver(), number, f"after {point}")
        assert report.outcome == ("skipped" if point in DECIDED else "committed"), point
        scene.both_have(*range(number + 1))


def test_what_the_table_has_is_appended_again_after_the_timeout(scene, await_state):
    scene.write(scene.driver(), 0)
    for point in ("table committed", "offsets committed"):  # the second time, the table is left alone
        scene.killed(1, point, timeout_ms=1_000)
        await_state(f"id-{scene.topic}", "CompleteAbort")
    report = scene.write(scene.driver(), 1, "another")
    assert report.outcome == "committed"
    scene.both_have(0, 1)
    assert scene.write(scene.driver(), 2, "next").outcome == "committed"
    scene.both_have(0, 1, 2)


def test_a_batch_that_only_the_table_has_is_undone_by_hand_and_then_written_anew(scene, await_state):
    scene.write(scene.driver(), 0)
    scene.killed(1, "table committed", timeout_ms=1_000)
    await_state(f"id-{scene.topic}", "CompleteAbort")
    with closing(sqlite3.connect(scene.database)) as database, database:
        database.execute("DELETE FROM rows WHERE row LIKE '1-%'")
        database.execute("UPDATE kafka_eos SET token = NULL WHERE name = 'key'")
    scene.both_have(0)
    for number in (1, 2):
        assert scene.write(scene.driver(), number, f"another {number}").outcome == "committed"
    scene.both_have(0, 1, 2)


@pytest.mark.slow
def test_a_process_that_was_paused_beyond_the_timeout_appends_again(scene, await_state):
    process, folder = scene.process(0, "table committed", timeout_ms=1_000)
    await_state(f"id-{scene.topic}", "CompleteAbort")
    held.release(folder)
    assert scene.said(process) == ["committed", 1]
    scene.both_have(0)


def test_a_process_whose_successor_finished_its_batch_ends_without_harm(scene):
    process, folder = scene.process(0, "table committed")
    driver = scene.driver()
    assert scene.write(driver, 0).outcome == "skipped"
    scene.both_have(0)
    held.release(folder)
    assert scene.said(process)[0] in ("committed", "ProducerFenced")
    scene.write(driver, 1)
    scene.both_have(0, 1)


@pytest.mark.parametrize(
    "point",
    [
        "offsets committed",
        pytest.param("all appended", marks=pytest.mark.slow),
        pytest.param("table fenced", marks=pytest.mark.slow),
    ],
)
def test_a_process_whose_successor_wrote_the_batch_ends_without_harm(scene, point):
    process, folder = scene.process(0, point)
    driver = scene.driver()
    assert scene.write(driver, 0).outcome == "committed"
    held.release(folder)
    outcome = scene.said(process)[0]
    assert outcome in ("skipped", "ProducerFenced", "LedgerRefused")
    scene.both_have(0)
    scene.write(scene.driver(), 1, "next")
    scene.both_have(0, 1)


@pytest.mark.slow
def test_a_late_initialisation_may_abort_a_batch_that_the_table_has_and_it_is_appended_again(scene):
    scene.write(scene.driver(), 0)
    late, folder = scene.process(1, "table fenced")
    live, live_folder = scene.process(1, "table committed")
    held.release(folder)
    said = scene.said(late)
    held.release(live_folder)
    assert scene.said(live)[0] in ("ProducerFenced", "committed")
    assert said[0] in ("committed", "ProducerFenced", "LedgerRefused")
    assert scene.write(scene.driver(), 1, "next").outcome in ("skipped", "committed")
    scene.both_have(0, 1)


class Unreliable:
    """A participant whose next commit with rows fails: before it is applied, or after."""

    def __init__(self, table, when):
        self._table, self._when = table, when

    def held(self):
        return self._table.held()

    def commit(self, rows, token, *, after):
        when, self._when = (self._when, None) if rows is not None else (None, self._when)
        if when == "before":
            raise ConnectionError("the request was lost")
        self._table.commit(rows, token, after=after)
        if when == "after":
            raise ConnectionError("the answer was lost")


@pytest.mark.parametrize(("when", "redone"), [("before", 1), ("after", 0)])
def test_a_commit_of_the_table_that_was_not_answered_is_settled(scene, when, redone):
    driver = scene.driver(Unreliable(table_at(scene.database), when))
    report = scene.write(driver, 0)
    assert (report.outcome, len(report.redone)) == ("committed", redone)
    scene.write(driver, 1)
    scene.both_have(0, 1)


def test_somebody_elses_commit_to_the_key_ends_the_driver_with_nothing_in_either(scene):
    driver = scene.driver()
    scene.write(driver, 0)
    table = table_at(scene.database)
    now = table.held()
    table.commit(None, now.token, after=now.version)
    with pytest.raises(ProducerFenced, match="has committed to the table"):
        scene.write(driver, 1)
    scene.both_have(0)
    assert scene.write(scene.driver(), 1, "next").outcome == "committed"
    scene.both_have(0, 1)
    with pytest.raises(Conflict):
        table.commit(None, now.token, after=now.version)


class Gone(Unreliable):
    """One that cannot even be asked what became of its commit."""

    def held(self):
        if self._when is None:
            raise ConnectionError("nobody answers")
        return super().held()


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_table_that_is_gone_leaves_the_outcome_to_the_next_start(scene, when):
    with pytest.raises(CommitOutcomeUnknown, match="could not be determined"):
        scene.write(scene.driver(Gone(table_at(scene.database), when)), 0)
    assert scene.write(scene.driver(), 0, "next").outcome == ("skipped" if when == "after" else "committed")
    scene.both_have(0)
