"""What TransactionalWriter does around a batch: the preflight, the calls it refuses, what it leaves to Spark; what a
batch does is tested on a broker (tests/spark)."""

from __future__ import annotations

import gc
import itertools
import pickle
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from spark_kafka_eos.core.append_mode import FIRST_BYTES_PER_OFFSET, Choice
from spark_kafka_eos.errors import (
    CommitOutcomeUnknown,
    Committed,
    IllegalTransactionState,
    InvalidRow,
    KafkaEosError,
    PreflightFailed,
)
from spark_kafka_eos.model import MicroBatch, TopicPartition
from spark_kafka_eos.spark import writer as module
from spark_kafka_eos.spark.writer import TransactionalWriter

ORDERS = TopicPartition("orders", 0)
FRAME = SimpleNamespace(sparkSession=None)
OPTIONS = {"kafka.bootstrap.servers": "b:1", "kafka.transactional.id": "t", "topic": "a", "appendMode": "driver"}
_runs = itertools.count()


@pytest.fixture
def query(tmp_path):
    """The running query, in a run of its own; a test may change what it is asked for."""

    def batch(number):
        return MicroBatch(query_id="q", batch_id=number, digest="", start={ORDERS: 0}, end={ORDERS: 10})

    return SimpleNamespace(
        checkpoint_location=str(tmp_path),
        run_id=f"run {next(_runs)}",
        micro_batch=batch,
        needs_evaluation=lambda: False,
    )


@pytest.fixture
def steps(monkeypatch, query):
    """What a batch did, in order, with everything beyond the writer replaced."""
    taken = []

    def commit_batch(owner, batch, write, **_):
        taken.append(f"batch {batch.batch_id}")
        return SimpleNamespace(outcome="committed", bytes=700)

    monkeypatch.setattr(module, "RunningQuery", lambda frame, location: query)
    monkeypatch.setattr(module, "Cluster", lambda options: SimpleNamespace(close=lambda: taken.append("closed")))
    monkeypatch.setattr(module, "committer", lambda options, cluster, decide: "owner")
    monkeypatch.setattr(module, "preflight", lambda cluster, options: taken.append("preflight"))
    monkeypatch.setattr(module, "check_source_cluster", lambda cluster, options, batch: None)
    monkeypatch.setattr(module, "commit_batch", commit_batch)
    return taken


def run(writer, batch_id):
    with writer.transaction(FRAME, batch_id):
        pass


def test_the_preflight_runs_once_before_the_first_batch_whichever_that_is(steps):
    writer = TransactionalWriter(OPTIONS)
    run(writer, 7)
    run(writer, 8)
    assert steps == ["preflight", "batch 7", "batch 8"]


def test_a_batchs_size_is_reckoned_from_what_the_one_before_made_of_its_offsets(steps, monkeypatch):
    reckoned = []

    def choose(asked, session, batch, bytes_per_offset):
        reckoned.append(bytes_per_offset)
        return Choice(mode="driver", reason="")

    monkeypatch.setattr(module, "choose", choose)
    writer = TransactionalWriter(OPTIONS)
    run(writer, 0)
    run(writer, 1)
    assert reckoned == [FIRST_BYTES_PER_OFFSET, 70]


def test_a_writer_in_another_process_runs_it_again(steps):
    writer = TransactionalWriter(OPTIONS)
    run(writer, 0)
    other = pickle.loads(pickle.dumps(writer))
    run(other, 1)
    assert steps == ["preflight", "batch 0", "preflight", "batch 1"]


def test_a_writer_closes_its_connections_when_it_goes(steps):
    one, other = TransactionalWriter(OPTIONS), TransactionalWriter(OPTIONS)
    run(one, 0)
    run(other, 1)
    del one
    gc.collect()
    assert steps == ["preflight", "batch 0", "preflight", "batch 1", "closed"]


def test_after_an_error_nothing_is_begun_and_the_next_try_looks_again(steps, monkeypatch):
    def fail(cluster, options):
        steps.append("failed")
        raise PreflightFailed("the preflight found 1 error")

    monkeypatch.setattr(module, "preflight", fail)
    writer = TransactionalWriter(OPTIONS)
    for _ in range(2):
        with pytest.raises(PreflightFailed):
            run(writer, 0)
    assert steps == ["failed", "closed"] * 2


def settle_with(monkeypatch, steps, *outcomes):
    """Each batch ends so: in an error, or with this outcome."""
    left = list(outcomes)

    def commit_batch(owner, batch, write, **_):
        steps.append(f"batch {batch.batch_id}")
        outcome = left.pop(0)
        if isinstance(outcome, BaseException):
            raise outcome
        return SimpleNamespace(outcome=outcome, bytes=700)

    monkeypatch.setattr(module, "commit_batch", commit_batch)


class Noting(TransactionalWriter):
    """Writes down what it is told of incomplete batches."""

    noted: tuple[int, ...] = ()

    def _note_incomplete(self, batch: MicroBatch, committed: Committed) -> None:
        self.noted = (*self.noted, batch.batch_id)


@pytest.mark.parametrize("outcome", ["committed", "skipped"])
def test_a_second_call_for_a_batch_is_refused_and_the_batch_noted_as_incomplete(steps, monkeypatch, outcome):
    settle_with(monkeypatch, steps, outcome)
    writer = Noting(OPTIONS)
    run(writer, 7)
    for again in (writer, Noting(OPTIONS), pickle.loads(pickle.dumps(writer))):
        with pytest.raises(IllegalTransactionState, match="a second call for batch 7 .*ONE `with writer.transaction"):
            run(again, 7)
        assert again.noted == (7,)
    assert steps == ["preflight", "batch 7"]


def test_a_query_that_was_started_again_writes_the_batch_again(steps, query):
    writer = TransactionalWriter(OPTIONS)
    run(writer, 7)
    query.run_id = "another"
    run(writer, 7)
    assert steps == ["preflight", "batch 7", "batch 7"]


def test_a_call_that_failed_with_nothing_committed_may_be_made_again(steps, monkeypatch):
    settle_with(monkeypatch, steps, InvalidRow("no topic"), "committed")
    writer = Noting(OPTIONS)
    with pytest.raises(InvalidRow):
        run(writer, 7)
    run(writer, 7)
    assert writer.noted == ()


def test_after_an_unknown_outcome_that_error_is_the_only_one_and_no_second_call_is_let_in(steps, monkeypatch):
    def own(options, cluster, decide):
        steps.append("owner")
        if steps.count("owner") > 1:
            raise KafkaEosError("cannot connect to any broker")
        return "owner"

    monkeypatch.setattr(module, "committer", own)
    settle_with(monkeypatch, steps, CommitOutcomeUnknown("not answered"))
    writer = Noting(OPTIONS)
    with pytest.raises(CommitOutcomeUnknown):
        run(writer, 7)
    assert steps == ["preflight", "owner", "batch 7"]
    with pytest.raises(IllegalTransactionState, match="It is unknown"):
        run(writer, 7)
    assert writer.noted == (7,)


def test_an_interrupt_after_the_append_leaves_the_outcome_open_and_one_before_it_does_not(steps, monkeypatch):
    def interrupted_while_committing(owner, batch, write, **_):
        write("identity")
        raise KeyboardInterrupt

    settle_with(monkeypatch, steps, KeyboardInterrupt())
    monkeypatch.setattr(module, "StagedWrite", lambda *_: lambda identity: "appended")
    writer = TransactionalWriter(OPTIONS)
    with pytest.raises(KeyboardInterrupt):
        run(writer, 7)
    monkeypatch.setattr(module, "commit_batch", interrupted_while_committing)
    with pytest.raises(KeyboardInterrupt):
        run(writer, 7)
    with pytest.raises(IllegalTransactionState):
        run(writer, 7)


def test_a_second_threads_call_fails_at_once(steps, monkeypatch):
    entered, leave = threading.Event(), threading.Event()

    def commit_batch(owner, batch, write, **_):
        entered.set()
        leave.wait(30)
        return SimpleNamespace(outcome="committed", bytes=0)

    monkeypatch.setattr(module, "commit_batch", commit_batch)
    writer = Noting(OPTIONS)
    thread = threading.Thread(target=run, args=(writer, 7))
    thread.start()
    assert entered.wait(30)
    with pytest.raises(IllegalTransactionState, match="still running"):
        run(writer, 7)
    leave.set()
    thread.join()
    assert writer.last_commit is not None and writer.noted == (7,)


def test_at_least_once_a_batch_may_be_written_in_two_calls(steps):
    writer = TransactionalWriter(OPTIONS | {"deliveryGuarantee": "at-least-once"})
    run(writer, 7)
    run(writer, 7)
    assert steps == ["preflight", "batch 7", "batch 7"]


class Frame:
    """A frame that can be written to `noop`, which is all that is asked of it."""

    def __init__(self, error: Exception | None = None) -> None:
        self.sparkSession = None
        self.computed = 0
        self._error = error

    @property
    def write(self):
        return self

    def format(self, name):
        assert name == "noop"
        return self

    def mode(self, name):
        return self

    def save(self):
        self.computed += 1
        if self._error is not None:
            raise self._error


@pytest.mark.parametrize(
    ("outcome", "needed", "computed"), [("skipped", True, 1), ("skipped", False, 0), ("committed", True, 0)]
)
def test_a_batch_that_is_skipped_is_computed_if_spark_needs_it(steps, query, monkeypatch, outcome, needed, computed):
    settle_with(monkeypatch, steps, outcome)
    query.needs_evaluation = lambda: needed
    frame: Any = Frame()
    with TransactionalWriter(OPTIONS).transaction(frame, 7):
        pass
    assert frame.computed == computed


def test_a_skipped_batch_that_cannot_be_computed_says_that_it_is_committed(steps, query, monkeypatch):
    settle_with(monkeypatch, steps, "skipped")
    query.needs_evaluation = lambda: True
    writer = TransactionalWriter(OPTIONS)
    frame: Any = Frame(RuntimeError("the records are gone"))
    with (
        pytest.raises(KafkaEosError, match="was committed in an earlier run.*The transaction was committed."),
        writer.transaction(frame, 7),
    ):
        pass
