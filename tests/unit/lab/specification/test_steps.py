"""What the simulation records, as steps of the specification."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lab.simulation.conditions import Conditions
from lab.simulation.record import (
    Answer,
    Append,
    Arrived,
    Began,
    Marked,
    Planned,
    RanAgain,
    Recording,
    Request,
    Requested,
    Shown,
    Stopped,
)
from lab.simulation.run import recorded
from lab.specification.steps import GROUP, LEDGER, SOURCE, Outside, translate
from lab.specification.values import parse, text
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.ledger.entry import LedgerEntry, SourceProgress

IN = (TopicPartition("in", 0), TopicPartition("in", 1))
OUT = (TopicPartition("out", 0), TopicPartition("out", 1))
GROUPS = {"id.ledger": TopicPartition("__consumer_offsets", 0), "id": TopicPartition("__consumer_offsets", 1)}


def at(*offsets):
    return dict(zip(IN, offsets, strict=True))


BEGAN = Began("driver 1", 0, "query 1", (), 0, 0)
PLANNED = Planned("driver 1", 0, at(0, 0), at(2, 1))


def recording(*steps, answered=(), refused=(), **more):
    known: dict[str, Any] = {"seed": 5, "version": 2, "way": "driver", "first_epoch": -1, "flags": "", "wrong": ()}
    return Recording(
        **known | {"faults": frozenset(), "groups": GROUPS} | more,
        steps=(BEGAN, PLANNED, *steps),
        answered=frozenset(answered),
        refused=frozenset(refused),
    )


def asked(number, api, *, codes=(0,), state="", returned=-1, at_s=0.0, straggles=False, **request):
    """A request that arrives at once."""
    sent = Requested(number, at_s, "driver 1", straggles, Request(api=api, **request))
    return sent, Arrived(number, at_s, Answer(codes=codes, state=state, epoch=returned))


def produce(number, *appends, epoch=0, **more):
    return asked(number, "Produce", epoch=epoch, appends=appends, codes=(0,) * len(appends), **more)


def rows(partition, *places, sequence=0):
    return Append(partition=OUT[partition], sequence=sequence, rows=places)


def steps_after_start(*steps, **more):
    """The trace's steps after the first one, which starts the run."""
    trace = translate(recording(*steps, **more))
    assert not isinstance(trace, Outside), trace.what
    assert trace.steps[0] == {"kind": "starts", "run": 1, "checkpoint": 1, "new": (), "end": 3}
    return list(trace.steps[1:])


def test_an_answered_request_is_one_step_with_its_answer():
    (step,) = steps_after_start(*asked(1, "InitProducerId", returned=0), answered=[1])
    assert step == {"kind": "initialises", "run": 1, "epoch": -1, "code": "NONE", "returned": 0}


def test_a_request_without_an_answer_is_a_step_of_its_sender_and_may_arrive_later():
    sent, arrived = asked(1, "EndTxn", epoch=3, commit=True)
    first, second = steps_after_start(sent, arrived)
    assert first == {"kind": "ends transaction", "run": 1, "epoch": 3, "commit": True, "code": "unanswered"}
    assert (second["kind"], second["api"], second["code"]) == ("arrives", "EndTxn(commit)", "NONE")
    assert steps_after_start(sent) == [first], "it was lost"


def test_a_request_that_a_broker_refused_without_handling_it_is_no_step():
    sent, _ = asked(1, "InitProducerId")
    assert steps_after_start(sent, refused=[1]) == []


def test_a_request_to_the_wrong_broker_is_no_step():
    assert steps_after_start(*asked(1, "InitProducerId", codes=(16,)), answered=[1]) == []


def test_the_rows_of_two_partitions_are_numbered_in_the_order_of_the_batches():
    (step,) = steps_after_start(*produce(1, rows(1, (0, 1), (1, 0))), answered=[1])
    assert step["partition"] == 2
    assert step["records"] == (2, 3)
    assert step["layout"] == ((1,), (2, 3), ())


def test_the_record_batches_of_one_task_are_one_append():
    steps = steps_after_start(
        *produce(1, rows(0, (0, 0))), *produce(2, rows(0, (0, 1), (1, 0), sequence=1)), answered=[1, 2]
    )
    assert [(step["kind"], step["records"]) for step in steps] == [("appends", (1, 2, 3))]


def test_record_batches_with_a_fault_among_them_are_outside():
    lost = produce(2, rows(0, (0, 1), sequence=1))
    assert translate(recording(*produce(1, rows(0, (0, 0))), *lost, answered=[1])) == Outside(
        5, "several record batches for a partition, with a fault among them"
    )


def test_one_request_with_two_partitions_is_two_appends():
    steps = steps_after_start(*produce(1, rows(0, (0, 0)), rows(1, (0, 1), (1, 0))), answered=[1])
    assert [step["partition"] for step in steps] == [1, 2]


def test_a_straggler_is_not_its_driver():
    first, second = steps_after_start(RanAgain("driver 1"), *produce(1, rows(0, (0, 0)), straggles=True))
    assert first == {"kind": "runs again", "run": 1}
    assert (second["kind"], second["run"], second["parts"], second["records"]) == ("straggles", 1, {1}, (1,))


def test_each_group_has_a_partition_and_a_marker_of_its_own():
    ledger = asked(1, "TxnOffsetCommit", group="id.ledger", epoch=0)
    source = asked(2, "TxnOffsetCommit", group="id", epoch=0)
    after = asked(3, "DescribeTransactions", state="CompleteCommit", returned=1)
    steps = steps_after_start(
        *ledger, *source, *map(Marked, (*GROUPS.values(), TopicPartition("ledger", 0))), *after, answered=[1, 2, 3]
    )
    assert [step["partition"] for step in steps[:-1]] == [GROUP, SOURCE, GROUP, SOURCE, LEDGER]
    assert steps[-1] == {"kind": "describes", "run": 1, "state": "CompleteCommit", "epoch": 1}


@pytest.mark.parametrize(("took_s", "lasts"), [(59.0, 0), (61.0, 1)])
def test_an_attempt_that_lasts_longer_than_the_timeout_is_known_from_its_first_append_on(took_s, lasts):
    end = asked(2, "EndTxn", epoch=0, commit=True, codes=(90,), at_s=took_s)
    kinds = [step["kind"] for step in steps_after_start(*produce(1, rows(0, (0, 0))), *end, answered=[1, 2])]
    assert kinds == ["appends", *["lasts"] * lasts, "ends transaction"]


@pytest.mark.parametrize(
    ("error", "how"), [("", "finished"), ("ProducerFenced", "fenced"), ("LedgerRefused", "refused")]
)
def test_a_run_ends_as_its_driver_did(error, how):
    assert steps_after_start(Stopped("driver 1", error)) == [{"kind": "ends", "run": 1, "how": how}]


def test_a_checkpoint_that_is_lost_before_anything_was_planned_is_no_query():
    lost, next_one = Began("driver 0", 0, "query 1", (), 0, 0), replace(BEGAN, checkpoint=1, query="query 2")
    source = SourceProgress(cluster="", offsets=at(2, 1), start=at(0, 0))
    entry = LedgerEntry(
        query_id="query 2", batch_id=0, digest="", serial=1, run_id="driver 1", earlier_runs=(), sources=(source,)
    )
    sent, arrived = produce(1, Append(partition=TopicPartition("ledger", 0), sequence=0, entry=entry))
    found = translate(replace(recording(answered=[1]), steps=(lost, next_one, PLANNED, sent, arrived)))
    assert not isinstance(found, Outside), found.what
    assert found.steps[1]["entry"]["query"] == 1


def test_a_driver_that_failed_takes_no_more_steps():
    assert steps_after_start(Stopped("driver 1", "BrokerUnreachable")) == []


@pytest.mark.parametrize(
    ("what", "more"),
    [
        ("batch writes", {"way": "batch writes"}),
        ("a producer id that runs out of epochs", {"first_epoch": 32_760}),
        ("an outdated coordinator", {"faults": frozenset({"outdated coordinator"})}),
        ("conditions --expiry", {"flags": " --expiry"}),
    ],
)
def test_what_the_specification_does_not_have_is_outside(what, more):
    assert translate(recording(**more)) == Outside(5, what)


def test_batches_that_contain_each_other_in_part_are_outside():
    other = Planned("driver 1", 1, at(0, 0), at(1, 2))
    assert translate(recording(other)) == Outside(5, "batches of two source partitions that contain each other in part")


def test_a_row_that_no_batch_has_is_one_that_the_specifications_source_does_not_have():
    shown = Shown(OUT[0], ((0, 0), (0, 77)))
    trace = translate(recording(*produce(1, rows(0, (0, 0), (0, 77))), shown, answered=[1]))
    assert not isinstance(trace, Outside)
    assert trace.records == 3
    assert [step["records"] for step in trace.steps[1:]] == [(1, 4), (1, 4)]


def test_the_order_of_rows_of_the_only_source_partition_is_left_to_tlc():
    begins, ends = {IN[0]: 0}, {IN[0]: 2}
    trace = translate(
        replace(
            recording(answered=[1]),
            steps=(BEGAN, Planned("driver 1", 0, begins, ends), *produce(1, rows(0, (0, 1), (0, 0)))),
        )
    )
    assert not isinstance(trace, Outside)
    assert trace.steps[1]["records"] == (2, 1)
    of_two = Append(partition=OUT[0], sequence=0, rows=((0, 1), (0, 0)))
    assert isinstance(translate(recording(*produce(1, of_two), answered=[1])), Outside)


def test_recording_changes_no_history():
    from lab.simulation.history import live

    conditions = Conditions(late=True)
    for seed in range(20):
        history, found = live(seed, conditions=conditions), recorded(seed, conditions=conditions)
        assert (frozenset(history.faults), tuple(history.wrong)) == (found.faults, found.wrong)


def test_what_is_written_for_tlc_is_read_as_the_same():
    trace = next(found for seed in range(20) if not isinstance(found := translate(recorded(seed)), Outside))
    (first, *_) = parse(text(trace.steps))
    assert first == trace.steps[0]
