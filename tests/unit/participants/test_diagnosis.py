"""What an operator learns of topic and table, against the model of Kafka, and what settling does."""

from __future__ import annotations

import pytest

from spark_kafka_eos.errors import TableFailed, ToolFailed
from spark_kafka_eos.ledger.refusal import Refuse
from spark_kafka_eos.ledger.verdicts import Skip, Write
from spark_kafka_eos.participants.decide import Again, Finish
from spark_kafka_eos.participants.diagnosis import diagnose_with_table
from spark_kafka_eos.tools.operators.ending import carry_out
from spark_kafka_eos.tools.operators.settle import settle
from tests.both import (
    OPTIONS,
    PATIENCE,
    Kafka,
    Killed,
    Table,
    batch,
    begin,
    both_have,
    driver,
    kill,
    nothing,
    rows_of,
    run,
)


@pytest.fixture(params=[2, 1], ids=["TV2", "TV1"])
def kafka(request):
    return Kafka(request.param)


@pytest.fixture
def table():
    return Table()


@pytest.fixture
def found(kafka, table):
    """`found(number)`: what a look finds, if micro-batch `number` comes next; without it, that is unknown."""

    def look(number=None):
        planned = (None, False) if number is None else (batch(number), True)
        return diagnose_with_table(kafka.cluster(PATIENCE), OPTIONS, table, lambda: planned)

    return look


def killed_after_the_tables_commit(kafka, table, number):
    table.after = kill
    transaction = driver(kafka, table)
    transaction.table_rows = rows_of(number)
    with pytest.raises(Killed):
        run(transaction, number, run="killed")


def settled(kafka, table, look, **how):
    settlement = settle(look, fence_owner=False, **how)
    carry_out(settlement, look, table, kafka.cluster(PATIENCE), OPTIONS)
    return settlement


def test_a_table_that_nobody_wrote_to_goes_on(kafka, table, found):
    look = found(0)
    assert isinstance(look.standing, Write)
    assert isinstance(look.verdict, Write)
    assert settled(kafka, table, look).step is None
    assert table.log == [], "nothing was changed"


def test_what_both_have_is_skipped_and_nothing_is_settled(kafka, table, found):
    run(driver(kafka, table), 0)
    look = found(0)
    assert isinstance(look.standing, Skip)
    assert isinstance(look.verdict, Skip)
    assert isinstance(found(1).verdict, Write)
    assert settled(kafka, table, look).step is None


def test_what_the_table_has_is_committed_in_kafka(kafka, table, found):
    run(driver(kafka, table), 0)
    killed_after_the_tables_commit(kafka, table, 1)
    look = found(1)
    assert isinstance(look.standing, Finish)
    assert isinstance(look.verdict, Finish)
    assert settled(kafka, table, look).step == "commit"
    both_have(kafka, table, 0, 1)
    assert isinstance(found(1).verdict, Skip)
    assert run(driver(kafka, table), 1, run="next").outcome == "skipped"
    both_have(kafka, table, 0, 1)


def test_after_the_timeout_the_query_appends_again_and_nobody_else(kafka, table, found):
    killed_after_the_tables_commit(kafka, table, 0)
    kafka.time_out()
    look = found(0)
    assert isinstance(look.standing, Again)
    assert isinstance(look.verdict, Again)
    assert not settled(kafka, table, look).settled
    assert isinstance(found(1).verdict, Refuse)
    run(driver(kafka, table), 0, run="next")
    both_have(kafka, table, 0)


def test_a_live_driver_that_commits_during_the_look_is_not_taken_for_a_loss(kafka, table, found):
    live = driver(kafka, table)
    run(live, 0)
    before = table.now

    def outdated():  # the first answer is from before the commit
        table.unasked = nothing
        run(live, 1)
        later, table.now = table.now, before
        table.unasked = lambda: setattr(table, "now", later)

    table.unasked = outdated
    assert isinstance(found().standing, Skip)
    both_have(kafka, table, 0, 1)


@pytest.mark.parametrize(
    ("late", "said"),
    [
        (False, "not to the owner that was found. Nothing was changed"),
        (True, "a driver is alive, .* Nothing was changed"),
    ],
    ids=["before the owner is looked at again", "after that"],
)
def test_a_driver_that_writes_before_the_fence_is_not_fenced(kafka, table, found, late, said):
    live = driver(kafka, table)
    run(live, 0)
    look = found()
    settlement = settle(look, fence_owner=True)
    assert settlement.step == "fence"
    fence = table.commit

    def commit(*args, **more):
        table.commit = fence
        run(live, 1)
        fence(*args, **more)

    if late:
        table.commit = commit
    else:
        run(live, 1)
    with pytest.raises(ToolFailed, match=said):
        carry_out(settlement, look, table, kafka.cluster(PATIENCE), OPTIONS)
    run(live, 2)
    both_have(kafka, table, 0, 1, 2)


def test_a_driver_that_has_started_since_the_look_costs_the_table_nothing(kafka, table, found):
    run(driver(kafka, table), 0)
    begin(kafka)
    look = found()
    settlement = settle(look, fence_owner=True)
    assert settlement.step == "fence"
    begin(kafka)
    before = table.now
    with pytest.raises(ToolFailed, match="not to the owner that was found. Nothing was changed"):
        carry_out(settlement, look, table, kafka.cluster(PATIENCE), OPTIONS)
    assert table.now == before


def test_a_driver_that_starts_after_the_fence_of_the_table_is_left_alone_and_the_fence_is_said(kafka, table, found):
    run(driver(kafka, table), 0)
    begin(kafka)
    look = found()
    before, fence = table.now, table.commit

    def commit(*args, **more):
        fence(*args, **more)
        begin(kafka)

    table.commit = commit
    with pytest.raises(
        ToolFailed, match="not to the owner .* The table is fenced already, .* Nothing was sent to Kafka"
    ):
        carry_out(settle(look, fence_owner=True), look, table, kafka.cluster(PATIENCE), OPTIONS)
    assert table.now != before


def test_a_table_that_cannot_be_read_is_an_error_of_its_own(table, found):
    def gone():
        raise OSError("no route to host")

    table.unasked = gone
    with pytest.raises(TableFailed, match=r"cannot be read \(OSError: no route to host\)"):
        found()
