"""A second call for a micro-batch is distinguished from a batch that Spark repeats."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from spark_kafka_eos.errors import CommitOutcomeUnknown, IllegalTransactionState, InvalidRow, LedgerRefused
from spark_kafka_eos.options import sink_options
from spark_kafka_eos.transaction.calls import WriterCall, WriterCalls, calls_of

BATCH = WriterCall(run_id="r", query_id="q", batch_id=7)


@pytest.fixture
def calls() -> WriterCalls:
    return WriterCalls(repeatable=False)


@pytest.fixture
def told() -> list[str]:
    """An entry for each time that somebody was told of an incomplete batch."""
    return []


@pytest.fixture
def enter(calls, told):
    """`enter(call)`: a call that commits; with an error one that ends in it, before or after a commit was sent."""

    def enter(call: WriterCall = BATCH, error: BaseException | None = None, *, committing: bool = False) -> None:
        with calls.enter(call, incomplete=lambda _: told.append("incomplete")) as attempt:
            if committing:
                attempt.commit_begins()
            if error is not None:
                raise error

    return enter


def refused(enter, call: WriterCall = BATCH) -> IllegalTransactionState:
    with pytest.raises(IllegalTransactionState) as raised:
        enter(call)
    return raised.value


def test_a_second_call_for_a_batch_that_is_settled_is_refused_and_says_what_is_committed(enter, told):
    enter()
    error = refused(enter)
    assert str(error) == (
        "a second call for batch 7 of query q in the same run: the first call completed. The transaction was "
        "committed. It contains the first call's rows. This call's DataFrames are not written. Write all DataFrames of "
        "a batch in ONE `with writer.transaction(batch_df, batch_id)` block. "
        "More: kafka-eos explain IllegalTransactionState"
    )
    assert told == ["incomplete"]


def test_the_refused_call_changes_nothing_for_the_ones_after_it(enter, told):
    enter()
    refused(enter)
    refused(enter)
    enter(replace(BATCH, batch_id=8))
    assert told == ["incomplete"] * 2


@pytest.mark.parametrize("other", [{"run_id": "s"}, {"query_id": "p"}, {"batch_id": 8}, {"run_id": None}])
def test_another_run_query_or_batch_continues(enter, told, other):
    enter()
    enter(replace(BATCH, **other))
    assert told == []


def test_without_a_run_id_the_process_counts_as_one_run(enter):
    enter(replace(BATCH, run_id=None))
    refused(enter, replace(BATCH, run_id=None))


NOTHING = [InvalidRow("no topic"), LedgerRefused("x"), RuntimeError("a task failed"), KeyboardInterrupt()]


@pytest.mark.parametrize("error", NOTHING, ids=lambda error: type(error).__name__)
def test_after_a_call_that_committed_nothing_a_second_one_continues(enter, error):
    with pytest.raises(type(error)):
        enter(error=error)
    enter()


def test_an_error_that_says_nothing_was_committed_is_believed_even_after_a_commit_was_sent(enter):
    with pytest.raises(InvalidRow):
        enter(error=InvalidRow("x"), committing=True)
    enter()


def test_a_call_that_fails_when_it_appends_again_has_committed_nothing(calls, enter):
    def first() -> None:
        with calls.enter(BATCH, incomplete=lambda _: None) as attempt:
            attempt.commit_begins()
            attempt.appending()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        first()
    enter()


UNKNOWN = [CommitOutcomeUnknown("x"), LedgerRefused("x", committed="unknown"), KeyboardInterrupt(), OSError()]


@pytest.mark.parametrize("error", UNKNOWN, ids=lambda error: type(error).__name__)
def test_after_a_call_with_an_unknown_outcome_a_second_one_is_refused(enter, told, error):
    with pytest.raises(type(error)):
        enter(error=error, committing=True)
    second = refused(enter)
    assert second.committed == "unknown"
    assert "Let the first call's error stop the query." in str(second)
    assert told == ["incomplete"]


def test_a_call_that_committed_nothing_does_not_make_another_batchs_memory_last(enter):
    enter()
    with pytest.raises(InvalidRow):
        enter(replace(BATCH, run_id="s"), InvalidRow("x"))
    enter(replace(BATCH, run_id="s"))
    refused(enter, replace(BATCH, run_id="s"))


@pytest.mark.parametrize(
    ("second", "committed", "incomplete"),
    [(BATCH, "nothing", 0), (replace(BATCH, batch_id=8), "nothing", 0), (replace(BATCH, run_id="s"), "nothing", 0)],
)
def test_a_call_while_another_thread_is_in_one_is_refused_at_once(calls, enter, told, second, committed, incomplete):
    entered, leave = threading.Event(), threading.Event()

    def first() -> None:
        with calls.enter(BATCH, incomplete=lambda _: None):
            entered.set()
            leave.wait(30)

    thread = threading.Thread(target=first)
    thread.start()
    assert entered.wait(30)
    error = refused(enter, second)
    leave.set()
    thread.join()
    assert "still running" in str(error) and error.committed == committed
    assert told == ["incomplete"] * incomplete
    enter(replace(BATCH, batch_id=9))


def test_a_call_whose_batch_had_a_second_call_meanwhile_does_not_commit(calls, enter):
    def first() -> None:
        with calls.enter(BATCH, incomplete=lambda _: None) as attempt:
            assert "still running" in str(refused(enter))
            attempt.commit_begins()

    with pytest.raises(IllegalTransactionState, match="so neither is committed") as raised:
        first()
    assert raised.value.committed == "nothing"
    enter()


def test_a_call_for_another_batch_does_not_keep_the_running_one_from_committing(calls, enter):
    with calls.enter(BATCH, incomplete=lambda _: None) as attempt:
        refused(enter, replace(BATCH, batch_id=8))
        attempt.commit_begins()
    refused(enter)


def test_a_second_call_that_comes_during_the_commit_waits_for_it_and_makes_the_batch_incomplete(calls, told):
    told_of = threading.Event()

    def second() -> None:
        call = calls.enter(BATCH, incomplete=told.append)
        with pytest.raises(IllegalTransactionState, match="completed"):
            call.__enter__()
        told_of.set()

    with calls.enter(BATCH, incomplete=lambda _: None) as attempt:
        attempt.commit_begins()
        thread = threading.Thread(target=second)
        thread.start()
        assert not told_of.wait(0.2)
    thread.join(30)
    assert told == ["everything"]


def test_the_next_batch_waits_while_it_is_noted_that_the_last_one_is_incomplete(calls, enter):
    enter()
    admitted = threading.Event()

    def next_batch() -> None:
        with calls.enter(replace(BATCH, batch_id=8), incomplete=lambda _: None):
            admitted.set()

    thread = threading.Thread(target=next_batch)

    def note(_: str) -> None:
        thread.start()
        assert not admitted.wait(0.2)
        raise OSError("the note failed")

    with pytest.raises(OSError, match="the note failed"):
        calls.enter(BATCH, incomplete=note).__enter__()
    thread.join(30)
    assert admitted.is_set()


def options(**more: str):
    return sink_options({"kafka.bootstrap.servers": "a:1,b:2", "kafka.transactional.id": "t", "topic": "x"} | more)


def test_writers_of_one_transactional_id_on_one_cluster_share_their_calls_whatever_address_they_use():
    other_address = options(**{"kafka.bootstrap.servers": "c:1", "topic": "y"})
    assert calls_of(options(), "cluster") is calls_of(other_address, "cluster")
    assert calls_of(options(), "cluster") is not calls_of(options(**{"kafka.transactional.id": "u"}), "cluster")
    assert calls_of(options(), "cluster") is not calls_of(options(), "another")


def test_two_first_calls_at_the_same_time_know_of_each_other(monkeypatch):
    together, create = threading.Barrier(2), WriterCalls.__init__

    def beside_another(self, **given):
        together.wait(30)
        create(self, **given)

    monkeypatch.setattr(WriterCalls, "__init__", beside_another)
    with ThreadPoolExecutor(2) as threads:
        one, other = threads.map(lambda _: calls_of(options(), "a cluster of this test"), range(2))
    assert one is other


def test_clusters_without_an_id_are_told_apart_by_their_addresses():
    assert calls_of(options(), "") is calls_of(options(**{"kafka.bootstrap.servers": "b:2,a:1"}), "")
    assert calls_of(options(), "") is not calls_of(options(**{"kafka.bootstrap.servers": "c:1"}), "")


def test_at_least_once_a_batch_may_be_written_twice_and_each_writer_is_for_itself():
    relaxed = options(deliveryGuarantee="at-least-once")
    assert calls_of(relaxed, "cluster") is not calls_of(relaxed, "cluster")
    for _ in range(2):
        with calls_of(relaxed, "cluster").enter(BATCH, incomplete=lambda _: None):
            pass
    calls = calls_of(relaxed, "cluster")
    for _ in range(2):
        with calls.enter(BATCH, incomplete=lambda _: None):
            pass


def test_at_least_once_calls_go_one_at_a_time_and_no_batch_is_incomplete_for_good(told):
    calls = WriterCalls(repeatable=True)
    with (
        calls.enter(BATCH, incomplete=lambda _: None),
        pytest.raises(IllegalTransactionState, match="still running"),
        calls.enter(BATCH, incomplete=lambda _: told.append("incomplete")),
    ):
        raise AssertionError("the second call was let in")
    assert told == []
