"""A table and a topic, against the model of Kafka: whatever happens, both have each batch once, or neither has it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_kafka_eos.errors import (
    AttemptsExhausted,
    BrokerUnreachable,
    CommitOutcomeUnknown,
    KafkaEosError,
    LedgerRefused,
    ProducerFenced,
    TableFailed,
    must_not_restart,
)
from spark_kafka_eos.participants.participant import Conflict, TableVersion
from tests.batches import reads
from tests.both import OPTIONS, SOURCE, Kafka, Killed, Table, batch, both_have, driver, kill, nothing, rows_of, run
from tests.model_kafka import lost


class Lost(Exception):
    """The connection to the table's database."""


@pytest.fixture(params=[2, 1], ids=["TV2", "TV1"])
def kafka(request):
    return Kafka(request.param)


@pytest.fixture
def table():
    return Table()


@pytest.fixture
def process(kafka, table):
    """`process()`: a new process of the query."""
    return lambda: driver(kafka, table)


def killed(transaction, number, **changes):
    """A process that dies in micro-batch `number`."""
    transaction.table_rows = rows_of(number)
    with pytest.raises(Killed):
        run(transaction, number, **changes)


def test_both_get_each_batch_and_a_running_driver_asks_the_table_once(kafka, table, process):
    transaction = process()
    for number in range(3):
        assert run(transaction, number).outcome == "committed"
    both_have(kafka, table, 0, 1, 2)
    assert table.asked == 1
    assert table.log == ["fence", "commit", "commit", "commit"]
    assert kafka.entry().table == table.now.version == 4


def test_the_table_is_fenced_before_the_id_is_taken(kafka, table, process):
    run(process(), 0)
    kafka.before("InitProducerId", lambda: table.log.append("InitProducerId"))
    run(process(), 1, run="another run")
    assert table.log[-3:] == ["fence", "InitProducerId", "commit"]


# What a process does last, and whether the batch is decided by then.
LAST = {
    "before InitProducerId": (lambda kafka, table: kafka.before("InitProducerId", kill), False),
    "before it appends": (lambda kafka, table: kafka.before("Produce", kill), False),
    "before its offsets": (lambda kafka, table: kafka.before("TxnOffsetCommit", kill), False),
    "before the table's commit": (lambda kafka, table: setattr(table, "before", kill), False),
    "after the table's commit": (lambda kafka, table: setattr(table, "after", kill), True),
    "before EndTxn": (lambda kafka, table: setattr(table, "after", lambda: kafka.before("EndTxn", kill)), True),
    "after EndTxn": (
        lambda kafka, table: setattr(table, "after", lambda: kafka.meets.update(EndTxn=answered_and_killed(kafka))),
        True,
    ),
}


def answered_and_killed(kafka):
    def meet(_request, answer):
        del kafka.meets["EndTxn"]
        answer()
        raise Killed

    return meet


@pytest.mark.parametrize("timed_out", [False, True], ids=["in time", "after the timeout"])
@pytest.mark.parametrize("first", [True, False], ids=["the first batch", "a later batch"])
@pytest.mark.parametrize("last", LAST)
def test_a_killed_process_is_followed_by_one_that_completes_both(kafka, table, process, last, first, timed_out):
    number = 0
    if not first:
        run(process(), 0)
        number = 1
    happens, decided = LAST[last]
    happens(kafka, table)
    killed(process(), number, run="killed")
    if timed_out:
        kafka.time_out()
    again = last == "after EndTxn"
    next_one = process()
    report = run(next_one, number, run="next")
    skipped = decided and (again or not timed_out)
    assert report.outcome == ("skipped" if skipped else "committed")
    both_have(kafka, table, *range(number + 1))
    run(next_one, number + 1, run="next")
    both_have(kafka, table, *range(number + 2))


@pytest.mark.parametrize("deaths", [["after the table's commit", "before it appends"], ["before EndTxn"] * 2])
def test_a_batch_that_is_appended_again_may_be_killed_again(kafka, table, process, deaths):
    run(process(), 0)
    for number, last in enumerate(deaths):
        happens, _ = LAST[last]
        if number and last == "before EndTxn":  # this time without the table
            kafka.before("EndTxn", kill)
        else:
            happens(kafka, table)
        killed(process(), 1, run=f"killed {number}")
        kafka.time_out()
    assert run(process(), 1, run="last").outcome == "committed"
    both_have(kafka, table, 0, 1)


def test_a_process_that_finishes_a_batch_keeps_no_epoch_of_its_owner(kafka, table, process):
    run(process(), 0)
    LAST["after the table's commit"][0](kafka, table)
    owner = process()
    killed(owner, 1, run="killed")
    finisher = process()
    assert run(finisher, 1, run="next").outcome == "skipped"
    assert not finisher.steps.holds


# -- the same process goes on


def test_a_commit_whose_answer_is_lost_is_found_in_the_table(kafka, table, process):
    transaction = process()
    table.after = fail
    report = run(transaction, 0)
    assert (report.outcome, report.redone) == ("committed", ())
    run(transaction, 1)
    both_have(kafka, table, 0, 1)


def test_a_commit_that_failed_is_fenced_and_the_batch_is_written_anew(kafka, table, process):
    transaction = process()
    table.before = fail
    report = run(transaction, 0)
    assert report.outcome == "committed"
    assert report.redone == ("the table's commit of batch 0 failed (Lost: the connection)",)
    run(transaction, 1)
    both_have(kafka, table, 0, 1)


def test_a_commit_that_arrives_after_its_failure_was_settled_conflicts(kafka, table, process):
    late = []

    def delayed():
        late.append((rows_of(0), "a token", table.now.version))
        fail()

    table.before = delayed
    run(process(), 0)
    rows, token, after = late[0]
    with pytest.raises(Conflict):
        table.commit(rows, token, after=after)
    both_have(kafka, table, 0)


def test_a_table_that_always_fails_ends_the_batch_with_nothing_in_either(kafka, table, process):
    def never():
        commits.append(table.now)
        table.before = never
        fail()

    commits: list[TableVersion] = []
    table.before = never
    with pytest.raises(AttemptsExhausted, match="Lost: the connection") as ended:
        run(process(), 0, max_attempts=3)
    assert (ended.value.committed, len(commits)) == ("nothing", 3)
    both_have(kafka, table)


def test_of_an_error_of_the_jvm_the_message_has_the_causes_and_not_the_stack(kafka, table, process):
    def fails():
        raise Lost(
            "An error occurred while calling o1.getResult.\n: org.apache.spark.SparkException: Job aborted\n"
            "\tat org.apache.spark.A.b(A.scala:1)\nCaused by: java.io.IOException: disk full\n\t... 3 more\n"
        )

    table.before = fails
    with pytest.raises(AttemptsExhausted) as ended:
        run(process(), 0, max_attempts=1)
    causes = "o1.getResult. : org.apache.spark.SparkException: Job aborted Caused by: java.io.IOException: disk full"
    assert f"(Lost: An error occurred while calling {causes})" in str(ended.value)


@pytest.mark.parametrize("applied", [True, False])
def test_if_the_table_cannot_be_asked_what_became_of_it_the_next_start_settles_it(kafka, table, process, applied):
    transaction = process()
    run(transaction, 0)

    def gone():
        table.unasked = fail
        fail()

    setattr(table, "after" if applied else "before", gone)
    with pytest.raises(
        CommitOutcomeUnknown, match=r"batch 1 failed \(Lost: .*could not be determined \(Lost"
    ) as unknown:
        run(transaction, 1)
    assert unknown.value.committed == "unknown"
    assert kafka.transactions.coordinators["id"].phase.name == "ONGOING"
    table.unasked = nothing
    next_one = process()
    assert run(next_one, 1, run="next").outcome == ("skipped" if applied else "committed")
    run(next_one, 2, run="next")
    both_have(kafka, table, 0, 1, 2)


def fail() -> None:
    raise Lost("the connection")


def test_a_table_that_cannot_be_read_at_the_start_leaves_kafka_alone(kafka, table, process):
    table.unasked = fail
    with pytest.raises(TableFailed, match="cannot be read"):
        run(process(), 0)
    assert kafka.sent("InitProducerId") == []


def test_the_same_blocks_are_appended_again_if_the_timeout_passed_after_the_tables_commit(kafka, table, process):
    transaction = process()
    run(transaction, 0)
    table.after = kafka.time_out
    report = run(transaction, 1)
    assert report.outcome == "committed"
    assert len(report.redone) == 1
    assert "kafka.transaction.timeout.ms" in report.redone[0]
    run(transaction, 2)
    both_have(kafka, table, 0, 1, 2)
    assert table.log.count("commit") == 3


def test_a_timeout_before_the_tables_commit_leaves_the_table_alone(kafka, table, process):
    transaction = process()
    original = transaction.steps.ledger.send

    def send(*arguments, **options):
        entry = original(*arguments, **options)
        transaction.steps.ledger.send = original
        kafka.time_out()
        return entry

    transaction.steps.ledger.send = send
    report = run(transaction, 0)
    assert len(report.redone) == 1
    assert table.log == ["fence", "commit"]
    both_have(kafka, table, 0)


def test_if_the_attempts_are_used_up_the_error_says_what_the_table_has(kafka, table, process):
    table.after = kafka.time_out
    with pytest.raises(AttemptsExhausted) as ended:
        run(process(), 0, max_attempts=1)
    assert ended.value.committed == "table"
    assert "The table has the batch, and Kafka does not show it yet" in str(ended.value)
    assert run(process(), 0, run="next").outcome == "committed"
    both_have(kafka, table, 0)


def test_an_unanswered_end_of_a_decided_batch_is_left_to_the_next_start(kafka, table, process):
    transaction = process()
    run(transaction, 0)
    taken = len(kafka.sent("InitProducerId")) + (kafka.version < 2)  # TV1: one for each batch
    kafka.meets["EndTxn"] = lost
    with pytest.raises(CommitOutcomeUnknown, match="the table has batch 1") as unknown:
        run(transaction, 1)
    assert unknown.value.committed == "table"
    assert len(kafka.sent("InitProducerId")) == taken, "that would have aborted what the table has"
    assert {request.committed for request in kafka.sent("EndTxn")} == {True}
    kafka.meets.clear()
    assert run(process(), 1, run="next").outcome == "skipped"
    both_have(kafka, table, 0, 1)


def test_an_end_whose_answer_is_lost_is_found_at_the_coordinator(kafka, table, process):
    transaction = process()

    def meet(_request, answer):
        answer()

    kafka.meets["EndTxn"] = meet
    report = run(transaction, 0)
    kafka.meets.clear()
    assert (report.outcome, report.redone) == ("committed", ())
    run(transaction, 1)
    both_have(kafka, table, 0, 1)


# -- what errors say of a batch that only the table has


@pytest.mark.parametrize("api", ["FindCoordinator", "DescribeTransactions", "InitProducerId", "OffsetFetch"])
def test_an_error_before_a_batch_is_appended_again_says_that_the_table_has_it(kafka, table, process, api):
    run(process(), 0)
    LAST["after the table's commit"][0](kafka, table)
    killed(process(), 1, run="killed")
    kafka.time_out()
    kafka.meets[api] = lost
    with pytest.raises(BrokerUnreachable) as failed:
        run(process(), 1, run="next")
    assert failed.value.committed == "table"
    kafka.meets.clear()
    run(process(), 1, run="last")
    both_have(kafka, table, 0, 1)


@pytest.mark.parametrize("api", ["DescribeTransactions", "InitProducerId"])
def test_an_error_between_two_attempts_says_that_the_table_has_the_batch(kafka, table, process, api):
    transaction = process()
    run(transaction, 0)
    original = table.commit

    def commit(rows, token, *, after):
        original(rows, token, after=after)
        if rows is None:  # the fence that follows the timeout
            kafka.meets[api] = lost

    def late():
        kafka.time_out()
        table.commit = commit

    table.after = late
    with pytest.raises(BrokerUnreachable) as failed:
        run(transaction, 1)
    assert failed.value.committed == "table"
    assert "The table has the batch, and Kafka does not show it yet" in str(failed.value)
    kafka.meets.clear()
    table.commit = original
    run(process(), 1, run="next")
    both_have(kafka, table, 0, 1)


def test_a_driver_that_is_overtaken_while_only_the_table_has_its_batch_says_so(kafka, table, process):
    first, second = process(), process()
    run(first, 0, run="first")

    def overtaken():
        kafka.time_out()
        kafka.before("Produce", kill)
        killed(second, 1, run="second")

    table.after = overtaken
    with pytest.raises(ProducerFenced) as ended:
        run(first, 1, run="first")
    assert ended.value.committed == "table"
    with pytest.raises(ProducerFenced) as ended:
        first.begin(batch(1, run="first"))
    assert ended.value.committed == "table"


@pytest.mark.parametrize("number", [1, 2], ids=["the table's batch", "another batch"])
def test_an_open_transaction_that_cannot_be_committed_is_that_of_the_tables_batch_only(kafka, table, process, number):
    run(process(), 0)
    LAST["after the table's commit"][0](kafka, table)
    killed(process(), 1, run="killed")
    kafka.meets["EndTxn"] = lost
    with pytest.raises(CommitOutcomeUnknown, match="its Kafka transaction could not be committed") as failed:
        run(process(), number, run="next")
    assert failed.value.committed == ("table" if number == 1 else "unknown")


def test_an_error_says_nothing_of_the_table_if_kafka_has_its_batch_too(kafka, table, process):
    transaction = process()
    for number in range(2):
        run(transaction, number)
    kafka.meets["Produce"] = lost
    with pytest.raises(KafkaEosError) as failed:
        run(transaction, 2)
    assert failed.value.committed == "nothing"
    kafka.meets.clear()
    with pytest.raises(LedgerRefused) as refused:  # a checkpoint from before the table's last batch
        run(process(), 1, run="next", digest="planned again")
    assert refused.value.committed == "nothing"


# -- two drivers


def test_a_driver_whose_successor_has_fenced_the_table_ends_and_aborts_nothing_of_it(kafka, table, process):
    first, second = process(), process()
    run(first, 0, run="first")
    table.before = lambda: run(second, 1, run="second")
    with pytest.raises(ProducerFenced) as ended:
        run(first, 1, run="first")
    assert must_not_restart(ended.value)
    both_have(kafka, table, 0, 1)
    run(second, 2, run="second")
    both_have(kafka, table, 0, 1, 2)


def test_after_its_successors_fence_a_driver_commits_nothing_to_the_table_even_if_the_successor_dies(
    kafka, table, process
):
    first, second = process(), process()
    run(first, 0, run="first")

    def dies():
        kafka.before("Produce", kill)
        killed(second, 1, run="second")

    table.before = dies
    with pytest.raises(ProducerFenced):
        run(first, 1, run="first")
    both_have(kafka, table, 0)
    run(process(), 1, run="third")
    both_have(kafka, table, 0, 1)


def test_a_commit_that_comes_before_the_successors_fence_is_finished_by_the_successor(kafka, table, process):
    first, second = process(), process()
    run(first, 0, run="first")
    table.after = lambda: run(second, 1, run="second")
    report = run(first, 1, run="first")  # the transaction is committed, by whom does not matter
    assert report.outcome == "committed"
    both_have(kafka, table, 0, 1)
    run(second, 2, run="second")
    with pytest.raises((ProducerFenced, LedgerRefused)) as ended:
        run(first, 2, run="first")
    assert must_not_restart(ended.value)
    both_have(kafka, table, 0, 1, 2)


def test_a_live_drivers_commit_during_a_look_is_no_lost_commit(kafka, table, process):
    live, late = process(), process()
    run(live, 0, run="live")

    def meanwhile():
        if table.asked == asked + 1:
            held = table.now
            run(live, 1, run="live")
            table.now, newer = held, table.now  # the answer was on its way
            table.unasked = lambda: setattr(table, "now", newer)

    asked = table.asked
    table.unasked = meanwhile
    assert run(late, 1, run="late").outcome == "skipped"
    both_have(kafka, table, 0, 1)


def test_a_late_driver_leaves_table_and_id_alone(kafka, table, process):
    late, live = process(), process()
    run(late, 0, run="late")
    run(live, 1, run="live")
    run(live, 2, run="live")
    before = table.now, len(kafka.sent("InitProducerId"))
    with pytest.raises((ProducerFenced, LedgerRefused)):
        run(process(), 1, run="late")
    assert (table.now, len(kafka.sent("InitProducerId"))) == before


def test_a_table_that_changes_at_each_look_stops_the_driver(kafka, table, process):
    def conflict(*_arguments, **_options):
        raise Conflict

    table.commit = conflict
    with pytest.raises(ProducerFenced, match="changed 5 times"):
        run(process(), 0)
    assert kafka.sent("InitProducerId") == []


# -- refusals


def test_a_batch_that_is_computed_with_other_rows_is_refused(kafka, table, process):
    LAST["after the table's commit"][0](kafka, table)
    killed(process(), 0, run="killed")
    kafka.time_out()
    with pytest.raises(LedgerRefused, match="whose 2 records .* now has 3") as refused:
        run(process(), 0, values=[*rows_of(0), b"random"], run="next")
    assert refused.value.committed == "table"
    assert (kafka.values, table.rows) == ([], rows_of(0))
    assert run(process(), 0, run="next").outcome == "committed"
    both_have(kafka, table, 0)


def test_a_new_plan_of_a_batch_that_only_the_table_has_is_refused(kafka, table, process):
    LAST["after the table's commit"][0](kafka, table)
    killed(process(), 0, run="killed")
    kafka.time_out()
    with pytest.raises(LedgerRefused, match="with other source offsets"):
        run(process(), 0, run="next", digest="planned again")
    assert kafka.values == []


def test_a_query_with_a_new_checkpoint_commits_what_the_lost_one_prepared(kafka, table, process):
    run(process(), 0)
    LAST["after the table's commit"][0](kafka, table)
    killed(process(), 1, run="killed")
    with pytest.raises(LedgerRefused):  # it starts where batch 0 ended, and now batch 1 is committed
        run(process(), 0, query_id="new", sources=reads({SOURCE: 1}, {SOURCE: 2}), run="next")
    both_have(kafka, table, 0, 1)


def test_a_query_with_a_new_checkpoint_is_refused_if_what_the_lost_one_prepared_has_timed_out(kafka, table, process):
    run(process(), 0)
    LAST["after the table's commit"][0](kafka, table)
    killed(process(), 1, run="killed")
    kafka.time_out()
    with pytest.raises(
        LedgerRefused, match="whose Kafka transaction is over, but this is batch 0 of query new"
    ) as refused:
        run(process(), 0, query_id="new", sources=reads({SOURCE: 1}, {SOURCE: 2}), run="next")
    assert refused.value.committed == "nothing"
    assert (kafka.values, table.rows) == (rows_of(0), rows_of(0) + rows_of(1))
    run(process(), 1, run="restored")
    both_have(kafka, table, 0, 1)


@pytest.mark.parametrize("lost_token", [True, False])
def test_a_table_that_lost_a_commit_is_refused(kafka, table, process, lost_token):
    transaction = process()
    run(transaction, 0)
    older = table.now
    run(transaction, 1)
    table.now = TableVersion() if lost_token else older
    with pytest.raises(LedgerRefused, match="at version 0" if lost_token else "has batch 0 .* Kafka has batch 1"):
        run(process(), 2, run="next")


@pytest.mark.parametrize("older", [0, 1], ids=["none of it", "an older copy"])
def test_a_table_that_goes_back_under_a_running_query_is_named_and_no_other_driver(kafka, table, process, older):
    transaction, versions = process(), []
    for number in range(2):
        run(transaction, number)
        versions.append(table.now)
    table.now = [TableVersion(), versions[0]][older]
    with pytest.raises(TableFailed, match=f"was at version 3 of this query, and is at version {2 * older}") as failed:
        run(transaction, 2)
    assert (failed.value.committed, must_not_restart(failed.value)) == ("nothing", False)
    assert kafka.transactions.coordinators["id"].at_rest, "readers of the topic do not wait for its timeout"
    assert table.log == ["fence", "commit", "commit"], "a fence could bring it to the version of a late commit"
    with pytest.raises(LedgerRefused):
        run(process(), 2, run="next")
    table.now = versions[1]
    assert run(process(), 2, run="next").outcome == "committed"
    both_have(kafka, table, 0, 1, 2)


@pytest.mark.parametrize("error", [Lost("the connection"), TableFailed("rollback failed", committed="unknown")])
def test_a_commit_without_an_answer_to_a_table_that_goes_back_may_still_come(kafka, table, process, error):
    def fails_over():
        table.now = TableVersion()
        raise error

    transaction = process()
    run(transaction, 0)
    table.before = fails_over
    with pytest.raises(CommitOutcomeUnknown, match="is at version 0"):
        run(transaction, 1)
    assert kafka.transactions.coordinators["id"].phase.name == "ONGOING"


def test_a_table_that_goes_back_while_kafkas_transaction_times_out_is_named(kafka, table, process):
    transaction = process()
    run(transaction, 0)

    def goes_back():
        kafka.time_out()
        table.now = TableVersion()

    table.after = goes_back
    with pytest.raises(TableFailed, match="was at version 3 of this query, and is at version 0") as failed:
        run(transaction, 1)
    assert failed.value.committed == "unknown"


def test_a_table_that_others_restored_under_a_running_query_is_refused_with_its_own_words(kafka, table, process):
    def restored():
        raise TableFailed("sales was restored", action="RESTORE it.")

    transaction = process()
    run(transaction, 0)
    table.before = table.unasked = restored
    with pytest.raises(TableFailed, match="sales was restored") as failed:
        run(transaction, 1)
    assert failed.value.committed == "nothing"
    assert kafka.transactions.coordinators["id"].at_rest
    with pytest.raises(TableFailed, match="sales was restored") as failed:
        run(process(), 1, run="next")
    assert failed.value.committed == "unknown", "of what the driver before has done"
    table.unasked = nothing
    assert run(process(), 1, run="next").outcome == "committed"
    both_have(kafka, table, 0, 1)


@pytest.mark.parametrize("end", ["ended", "killed", "timed out"])
def test_on_another_cluster_the_table_says_where_its_batch_is_and_with_a_new_key_it_takes_part_again(
    kafka, table, process, end
):
    run(process(), 0)
    if end != "ended":
        LAST["after the table's commit"][0](kafka, table)
        killed(process(), 1, run="killed")
    if end == "timed out":
        kafka.time_out()
    other = Kafka(2)

    def meet(_request, answer):
        found = answer()
        found.cluster_id = "other"
        return found

    other.meets["Metadata"] = meet
    held, rows = table.now, list(table.rows)
    for number in (1, 2):
        with pytest.raises(LedgerRefused, match="together with the Kafka cluster model, but the sink's is other"):
            run(driver(other, table), number, run="moved")
    assert (table.now, table.rows, other.values) == (held, rows, [])
    run(process(), 1, run="back")
    both_have(kafka, table, 0, 1)
    table.now = TableVersion()  # as with a new key
    run(driver(other, table, replace(OPTIONS, resolve="write:none/query.2.digest 2")), 2, run="moved")
    assert (table.rows, other.values) == (rows_of(0) + rows_of(1) + rows_of(2), rows_of(2))
    assert '"cluster":"other"' in table.now.token


def test_a_second_call_that_came_too_late_leaves_the_table_as_it_is(kafka, table, process):
    transaction = process()
    run(transaction, 0)
    held = table.now
    transaction.note_incomplete(batch(0))
    assert kafka.entry().incomplete
    assert kafka.entry().table == held.version
    assert table.now == held
    with pytest.raises(LedgerRefused, match="incomplete") as refused:
        run(process(), 1, run="next")
    assert "kafka-eos query resolve id --bootstrap-servers b:1 --table MODULE:NAME`" in refused.value.action
