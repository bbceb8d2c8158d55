"""Which batches this process has begun, and which of them are known not to be committed."""

from __future__ import annotations

import pytest

from spark_kafka_eos.transaction.begun import BatchMark, BegunBatches, begun_batches


@pytest.fixture
def batches() -> BegunBatches:
    return BegunBatches()


def ended(batches: BegunBatches, batch_id: int, outcome, *, cluster: str | None = "c", **given) -> BatchMark:
    begun = batches.begin(batch_id, given.pop("name", "t"), **given)
    begun.cluster = cluster
    batches.failed(begun)
    batches.end(begun, outcome)
    return begun


def of_next(batches: BegunBatches, batch_id: int, *, name: str = "t", cluster: str | None = "c"):
    """What is known when this batch begins: those that failed, and the last one that was begun."""
    begun = batches.begin(batch_id, name)
    begun.cluster = cluster
    return batches.failed(begun), batches.last(begun)


def test_nothing_is_known_of_a_run_that_has_begun_nothing(batches):
    assert of_next(batches, 3) == ((), None)


@pytest.mark.parametrize(
    ("outcome", "failed"), [("committed", ()), ("unknown", ()), ("failed", (1,)), ("running", (1,))]
)
def test_a_batch_that_did_not_end_in_a_commit_has_failed_unless_the_ledger_must_say_so(batches, outcome, failed):
    ended(batches, 0, "committed")
    ended(batches, 1, outcome)
    assert of_next(batches, 2) == (failed, 1)
    assert of_next(batches, 1) == ((), 0), "it is itself no earlier one"


def test_a_batch_that_is_begun_again_after_its_failure_and_committed_has_not_failed(batches):
    ended(batches, 1, "failed")
    ended(batches, 1, "failed", cluster=None)
    ended(batches, 1, "committed")
    assert of_next(batches, 2) == ((), 1)


def test_a_batch_that_is_begun_twice_at_once_has_failed_if_one_of_both_has(batches):
    first = batches.begin(1, "t")
    ended(batches, 1, "committed")
    batches.end(first, "failed")
    assert of_next(batches, 2) == ((1,), 1)


def test_a_call_that_comes_late_fails_for_the_batches_after_those_that_are_written(batches):
    for number in (0, 2):
        ended(batches, number, "committed")
    ended(batches, 1, "failed")
    assert of_next(batches, 3) == ((1,), 2)


def test_what_a_verdict_knew_of_is_settled_by_the_commit_that_it_allowed(batches):
    ended(batches, 1, "failed")
    ended(batches, 2, "committed")  # by the operator's word
    assert of_next(batches, 3) == ((), 2)


def test_a_batch_that_still_runs_when_the_operator_goes_on_fails_for_the_ones_after(batches):
    running = batches.begin(1, "t")
    ended(batches, 2, "committed")
    batches.end(running, "failed")
    assert of_next(batches, 3) == ((1,), 2)


def test_another_transactional_id_or_cluster_has_its_own_batches_and_what_is_not_known_may_be_any(batches):
    ended(batches, 1, "failed")
    assert of_next(batches, 2, name="u") == ((), None)
    assert of_next(batches, 2, cluster="d") == ((), None)
    ended(batches, 1, "failed", cluster=None)  # before a broker was reached
    assert of_next(batches, 2, cluster="d") == ((1,), 1)
    ended(batches, 1, "failed", cluster=None, name=None)  # no writer could be made
    assert of_next(batches, 2, name="u", cluster="d") == ((1,), 1)


def test_at_least_once_another_call_settles_no_call_that_failed(batches):
    ended(batches, 1, "failed", name="", repeatable=True)
    ended(batches, 1, "committed", name="", repeatable=True)
    assert of_next(batches, 2, name="") == ((1,), 1)


def test_of_many_batches_only_the_last_ones_are_kept(batches):
    for number in range(1_000):
        ended(batches, number, "committed")
    assert of_next(batches, 1_000) == ((), 999)
    assert len(batches._begun) < 5


def test_a_new_run_of_a_query_knows_nothing_of_the_last_one():
    batches = begun_batches("of this test", "one")
    ended(batches, 1, "failed")
    assert begun_batches("of this test", "one") is batches
    assert begun_batches("of this test, another", "one") is not batches
    assert of_next(begun_batches("of this test", "two"), 2) == ((), None)
