"""Scenario by scenario, then a model of Spark's checkpoint and Kafka's ledger under random crashes and restores."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from spark_kafka_eos.kafka.partitions import TopicPartition, offsets_to_json
from spark_kafka_eos.ledger.batch_refusals import unfinished
from spark_kafka_eos.ledger.ends import CommittedEnd, CommittedOffsets
from spark_kafka_eos.ledger.entry import BatchCounts, LedgerEntry, SourceProgress, digest
from spark_kafka_eos.ledger.refusal import Refuse, name_of
from spark_kafka_eos.ledger.source_mark import source_mark
from spark_kafka_eos.ledger.verdicts import Repeat, Skip, Verdict, Write, decide
from spark_kafka_eos.ledger.versions import MOST_RANGES, added, contains
from spark_kafka_eos.ledger.versions import last as last_version
from spark_kafka_eos.ledger.write_verdicts import MOST_DESTINATIONS, decide_batch_write, written
from spark_kafka_eos.micro_batch import MicroBatch, SourceRange
from spark_kafka_eos.source_offset import Origin, SinkIdentity
from tests.batches import reads

O0, O1, O2, P0 = (
    TopicPartition("orders", 0),
    TopicPartition("orders", 1),
    TopicPartition("orders", 2),
    TopicPartition("prices", 0),
)
START, END = {O0: 10, O1: 20}, {O0: 15, O1: 20}


def entry(batch_id: int, *, query_id: str = "ours", digest: str = "d") -> LedgerEntry:
    return LedgerEntry(query_id=query_id, batch_id=batch_id, digest=digest)


def batch(
    batch_id: int, *, query_id: str = "ours", digest: str = "d", start: dict[TopicPartition, int] | None = None
) -> MicroBatch:
    return MicroBatch(
        query_id=query_id, batch_id=batch_id, digest=digest, sources=reads(START if start is None else start, END)
    )


def refused(verdict: Verdict) -> str:
    assert isinstance(verdict, Refuse)
    assert verdict.reason
    assert verdict.meaning
    assert verdict.remedy.endswith(".")
    return f"{verdict.reason} | {verdict.meaning} | {verdict.remedy}"


def test_the_first_batch_under_a_transactional_id_is_written() -> None:
    assert isinstance(decide(None, batch(0), {O0: None, O1: None}), Write)


def test_the_first_batch_is_written_whatever_its_source_is() -> None:
    assert isinstance(decide(None, batch(0, start={}), None), Write)


@pytest.mark.parametrize("n", [1, 2, 41])
def test_the_next_batch_is_written(n: int) -> None:
    assert isinstance(decide(entry(n - 1, digest="other"), batch(n), START), Write)


def test_the_next_batch_is_written_though_the_groups_offsets_were_deleted() -> None:
    assert isinstance(decide(entry(4), batch(5), {O0: None, O1: None}), Write)


def test_the_next_batch_is_written_though_partitions_were_added() -> None:
    assert isinstance(decide(entry(4), batch(5, start=START | {O2: 0}), START), Write)


def test_a_batch_that_was_committed_before_spark_noted_it_is_skipped() -> None:
    assert isinstance(decide(entry(5), batch(5), END), Skip)


def test_batch_0_replayed_after_its_commit_is_skipped_not_taken_for_a_first_batch() -> None:
    assert isinstance(decide(entry(0), batch(0), END), Skip)


def test_a_replay_with_other_offsets_is_refused() -> None:
    assert "startingOffsets=committed" in refused(decide(entry(5, digest="then"), batch(5, digest="now"), END))


def test_batches_that_were_never_committed_here_are_refused_as_a_gap() -> None:
    assert "batches 4 to 6 are done" in refused(decide(entry(3), batch(7), START))


def test_a_gap_of_one_batch_names_it() -> None:
    assert "batch 4 is done" in refused(decide(entry(3), batch(5), START))


@pytest.mark.parametrize("n", [0, 3, 6])
def test_a_ledger_ahead_of_the_checkpoint_is_refused(n: int) -> None:
    assert "restore the newest checkpoint" in refused(decide(entry(7), batch(n), START))


def test_a_lost_checkpoint_with_starting_offsets_committed_continues() -> None:
    assert isinstance(decide(entry(7, query_id="lost"), batch(0), START), Write)


SINK = SinkIdentity(transactional_id="id", ledger_topic="ledger")
THERE = replace(SINK, cluster="here")  # where SINK is, on the cluster `own`


def goes_by(*sinks: SinkIdentity) -> MicroBatch:
    return replace(batch(0), sources=(SourceRange(start=START, end=END, sinks=sinks),))


@pytest.mark.parametrize("last", [None, entry(7, query_id="lost")])
def test_a_first_batch_whose_source_goes_by_another_sink_is_refused_whatever_the_ledger_has(last) -> None:
    other = replace(THERE, transactional_id="other")
    text = refused(decide(last, goes_by(THERE, other), START, own="here", sink=SINK, take_over="lost"))
    assert "goes by what transactional.id 'other' has committed, but this sink writes under 'id'" in text
    [word] = re.findall(r"resolve='(\S+)'", text)
    assert word == "take-ledger:other"
    for wrong in ("take-ledger:others", "take-ledger:", "write:other", "take-ledger:id"):
        assert word in refused(decide(last, goes_by(other), START, own="here", sink=SINK, resolve=wrong))


@pytest.mark.parametrize("word", ["take-ledger:other", "take-group:other"])
def test_the_operator_lets_a_first_batch_start_where_another_sink_ended(word) -> None:
    other = SinkIdentity(transactional_id="other")
    assert isinstance(decide(None, goes_by(other), START, sink=SINK, resolve=word), Write)
    others = goes_by(other, replace(other, transactional_id="third"))
    assert "take-ledger:other,third" in refused(decide(None, others, START, sink=SINK, resolve=word))


def settled(decide_with: Callable[[str | None], Verdict]) -> tuple[list[str], Verdict]:
    """The values that an operator sets one after the other, the first one of each message, and the last verdict."""
    said: list[str] = []
    while isinstance(verdict := decide_with(said[-1] if said else None), Refuse) and len(said) < 4:
        said.append(next(iter(verdict.choices)))
    return said, verdict


WRITE_5 = "write:none/ours.5.d"
SHARED: dict[str, Any] = {"other_ids": ["other"], "own": "here", "sink": SINK}


def test_a_word_that_follows_one_that_takes_a_group_has_both() -> None:
    said, verdict = settled(lambda resolve: decide(None, batch(5), START, resolve=resolve, **SHARED))
    assert said == ["take-group:other", f"take-group:other; {WRITE_5}"]
    assert isinstance(verdict, Write) and verdict.by_operator
    refusal = decide(None, batch(5), START, resolve=WRITE_5, **SHARED)
    assert isinstance(refusal, Refuse) and [*refusal.choices] == ["take-group:other"], "one word alone is not enough"


@pytest.mark.parametrize(
    ("first", "last", "ours"),
    [
        (goes_by(SinkIdentity(transactional_id="other")), None, True),
        (replace(goes_by(SinkIdentity(transactional_id="other")), stateful=True), entry(7, query_id="lost"), False),
    ],
    ids=["the ledger was deleted", "the state was lost"],
)
def test_so_does_one_that_follows_a_word_that_takes_a_ledger(first, last, ours) -> None:
    committed = {O0: 12, O1: 20} if ours else START
    said, verdict = settled(lambda resolve: decide(last, first, committed, ours=ours, resolve=resolve, **SHARED))
    assert [value.split(":")[0] for value in said] == ["take-ledger", "take-ledger", "take-ledger"]
    assert said[1] == "take-ledger:other; take-group:other"
    assert said[2].startswith("take-ledger:other; take-group:other; write:")
    assert isinstance(verdict, Write)


def test_words_that_contradict_each_other_settle_nothing() -> None:
    for both in (f"{WRITE_5}; skip:none/ours.5.d", f"skip:none/ours.5.d; {WRITE_5}"):
        assert isinstance(decide(None, batch(5), None, resolve=both), Refuse)


def test_an_id_with_a_semicolon_is_still_one_word() -> None:
    ids = ["a; write:b; skip:c"]
    assert isinstance(decide(None, batch(0), START, other_ids=ids, resolve=f"take-group:{ids[0]}"), Write)
    assert isinstance(decide(None, batch(0), START, other_ids=["a"], resolve=f"take-group:{ids[0]}"), Refuse)


@pytest.mark.parametrize(
    ("last", "next_one", "words", "operator"),
    [
        (None, batch(0), {"other_ids": ["other"], "resolve": "take-group:other"}, True),
        (None, goes_by(SinkIdentity(transactional_id="other")), {"sink": SINK, "resolve": "take-ledger:other"}, True),
        (entry(7, query_id="lost"), batch(0, start={O0: 3}), {"take_over": "lost"}, True),
        (None, batch(5), {"resolve": WRITE_5}, True),
        (None, batch(5), {"resolve": "skip:none/ours.5.d"}, True),
        (None, batch(0), {"resolve": "take-group:other"}, False),
        (entry(4), batch(5), {"take_over": "lost", "resolve": WRITE_5, "other_ids": ["other"]}, False),
    ],
)
def test_a_verdict_says_whether_a_word_of_the_operator_led_to_it(
    last: LedgerEntry | None, next_one: MicroBatch, words: dict[str, Any], operator: bool
) -> None:
    verdict = decide(last, next_one, START, **words)
    assert isinstance(verdict, Write | Skip)
    assert verdict.by_operator == operator
    said = words.get("resolve") or f"takeOverQuery: this query starts where {words['take_over']} ended"
    assert (said in verdict.reason) == operator


def test_a_first_batch_whose_source_goes_by_this_sink_or_does_not_say_it_is_decided_as_before() -> None:
    long = SinkIdentity(transactional_id="x" * 2_000)
    mark = SinkIdentity(transactional_id=source_mark(long.transactional_id).removeprefix(source_mark("")))
    for sinks, own in [((), SINK), ((THERE,), SINK), ((replace(THERE, cluster=""),), SINK), ((mark,), long)]:
        assert isinstance(decide(None, goes_by(*sinks), START, own="here", sink=own), Write)


def test_a_batch_that_is_in_this_querys_ledger_is_skipped_whatever_its_source_goes_by() -> None:
    """It was let through then."""
    other = replace(THERE, transactional_id="other")
    assert isinstance(decide(entry(0), goes_by(other), END, own="here", sink=SINK), Skip)


def test_a_source_that_goes_by_another_sink_only_after_the_first_batch_is_decided_by_the_ledger() -> None:
    other = replace(THERE, transactional_id="other")
    later = replace(goes_by(other), batch_id=1)
    assert isinstance(decide(entry(0), later, START, own="here", sink=SINK), Write), "it starts where batch 0 ended"
    elsewhere = replace(entry(0), sources=(SourceProgress(cluster="here", offsets=END),))
    refused(decide(elsewhere, later, START, own="here", sink=SINK))
    refused(decide(None, later, START, own="here", sink=SINK))


def test_a_source_that_looked_on_another_cluster_is_refused() -> None:
    there = replace(THERE, cluster="another")
    assert "`sink.kafka.bootstrap.servers`" in refused(decide(None, goes_by(there), START, own="here", sink=SINK))
    assert isinstance(decide(None, goes_by(there), START, own="", sink=SINK), Write), "clusters without an id"


def test_a_source_that_looked_in_another_ledger_topic_is_refused_unless_the_ledger_has_moved() -> None:
    there = replace(THERE, ledger_topic="old")
    assert "`sink.ledgerTopic`" in refused(decide(None, goes_by(there), START, own="here", sink=SINK))
    moved = replace(entry(7, query_id="lost"), sources=(SourceProgress(cluster="here", offsets=START),))
    assert isinstance(decide(moved, goes_by(there), START, own="here", sink=SINK), Write)


def test_a_query_that_lost_its_state_with_the_checkpoint_is_refused_until_the_operator_accepts_that() -> None:
    stateful = replace(batch(0), stateful=True)
    text = refused(decide(entry(7, query_id="lost"), stateful, START))
    assert "but without its state" in text
    [word] = re.findall(r"resolve='(\S+)'", text)
    assert isinstance(decide(entry(7, query_id="lost"), stateful, START, resolve=word), Write)
    assert "takeOverQuery=lost" in text
    assert isinstance(decide(entry(7, query_id="lost"), stateful, START, take_over="lost"), Write)


def test_a_new_query_does_not_pass_over_an_incomplete_batch_until_the_operator_accepts_that() -> None:
    last = replace(entry(7, query_id="lost"), incomplete=True)
    text = refused(decide(last, batch(0), START))
    assert "batch 7 of query lost, which is incomplete (the writer's first call was committed" in text
    assert "takeOverQuery=lost" in text, "the new checkpoint of the next start has another batch, which no word fits"
    assert isinstance(decide(last, batch(0), START, take_over="lost"), Write)
    [word] = re.findall(r"resolve='(\S+)'", text)
    assert isinstance(decide(last, batch(0), START, resolve=word), Write)


@pytest.mark.parametrize(
    "first",
    [
        batch(0, start={O0: 0, O1: 20}),
        batch(0, start=START | {P0: 0}),
        replace(batch(0), stateful=True),
        replace(batch(0), sources=()),
        batch(8),
    ],
    ids=["elsewhere", "a new topic", "with state", "an unknown start", "a later batch"],
)
def test_whatever_else_refuses_a_new_query_the_message_says_that_the_last_batch_is_incomplete(first) -> None:
    counts = BatchCounts(records=1, bytes=1, milliseconds=1, lost={"out": 3})
    last = replace(entry(7, query_id="lost"), incomplete=True, written=counts)
    assert "which is incomplete (an output topic was deleted" in refused(decide(last, first, START))
    assert "lost are 3 records of topic 'out'" in refused(decide(last, first, START))


@pytest.mark.parametrize("number", [7, 8])
def test_a_refusal_of_an_incomplete_batch_says_what_is_lost_or_who_says_it(number: int) -> None:
    lost = BatchCounts(records=1, bytes=1, milliseconds=1, lost={"out": 3})
    text = refused(decide(replace(entry(7), incomplete=True, written=lost), batch(number), START))
    assert "lost are 3 records of topic 'out'" in text
    assert "Everything else that it wrote is in the output" in text
    text = refused(decide(replace(entry(7), incomplete=True), batch(number), START))
    assert "the query's last error says which" in text
    assert "Everything else" not in text


def test_the_word_that_skips_an_incomplete_batch_does_not_settle_that_it_was_planned_again() -> None:
    last = replace(entry(7), incomplete=True)
    [word] = re.findall(r"resolve='(skip:\S+)'", refused(decide(last, batch(7), START)))
    assert isinstance(decide(last, batch(7), START, resolve=word), Skip)
    text = refused(decide(last, batch(7, digest="planned again"), START, resolve=word))
    assert "batch 7 is incomplete" in text


def test_without_a_ledger_no_word_is_offered_after_a_batch_that_failed() -> None:
    later = replace(batch(8), failed=(7,))
    assert unfinished(later).resolutions == ("write", "skip")
    assert unfinished(later, ledger=False).resolutions == ()


def test_a_query_with_state_that_never_committed_has_lost_nothing() -> None:
    assert isinstance(decide(None, replace(batch(0), stateful=True), {O0: None, O1: None}), Write)


def test_a_checkpoint_that_was_left_behind_cannot_set_the_offsets_back() -> None:
    # It planned its batch 0 up to END; another query went further. Restarted, it starts at the committed offsets.
    further = {O0: 30, O1: 20}
    text = refused(decide(entry(41, query_id="theirs"), batch(0, start=further), further))
    assert "orders-0 at 15 (starts at 30)" in text
    assert "planned before" in text
    assert "reset the group's offsets" in text


def test_a_lost_checkpoint_continues_although_partitions_were_added() -> None:
    assert isinstance(decide(entry(7, query_id="lost"), batch(0, start=START | {O2: 0}), {**START, O2: None}), Write)


def test_a_lost_checkpoint_that_starts_earlier_is_refused_as_repetition() -> None:
    text = refused(decide(entry(7, query_id="lost"), batch(0, start={O0: 0, O1: 20}), START))
    assert "orders-0 at 0 (committed 10)" in text
    assert "startingOffsets=committed" in text


def test_a_lost_checkpoint_that_starts_later_is_refused_as_loss() -> None:
    assert "orders-1 at 21" in refused(decide(entry(7, query_id="lost"), batch(0, start={O0: 10, O1: 21}), START))


def test_a_lost_checkpoint_whose_groups_offsets_are_gone_is_refused() -> None:
    for gone in (None, {}, {O0: None, O1: None}):
        assert "no committed offsets" in refused(decide(entry(7, query_id="lost"), batch(0), gone))


def test_a_missing_offset_below_a_known_one_is_not_taken_for_a_new_partition() -> None:
    assert "no committed offset of orders-0 is known, and it is not a new partition" in refused(
        decide(entry(7, query_id="lost"), batch(0), {O0: None, O1: 20})
    )


def test_a_topic_without_offsets_of_the_group_is_not_mistaken_for_a_new_one() -> None:
    new_topic = batch(0, start=START | {P0: 0})
    text = refused(decide(entry(7, query_id="lost"), new_topic, {**START, P0: None}))
    assert "topic prices" in text
    assert "takeOverQuery=lost" in text
    assert isinstance(decide(entry(7, query_id="lost"), new_topic, {**START, P0: None}, take_over="lost"), Write)


def test_a_lost_checkpoint_may_continue_with_fewer_topics() -> None:
    assert isinstance(decide(entry(7, query_id="lost"), batch(0), {**START, P0: 99}), Write)


def test_a_new_partition_that_does_not_start_at_its_beginning_is_refused() -> None:
    verdict = decide(entry(7, query_id="lost"), batch(0, start=START | {O2: 4}), {**START, O2: None})
    assert "orders-2 starts at 4" in refused(verdict)


def test_many_partitions_elsewhere_are_not_all_listed() -> None:
    start = {TopicPartition("t", p): 1 for p in range(1_000)}
    assert len(refused(decide(entry(7, query_id="lost"), batch(0, start=start), dict.fromkeys(start, 5)))) < 1_500


def test_another_query_under_the_same_transactional_id_is_refused() -> None:
    text = refused(decide(entry(7, query_id="other"), batch(8), START))
    assert "`kafka.transactional.id`" in text
    assert "on the disk of a node that returns" in text


def test_a_new_query_without_a_kafka_source_cannot_take_over() -> None:
    assert "another `kafka.transactional.id`" in refused(decide(entry(7, query_id="other"), batch(0, start={}), None))


def test_a_query_without_a_kafka_source_continues_by_its_ledger_alone() -> None:
    assert isinstance(decide(entry(7), batch(8, start={}), None), Write)
    assert isinstance(decide(entry(8), batch(8, start={}), None), Skip)


def test_a_missing_ledger_is_refused_and_never_guessed() -> None:
    text = refused(decide(None, batch(9), {O0: None, O1: None}))
    assert "written with another sink" in text
    assert "resolve='write:none/ours.9.d'" in text


def test_a_missing_ledger_is_refused_even_if_the_groups_offsets_fit_and_says_so() -> None:
    assert "starts at the group's committed offsets" in refused(decide(None, batch(9), START))


def wrote(**versions: str) -> LedgerEntry:
    """The entry of batch writes with these versions by destination."""
    return replace(entry(max(map(last_version, versions.values()))), writes=versions)


def to(destination: str, version: int) -> MicroBatch:
    return replace(batch(version), destination=destination)


@pytest.mark.parametrize(
    ("found", "version", "verdict"),
    [
        (None, 0, Write),
        (None, 20240501, Write),
        (wrote(a="3"), 4, Write),
        (wrote(a="3"), 9, Write),
        (wrote(a="3"), 3, Skip),
        (wrote(a="1,3"), 1, Skip),
        (wrote(a="1,3"), 2, Refuse),
        (wrote(a="3"), 1, Refuse),
        (wrote(a="3", b="7"), 4, Write),
    ],
)
def test_a_batch_write_is_done_once_per_version(found: LedgerEntry | None, version: int, verdict: type) -> None:
    assert isinstance(decide_batch_write(found, to("a", version)), verdict)


@pytest.mark.parametrize("version", [0, 3, 4])
def test_the_same_version_with_another_destination_is_another_write(version: int) -> None:
    assert isinstance(decide_batch_write(wrote(a="3"), to("b", version)), Write)


def test_a_version_whose_rows_went_to_other_topics_is_refused_where_the_rows_name_them() -> None:
    found = wrote(**{"*a@1": "3"})
    assert isinstance(decide_batch_write(found, to("*a@1", 3)), Skip)
    assert "with rows for a@1, and now it has rows for b@2" in refused(decide_batch_write(found, to("*b@2", 3)))
    assert "with rows for a@1, and now it has none" in refused(decide_batch_write(found, to("*", 3)))
    assert "without rows, and now it has rows for a@1" in refused(
        decide_batch_write(wrote(**{"*": "3"}), to("*a@1", 3))
    )
    assert isinstance(decide_batch_write(found, to("*b@2", 4)), Write)
    assert isinstance(decide_batch_write(found, to("b@2", 3)), Write)


def lacking(**versions: str) -> LedgerEntry:
    """Version 3 was written to `a` and `b`, and topic `b` was deleted in that moment."""
    lost = BatchCounts(records=9, bytes=90, milliseconds=1, lost={"b": 4})
    return replace(wrote(**versions), batch_id=3, digest="of-3", incomplete=True, written=lost)


def to_both(place: str, version: int) -> MicroBatch:
    """A write of the job that writes to `a` and `b`."""
    return replace(to(place, version), digest=f"of-{version}")


@pytest.mark.parametrize("place", ["a@1,b@2", "a@1,b@3", "*a@1,b@2"])
def test_a_batch_write_that_lost_records_is_neither_skipped_nor_repeated(place: str) -> None:
    verdict = decide_batch_write(lacking(**{"a@1,b@2": "1,3"}), to_both(place, 3))
    assert "version 3 of 'ours' is incomplete" in refused(verdict)
    assert "lost are 4 records of topic 'b'" in refused(verdict)
    assert [word.split(":")[0] for word in words(verdict)] == ["write", "skip"]


def test_a_batch_write_that_lost_records_stops_what_is_new_until_a_word_settles_it() -> None:
    found = lacking(**{"a@1,b@2": "1,3"})
    assert isinstance(decide_batch_write(found, to_both("a@1,b@2", 1)), Skip)
    for place in ("a@1,b@2", "c@3"):
        (word,) = words(decide_batch_write(found, to_both(place, 4)))
        assert word.startswith("write:")
        assert isinstance(decide_batch_write(found, to_both(place, 4), resolve=word), Write)


@pytest.mark.parametrize("lost", [None, BatchCounts(records=9, bytes=90, milliseconds=1)])
def test_a_batch_write_is_refused_as_incomplete_where_the_record_with_the_numbers_is_lost(
    lost: BatchCounts | None,
) -> None:
    found = replace(lacking(**{"a@1,b@2": "3"}), written=lost)
    assert "the error of that write says what is lost" in refused(decide_batch_write(found, to_both("a@1,b@2", 3)))


@pytest.mark.parametrize(
    ("place", "verdict"),
    [
        ("a@1,b@2", Skip),
        ("a@1,b@9", Refuse),
        ("a@8,b@2", Refuse),
        ("a@8,b@9", Write),
        ("a@1", Write),
        ("b@2", Write),
        ("a@1,b@2,c@3", Write),
    ],
)
def test_a_version_is_not_written_again_to_those_of_its_topics_that_have_it(place: str, verdict: type) -> None:
    found = replace(wrote(**{"a@1,b@2": "3"}), batch_id=3)
    assert isinstance(decide_batch_write(found, to(place, 3)), verdict)
    assert isinstance(decide_batch_write(found, to(place, 4)), Write)


def test_a_batch_that_lost_a_topic_since_is_not_skipped_without_a_word_and_the_next_one_is_written() -> None:
    found = replace(told(7, {O0: 30}), digest="now")
    verdict = decide(found, ranged(7, {O0: 20}, {O0: 30}), own="here", deleted=["out"])
    assert "topic 'out' was deleted since" in refused(verdict)
    (word,) = words(verdict)
    assert word.startswith("skip:")
    assert isinstance(decide(found, ranged(7, {O0: 20}, {O0: 30}), own="here", deleted=["out"], resolve=word), Skip)
    assert isinstance(decide(found, ranged(8, {O0: 30}, {O0: 40}), own="here", deleted=["out"]), Write)


@pytest.mark.parametrize("version", [1, 3])
def test_of_an_earlier_release_it_is_not_known_where_it_wrote_so_its_versions_are_refused(version: int) -> None:
    verdict = decide_batch_write(entry(3), to("a", version))
    assert "without recording to which topics" in refused(verdict)
    assert [word.split(":")[0] for word in words(verdict)] == ["write", "skip"]
    assert isinstance(decide_batch_write(entry(3), to("a", 4)), Write)


def test_what_an_earlier_release_wrote_stays_unknown_after_writes_of_this_one() -> None:
    after = replace(entry(4), writes=written(entry(3), to("a", 4)))
    assert isinstance(decide_batch_write(after, to("a", 4)), Skip)
    assert isinstance(decide_batch_write(after, to("b", 4)), Write)
    assert isinstance(decide_batch_write(after, to("b", 3)), Refuse)


def test_another_destination_is_refused_when_the_ledger_has_no_room_for_it() -> None:
    full = wrote(**{f"t{number}": "1" for number in range(MOST_DESTINATIONS)})
    assert "as many as the ledger remembers" in refused(decide_batch_write(full, to("a", 2)))
    assert isinstance(decide_batch_write(full, to("t7", 2)), Write)


@given(st.sets(st.integers(0, 60)), st.integers(0, 60))
def test_versions_are_kept_as_ranges(numbers: set[int], probe: int) -> None:
    text = ""
    for number in numbers:
        text = added(text, number)
    assert contains(text, probe) == (probe in numbers)
    assert last_version(text) == max(numbers, default=-1)
    assert added(added(text, probe), probe) == added(text, probe)


def test_only_so_many_ranges_are_kept_and_the_lowest_are_forgotten_first() -> None:
    text = ""
    for number in range(0, 4 * MOST_RANGES, 2):
        text = added(text, number)
    assert text.count(",") == MOST_RANGES - 1
    assert not contains(text, 0) and contains(text, 4 * MOST_RANGES - 2)


# Batches that did not call the writer


GAP = {O0: 30}


@pytest.mark.parametrize("last", [None, entry(6), entry(4)])
def test_a_batch_after_one_that_this_run_began_and_did_not_commit_is_refused_and_names_it(last) -> None:
    following = replace(batch(7), failed=(5,), run_id="r", first_batch_of_run=0, first_batch_without_call=6)
    found = last and replace(last, run_id="r")
    assert "batch 5 began and did not end in a commit" in refused(decide(found, following, START, calls=True))
    assert "batches 1, 5 began" in refused(decide(found, replace(following, failed=(1, 5)), START, calls=True))


def test_a_batch_that_is_committed_is_skipped_whatever_this_run_did_not_commit_before() -> None:
    assert isinstance(decide(entry(7), replace(batch(7), failed=(5,)), END), Skip)


@pytest.mark.parametrize(
    ("more", "verdict"),
    [
        ({}, Refuse),
        ({"run_id": "r", "first_batch_without_call": 8}, Write),
        ({"run_id": "r", "first_batch_without_call": 0}, Write),
        ({"run_id": "r", "first_batch_without_call": 9}, Refuse),
        ({"run_id": "r"}, Refuse),
        ({"run_id": "another", "first_batch_without_call": 0}, Refuse),
        ({"run_id": "another", "first_batch_without_call": 0, "first_batch_of_run": 8}, Write),
        ({"run_id": "another", "first_batch_without_call": 0, "first_batch_of_run": 9}, Refuse),
        ({"first_batch_without_call": 0, "first_batch_of_run": 3}, Write),
    ],
)
def test_batches_whose_function_is_known_to_have_made_no_call_do_not_stop_the_next_one(more, verdict) -> None:
    found = replace(told(7, GAP), run_id="r")
    later = replace(ranged(10, {O0: 55}, {O0: 60}), **more)
    assert isinstance(decide(found, later, own="here", calls=True), verdict)


@pytest.mark.parametrize(("committed", "running"), [("a", "b"), ("a", None), (None, "a"), (None, None)])
def test_that_another_run_or_one_that_is_not_known_made_no_call_does_not_count(
    committed: str | None, running: str | None
) -> None:
    later = replace(ranged(10, {O0: 55}, {O0: 60}), first_batch_without_call=0)
    last = told(7, GAP)
    assert isinstance(decide(replace(last, run_id="a"), replace(later, run_id="a"), own="here", calls=True), Write)
    refused(decide(replace(last, run_id=committed), replace(later, run_id=running), own="here", calls=True))


@pytest.mark.parametrize(
    ("start", "stateful", "markers", "verdict"),
    [
        (30, False, False, Write),
        (30, None, False, Refuse),
        (30, True, False, Refuse),
        (55, False, False, Refuse),
        (55, False, True, Write),
        (55, True, True, Refuse),
        (29, False, False, Refuse),
    ],
)
def test_batches_that_read_nothing_do_not_stop_the_next_one_unless_there_is_state(
    start: int, stateful: bool | None, markers: bool, verdict: type
) -> None:
    later = replace(ranged(10, {O0: start}, {O0: 60}), stateful=stateful)
    assert isinstance(decide(told(7, GAP), later, own="here", only_markers=markers), verdict)


@pytest.mark.parametrize(
    ("more", "verdict"),
    [
        ({}, Refuse),
        ({"first_batch_of_run": 0, "first_batch_without_call": 0}, Write),
        ({"first_batch_of_run": 1, "first_batch_without_call": 0}, Refuse),
        ({"first_batch_of_run": 0, "first_batch_without_call": 1}, Refuse),
        ({"is_first_with_data": True, "stateful": False}, Write),
        ({"is_first_with_data": True, "stateful": True}, Refuse),
        ({"is_first_with_data": True}, Refuse),
    ],
)
def test_a_query_whose_first_batches_called_nothing_begins_with_a_later_one(more, verdict) -> None:
    later = replace(ranged(2, {O0: 30}, {O0: 40}), **more)
    assert isinstance(decide(None, later, own="here", calls=True), verdict)
    assert isinstance(decide(None, later, own="here", ours=True, calls=True), Refuse), "the ledger was deleted"


@pytest.mark.parametrize(
    ("number", "more", "said"),
    [
        (8, {"run_id": "r", "first_batch_without_call": 8}, "batch 7 is incomplete"),
        (9, {"run_id": "r", "first_batch_without_call": 8}, "batch 7 is incomplete"),
        (10, {"run_id": "r", "first_batch_without_call": 8}, "batch 7 is incomplete"),
        (10, {"stateful": False}, "batch 7 is incomplete"),
        (9, {}, "the last committed batch is 7"),
        (10, {}, "the last committed batch is 7"),
    ],
)
def test_an_incomplete_batch_is_not_passed_over_however_many_batches_after_it_called_nothing(
    number, more, said
) -> None:
    found = replace(told(7, GAP), run_id="r", incomplete=True)
    later = replace(ranged(number, {O0: 30}, {O0: 40}), **more)
    assert said in refused(decide(found, later, own="here", calls=True))


def test_the_refusal_of_a_gap_names_the_likeliest_cause_first() -> None:
    verdict = decide(told(7, GAP), ranged(10, {O0: 55}, {O0: 60}), own="here")
    assert isinstance(verdict, Refuse)
    assert verdict.action.startswith("If your foreachBatch function returns without calling the writer")


# Second calls


@pytest.mark.parametrize(
    ("entry_run", "batch_run", "calls", "verdict"),
    [("r", "r", True, Repeat), ("r", "s", True, Skip), (None, "r", True, Skip), ("r", None, True, Skip),
     (None, None, True, Skip), ("r", "r", False, Skip)],
)  # fmt: skip
def test_a_second_call_is_the_same_batch_and_the_same_run(entry_run, batch_run, calls, verdict) -> None:
    found = replace(entry(3), run_id=entry_run)
    assert isinstance(decide(found, replace(batch(3), run_id=batch_run), calls=calls), verdict)


# Topics that were created again


FIRST, SECOND = UUID(int=1), UUID(int=2)


def of_topic(topic_id: UUID) -> Origin:
    return Origin(cluster="here", topic_ids={"orders": topic_id})


@pytest.mark.parametrize("ends", [(30, 40), (40, 30)])
def test_of_two_sources_with_one_partition_the_one_behind_counts(ends: tuple[int, int]) -> None:
    """A new query that starts where the other one ended would skip what this one has not read."""
    sources = tuple(SourceProgress(cluster="here", offsets={O0: end}) for end in ends)
    found = LedgerEntry(query_id="old", batch_id=7, digest="then", serial=8, sources=sources)

    def verdict(start: int) -> Verdict:
        new = MicroBatch(
            query_id="new", batch_id=0, digest="now", sources=(SourceRange(start={O0: start}, end={O0: 50}),)
        )
        return decide(found, new, {}, clusters=("here",))

    assert isinstance(verdict(30), Write)
    assert "skips" in refused(verdict(40))


@pytest.mark.parametrize(("topic_id", "verdict"), [(FIRST, Write), (SECOND, Refuse)])
@pytest.mark.parametrize("query", ["ours", "a new one"])
def test_a_topic_that_was_created_again_is_noticed_by_its_id(topic_id: UUID, verdict: type, query: str) -> None:
    progress = SourceProgress(cluster="here", offsets={O0: 30}, origin=of_topic(FIRST))
    found = replace(told(7, {O0: 30}), sources=(progress,))
    number = 8 if query == "ours" else 0
    source = SourceRange(start={O0: 30}, end={O0: 40}, start_origin=of_topic(topic_id), origin=of_topic(topic_id))
    following = replace(ranged(number, {O0: 30}, {O0: 40}), query_id=query, sources=(source,), stateful=False)
    result = decide(found, following, own="here", clusters=("here",))
    assert isinstance(result, verdict)
    if verdict is Refuse:
        assert "topic orders was created again" in refused(result)


# What is missing is not what is the same


@pytest.mark.parametrize("number", [8, 10], ids=["the next one", "a later one"])
def test_a_batch_without_a_partition_that_is_committed_is_not_known_to_start_where_the_ledger_ended(number) -> None:
    """The batches in between may have read it, and a query that finds it again would read it from its beginning."""
    lacks = replace(ranged(number, {O0: 30}, {O0: 40}), stateful=False)
    assert isinstance(decide(told(7, {O0: 30, O1: 5}), lacks, own="here"), Refuse)
    ended = CommittedEnd.of(told(7, {O0: 30, O1: 5}), lacks, (), "here", None)
    assert ended.between() is None, "markers alone are not looked for"


def test_a_next_batch_whose_start_is_not_known_is_refused() -> None:
    unknown = replace(ranged(8, {}, {O0: 40}), sources=(SourceRange(start=None, end={O0: 40}),))
    assert "it is unknown where source 1 starts" in refused(decide(told(7, {O0: 30}), unknown, own="here"))


def test_a_next_batch_with_other_sources_is_written_only_if_all_that_is_committed_goes_on() -> None:
    def with_sources(*starts: dict[TopicPartition, int] | None) -> MicroBatch:
        sources = tuple(None if start is None else SourceRange(start=start, end=END) for start in starts)
        return replace(batch(8), sources=sources)

    last = told(7, {O0: 30})
    assert isinstance(decide(last, with_sources({O0: 30}, {P0: 5}), own="here"), Write), "a source was added"
    for starts in [({O0: 29}, {P0: 5}), ({P0: 5}, {P0: 5}), ({P0: 5}, None), (None,)]:
        assert isinstance(decide(last, with_sources(*starts), own="here"), Refuse), starts


def test_the_word_that_skips_what_is_committed_says_nothing_of_a_batch_that_reads_no_partition() -> None:
    nothing = ranged(5, {O0: 10}, {})
    assert isinstance(decide(told(7, {O0: 30}), nothing, own="here", resolve="skip-to:ours.7.then"), Refuse)


# An old checkpoint of a query with state


@pytest.mark.parametrize(
    ("began", "verdict"), [(30, Skip), (20, Write)], ids=["the last batch was empty", "it had records"]
)
def test_the_same_word_knows_whether_the_windows_of_a_batch_without_records_are_committed(began, verdict) -> None:
    found = told(7, {O0: 30})
    found = replace(found, sources=(SourceProgress(cluster="here", offsets={O0: 30}, start={O0: began}),))
    idle = ranged(6, {O0: 30}, {O0: 30})
    assert isinstance(decide(found, idle, own="here", resolve="skip-to:ours.7.then"), verdict)


def test_a_batch_that_reads_across_the_ledgers_end_is_told_how_to_plan_up_to_it() -> None:
    found = told(7, {O0: 30})
    found = replace(found, sources=(SourceProgress(cluster="here", offsets={O0: 30}, start={O0: 20}),))
    verdict = decide(found, ranged(6, {O0: 15}, {O0: 40}), own="here")
    assert isinstance(verdict, Refuse)
    assert "delete `offsets/6`" in verdict.action and "resolve='skip-to:ours.7.then'" in verdict.action


def test_a_batch_write_of_another_application_is_refused() -> None:
    assert "txnAppId" in refused(decide_batch_write(entry(3, query_id="other"), batch(4)))


# The model: what Spark's checkpoint and Kafka hold, and everything that may happen to them.


@dataclass
class Checkpoint:
    query_id: str
    initial: dict[TopicPartition, int]
    planned: dict[int, dict[TopicPartition, int]] = field(default_factory=dict)  # offsets/<batch>: the batch's end
    noted: set[int] = field(default_factory=set)  # commits/<batch>

    def next_batch(self, log: dict[TopicPartition, int]) -> MicroBatch:
        """As Spark does: the planned but unnoted batch again, else a new one, planned before it runs."""
        batch_id = max(self.noted, default=-1) + 1
        start = dict.fromkeys(log, 0) | (self.planned[batch_id - 1] if batch_id else self.initial)
        end = self.planned.setdefault(batch_id, dict(log))
        start = {tp: offset for tp, offset in start.items() if tp in end}
        hashed = digest([offsets_to_json(start), offsets_to_json(end)])
        return MicroBatch(query_id=self.query_id, batch_id=batch_id, digest=hashed, sources=reads(start, end))


class CrashesAndRestores(RuleBasedStateMachine):
    """Records are their offsets: each at most once in the output, none below the group's offset missing."""

    def __init__(self) -> None:
        super().__init__()
        self.log = {O0: 0, O1: 0}
        self.entry: LedgerEntry | None = None
        self.group: dict[TopicPartition, int] = {}
        self.output: dict[TopicPartition, list[int]] = {}
        self.queries = 0
        self.copies: list[Checkpoint] = []
        self.stopped = False
        self.offered: str | None = None  # by the last refusal
        self.said: str | None = None  # by the operator, and left in the code

    @initialize()
    def first_start(self) -> None:
        """Some batches and an old copy at once: what is interesting comes after them."""
        self.start_anew("earliest")
        for _ in range(3):
            self.copy_the_checkpoint()
            self.run_on(batches=1, records=2)

    def start_anew(self, starting: str) -> None:
        self.queries += 1
        offsets = {
            "earliest": dict.fromkeys(self.log, 0),
            "latest": dict(self.log),
            "committed": {tp: self.group.get(tp, 0) for tp in self.log},
        }[starting]
        self.checkpoint = Checkpoint(query_id=f"query {self.queries}", initial=offsets)
        self.stopped, self.offered = False, None

    @rule(partition=st.sampled_from([O0, O1]), records=st.integers(1, 3))
    def produce(self, partition: TopicPartition, records: int) -> None:
        self.log[partition] += records

    @precondition(lambda self: len(self.log) < 5)
    @rule(records=st.integers(0, 2))
    def add_a_partition(self, records: int) -> None:
        self.log[TopicPartition("orders", len(self.log))] = records

    @precondition(lambda self: not self.stopped)
    @rule(crash=st.sampled_from(["never", "planned", "committed"]))
    def run_a_batch(self, crash: str) -> None:
        batch = self.checkpoint.next_batch(self.log)
        if crash == "planned":
            return
        assert batch.start is not None
        committed: CommittedOffsets = {tp: self.group.get(tp) for tp in batch.start}
        match decide(self.entry, batch, committed, resolve=self.said):
            case Write():
                for tp, end in batch.end.items():
                    self.output.setdefault(tp, []).extend(range(batch.start[tp], end))
                self.entry = LedgerEntry(
                    query_id=batch.query_id,
                    batch_id=batch.batch_id,
                    digest=batch.digest,
                    sources=(SourceProgress(cluster="", offsets=batch.end),),
                )
                self.group.update(batch.end)
            case Refuse() as refusal:
                self.stopped = True
                self.offered = f"skip-to:{refusal.fingerprint}" if "skip-to" in refusal.resolutions else None
                return
            case Skip():
                pass
        if crash != "committed":
            self.checkpoint.noted.add(batch.batch_id)

    @rule(batches=st.integers(1, 4), records=st.integers(0, 2))
    def run_on(self, batches: int, records: int) -> None:
        for _ in range(batches):
            self.produce(O0, records)
            if not self.stopped:
                self.run_a_batch("never")

    @rule()
    def copy_the_checkpoint(self) -> None:
        self.copies.append(copy.deepcopy(self.checkpoint))

    @precondition(lambda self: self.copies)
    @rule(data=st.data())
    def restore_a_copy(self, data: st.DataObject) -> None:
        self.checkpoint = copy.deepcopy(data.draw(st.sampled_from(self.copies)))
        self.stopped, self.offered = False, None

    # "latest" on a transactional.id that never committed is what the user asked for, not a loss.
    @precondition(lambda self: self.entry is not None)
    @rule(starting=st.sampled_from(["earliest", "latest", "committed"]))
    def lose_the_checkpoint(self, starting: str) -> None:
        self.start_anew(starting)

    @precondition(lambda self: self.stopped)
    @rule()
    def follow_the_advice_of_a_refusal(self) -> None:
        self.start_anew("committed")
        self.run_a_batch("never")
        assert not self.stopped

    @precondition(lambda self: self.offered)
    @rule(batches=st.integers(1, 4), records=st.integers(0, 2))
    def say_that_what_is_committed_is_written(self, batches: int, records: int) -> None:
        self.said, self.stopped, self.offered = self.offered, False, None
        self.run_a_batch("never")
        assert not self.stopped
        self.run_on(batches, records)

    @invariant()
    def every_record_once_and_none_left_out(self) -> None:
        for tp, offset in self.group.items():
            assert self.output.get(tp, []) == list(range(offset))

    @invariant()
    def what_spark_has_noted_as_done_is_committed(self) -> None:
        for batch in self.checkpoint.noted:
            for tp, end in self.checkpoint.planned[batch].items():
                assert end <= self.group.get(tp, 0)


TestCrashesAndRestores = CrashesAndRestores.TestCase
TestCrashesAndRestores.settings = settings(max_examples=200, stateful_step_count=20, deadline=None)


def test_a_new_query_with_an_unknown_start_is_refused_and_told_how_to_take_over() -> None:
    batch = MicroBatch(query_id="new", batch_id=0, digest="d", sources=reads(None, END))
    text = refused(decide(entry(7, query_id="lost"), batch, START))
    assert "takeOverQuery=lost" in text


def test_a_query_that_takes_over_by_name_follows_that_query_alone_and_only_with_its_first_batch() -> None:
    first = MicroBatch(query_id="new", batch_id=0, digest="d", sources=reads(None, END))
    assert isinstance(decide(entry(7, query_id="lost"), first, None, take_over="lost"), Write)
    assert isinstance(decide(entry(7, query_id="third"), first, None, take_over="lost"), Refuse)
    later = MicroBatch(query_id="new", batch_id=3, digest="d", sources=reads(None, END))
    assert isinstance(decide(entry(7, query_id="lost"), later, None, take_over="lost"), Refuse)


def told(batch_id: int, offsets: dict[TopicPartition, int]) -> LedgerEntry:
    """An entry that tells where its one source ended."""
    sources = (SourceProgress(cluster="here", offsets=offsets),)
    return LedgerEntry(query_id="ours", batch_id=batch_id, digest="then", serial=batch_id + 1, sources=sources)


def ranged(batch_id: int, start: dict[TopicPartition, int], end: dict[TopicPartition, int]) -> MicroBatch:
    """A batch that was planned again."""
    sources = (SourceRange(start=start, end=end),)
    return MicroBatch(query_id="ours", batch_id=batch_id, digest="now", sources=sources)


def words(verdict: Verdict) -> list[str]:
    """What an operator may answer."""
    return re.findall(r"resolve='(\S+)'", refused(verdict))


def test_an_empty_partition_does_not_hide_that_all_that_a_batch_reads_is_committed() -> None:
    rewound = ranged(5, {O0: 10, O1: 0}, {O0: 20, O1: 0})
    assert words(decide(told(7, {O0: 30, O1: 0}), rewound, own="here")) == ["skip-to:ours.7.then"]


@pytest.mark.parametrize(
    ("batch_id", "start", "end"), [(5, 10, 15), (6, 15, 20), (7, 20, 25), (8, 25, 28), (9, 28, 30)]
)
def test_one_word_skips_all_that_a_restored_checkpoint_plans_again_of_what_is_committed(
    batch_id: int, start: int, end: int
) -> None:
    word = "skip-to:ours.7.then"
    verdict = decide(told(7, {O0: 30}), ranged(batch_id, {O0: start}, {O0: end}), own="here", resolve=word)
    assert isinstance(verdict, Skip)
    assert verdict.reason.startswith(f"resolve={word}")


@pytest.mark.parametrize("batch_id", [6, 7, 9])
def test_the_same_word_continues_where_the_committed_batches_ended(batch_id: int) -> None:
    word = "skip-to:ours.7.then"
    verdict = decide(told(7, {O0: 30}), ranged(batch_id, {O0: 30}, {O0: 40}), own="here", resolve=word)
    assert isinstance(verdict, Write)
    assert verdict.reason.startswith(f"resolve={word}")


@pytest.mark.parametrize("batch_id", [6, 7, 8, 9])
def test_the_same_word_neither_writes_nor_skips_a_batch_that_is_committed_in_part(batch_id: int) -> None:
    batch = ranged(batch_id, {O0: 25}, {O0: 40})
    assert isinstance(decide(told(7, {O0: 30}), batch, own="here", resolve="skip-to:ours.7.then"), Refuse)


@pytest.mark.parametrize("batch_id", [6, 7, 9])
def test_the_same_word_says_nothing_of_a_batch_without_records_whose_windows_may_be_committed_or_not(
    batch_id: int,
) -> None:
    idle = ranged(batch_id, {O0: 30}, {O0: 30})
    verdict = decide(told(7, {O0: 30}), idle, own="here", resolve="skip-to:ours.7.then")
    assert [word.split(":")[0] for word in words(verdict)] == ["write", "skip"]


@pytest.mark.parametrize("end", [30, 40])
def test_with_the_same_word_in_the_code_the_next_batch_is_written_whether_or_not_it_has_records(end: int) -> None:
    following = ranged(8, {O0: 30}, {O0: end})
    assert isinstance(decide(told(7, {O0: 30}), following, own="here", resolve="skip-to:ours.7.then"), Write)


@pytest.mark.parametrize("batch_id", [5, 7])
def test_the_same_word_says_nothing_of_another_commit(batch_id: int) -> None:
    batch = ranged(batch_id, {O0: 10}, {O0: 15})
    verdict = decide(told(7, {O0: 30}), batch, own="here", resolve="skip-to:ours.6.then")
    assert words(verdict) == ["skip-to:ours.7.then"]


@pytest.mark.parametrize("found", [None, entry(3)], ids=["without an entry", "an earlier entry"])
def test_after_a_change_of_sink_the_error_names_the_right_word_and_what_a_wrong_one_does(
    found: LedgerEntry | None,
) -> None:
    text = refused(decide(found, batch(9), None))
    assert "another sink until now, for example the built-in one" in text
    assert "stopped cleanly, this batch has not run yet, and `write` is correct" in text
    assert "the sink's option `resolve`" in text
    assert "otherwise, those records are repeated" in text
    assert "otherwise, missing records are lost" in text


@pytest.mark.parametrize("batch_id", [7, 8])
def test_the_same_word_does_not_pass_over_a_commit_that_lacks_frames(batch_id: int) -> None:
    lacking = replace(told(7, {O0: 30}), incomplete=True)
    verdict = decide(lacking, ranged(batch_id, {O0: 20}, {O0: 25}), own="here", resolve="skip-to:ours.7.then")
    assert "the writer's first call was committed, but a second call was refused" in refused(verdict)


def test_the_word_that_skips_an_incomplete_batch_also_lets_the_next_one_be_written_if_it_follows() -> None:
    found = replace(told(7, {O0: 30}), incomplete=True)
    same = replace(ranged(7, {O0: 20}, {O0: 30}), digest="then")
    (word,) = words(decide(found, same, own="here"))
    assert isinstance(decide(found, same, own="here", resolve=word), Skip)
    following = decide(found, ranged(8, {O0: 30}, {O0: 40}), own="here", resolve=word)
    assert isinstance(following, Write) and following.by_operator
    assert "does not start where it ended" in refused(
        decide(found, ranged(8, {O0: 35}, {O0: 40}), own="here", resolve=word)
    )
    assert "batch 8 is done" in refused(decide(found, ranged(9, {O0: 35}, {O0: 40}), own="here", resolve=word))
    later = replace(told(8, {O0: 40}), incomplete=True, digest="later")
    assert "batch 8 is incomplete" in refused(decide(later, ranged(9, {O0: 40}, {O0: 50}), own="here", resolve=word))


def test_the_words_for_an_incomplete_batch_that_was_planned_again_say_nothing_of_the_next_one() -> None:
    found = replace(told(7, {O0: 30}), incomplete=True)
    again = decide(found, ranged(7, {O0: 20}, {O0: 35}), own="here")
    assert "other source offsets than in the checkpoint" in refused(again)
    assert "batch 7 is incomplete" in refused(again)
    for word in words(again):
        following = decide(found, ranged(8, {O0: 35}, {O0: 40}), own="here", resolve=word)
        assert "does not start where it ended: " in refused(following)
        assert "batch 7 is incomplete" in refused(following)


@pytest.mark.parametrize(
    ("batch_id", "start", "also"),
    [
        (8, 35, "does not start where it ended"),
        (9, 35, "batch 8 is done"),
        (6, 30, "this driver is at batch 6"),
    ],
)
def test_what_else_is_wrong_after_an_incomplete_batch_is_said_too_and_its_words_settle_it(
    batch_id: int, start: int, also: str
) -> None:
    found = replace(told(7, {O0: 30}), incomplete=True)
    following = ranged(batch_id, {O0: start}, {O0: 40})
    for word in ("", f"skip:{name_of(found)}/{name_of(found)}"):
        verdict = decide(found, following, own="here", resolve=word or None)
        assert also in refused(verdict)
        assert ("batch 7 is incomplete" in refused(verdict)) == (not word or batch_id < 7)
        write, skip = words(verdict)
        assert isinstance(decide(found, following, own="here", resolve=write), Write)
        assert isinstance(decide(found, following, own="here", resolve=skip), Skip)


LEFT = TopicPartition("left", 0)


def ended_in_real_time(origin: Origin | None = None) -> LedgerEntry:
    """The entry of micro-batches that no longer read what was read in real time."""
    return LedgerEntry(
        query_id="query",
        batch_id=7,
        digest="d",
        serial=8,
        sources=(SourceProgress(cluster="c", offsets={O0: 10}, start={O0: 5}),),
        left=SourceProgress(cluster="c", offsets={LEFT: 70}, origin=origin),
    )


@pytest.mark.parametrize(
    ("query_id", "number", "start", "why"),
    [
        ("new", 0, 70, None),
        ("new", 0, 0, "left-0 at 0 (committed 70)"),
        ("query", 8, 0, None),
    ],
    ids=["a new query, where it ended", "a new query, elsewhere", "on its checkpoint, from the beginning"],
)
def test_what_ended_in_real_time_and_was_not_read_since_goes_on_there_in_a_new_query(query_id, number, start, why):
    last = ended_in_real_time()
    sources = reads({O0: 10, LEFT: start}, {O0: 12, LEFT: 80})
    following = MicroBatch(query_id=query_id, batch_id=number, digest="e", sources=sources, stateful=False)
    verdict = decide(last, following, clusters=("c",), own="c")
    if why is None:
        assert isinstance(verdict, Write)
    else:
        assert isinstance(verdict, Refuse) and why in verdict.reason


def test_what_ended_in_real_time_is_of_a_topic_that_was_not_created_again():
    ids = [{"orders": UUID(int=1), "left": UUID(int=number)} for number in (2, 3)]
    before, now = (Origin(cluster="c", topic_ids=each) for each in ids)
    last = ended_in_real_time(before)
    (source,) = reads({O0: 10, LEFT: 70}, {O0: 12, LEFT: 80})
    again = replace(source, start_origin=now)
    following = MicroBatch(query_id="new", batch_id=0, digest="e", sources=(again,), stateful=False)
    verdict = decide(last, following, clusters=("c",), own="c")
    assert isinstance(verdict, Refuse) and "topic left was created again" in verdict.reason
