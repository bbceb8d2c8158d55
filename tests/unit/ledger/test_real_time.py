"""The verdict on a batch in real time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.ledger import verdicts
from spark_kafka_eos.ledger.decide import decide_micro_batch
from spark_kafka_eos.ledger.entry import LedgerEntry, SourceProgress, UnreadableEntry
from spark_kafka_eos.ledger.real_time import decide_in_real_time
from spark_kafka_eos.ledger.refusal import Refuse
from spark_kafka_eos.ledger.verdicts import Write
from spark_kafka_eos.micro_batch import MicroBatch, SourceRange
from spark_kafka_eos.options import sink_options
from spark_kafka_eos.source_offset import SinkIdentity
from tests.batches import reads

GIVEN = {"kafka.bootstrap.servers": "b:1", "kafka.transactional.id": "id", "topic": "out"}
AT, NEW = TopicPartition("in", 0), TopicPartition("new", 0)


def entry(query_id: str, *, buckets: int | None = 1, incomplete: bool = False) -> LedgerEntry:
    sources = (SourceProgress(cluster="c", offsets={AT: 10}),)
    return LedgerEntry(
        query_id=query_id, batch_id=5, digest="d5", serial=6, sources=sources, buckets=buckets, incomplete=incomplete
    )


def batch(number: int, at: TopicPartition = AT) -> MicroBatch:
    sources = reads({at: 10}, {at: 12})
    return MicroBatch(query_id="ours", batch_id=number, digest=f"d{number}", sources=sources, buckets=1)


def going_by(sink: SinkIdentity) -> MicroBatch:
    """A first batch whose source goes by what this sink has committed."""
    return replace(batch(0), sources=(SourceRange(start={AT: 10}, end={AT: 12}, sinks=(sink,)),))


def decided(
    found, next_one: MicroBatch, committed=None, *, other_ids=(), ours=False, **options: str
) -> verdicts.Verdict:
    decide = decide_in_real_time(sink_options(GIVEN | options))
    return decide(found, next_one, committed or {}, clusters=("c",), own="c", other_ids=other_ids, ours=ours)


REFUSED = [
    pytest.param(None, batch(57), id="a checkpoint of another sink"),
    pytest.param(UnreadableEntry(description="?", digest="abcdefgh"), batch(6), id="a ledger that cannot be read"),
    pytest.param(entry("ours", buckets=None, incomplete=True), batch(5), id="the incomplete batch"),
    pytest.param(entry("ours", buckets=None, incomplete=True), batch(6), id="the one after it"),
    pytest.param(entry("old", buckets=None, incomplete=True), batch(0), id="an incomplete batch of another query"),
    pytest.param(entry("old"), batch(6), id="another query"),
    pytest.param(entry("old"), batch(0, NEW), id="a topic of which nothing is known"),
]


@pytest.mark.parametrize(("found", "next_one"), REFUSED)
def test_a_refusal_offers_no_word_that_does_not_work(found, next_one) -> None:
    refusal = decided(found, next_one)
    assert isinstance(refusal, Refuse)
    assert refusal.choices == {} and "resolve='" not in refusal.remedy and "`write`" not in refusal.remedy
    assert refusal.remedy.endswith(".")


SETTLED_BEFORE = [each for each in REFUSED if each.id in ("a checkpoint of another sink", "the one after it")]


@pytest.mark.parametrize(("found", "next_one"), SETTLED_BEFORE)
def test_what_is_refused_is_settled_in_micro_batches_and_real_time_goes_on_from_there(found, next_one) -> None:
    refusal = decided(found, next_one)
    assert isinstance(refusal, Refuse) and "once in micro-batches, without `real_time`" in refusal.remedy
    micro_batch = replace(next_one, buckets=None)
    named = decide_micro_batch(sink_options(GIVEN))(found, micro_batch, {}, clusters=("c",), own="c")
    assert isinstance(named, Refuse)
    (word,) = [word for word in named.choices if word.startswith("write:")]
    decide = decide_micro_batch(sink_options(GIVEN | {"resolve": word}))
    assert isinstance(decide(found, micro_batch, {}, clusters=("c",), own="c"), Write)
    committed = replace(entry("ours", buckets=None), batch_id=next_one.batch_id, digest=next_one.digest)
    for following in (next_one, batch(next_one.batch_id + 1)):
        assert isinstance(decided(committed, following), Write)


def test_a_ledger_that_was_deleted_is_refused_and_settled_in_micro_batches() -> None:
    first, group = batch(0), {AT: 7}
    refusal = decided(None, first, group, ours=True)
    assert isinstance(refusal, Refuse) and "in-0 at 10 (committed 7)" in refusal.reason
    assert refusal.choices == {} and "once in micro-batches, without `real_time`" in refusal.remedy
    micro_batch = replace(first, buckets=None)
    named = decide_micro_batch(sink_options(GIVEN))(None, micro_batch, group, clusters=("c",), own="c", ours=True)
    assert isinstance(named, Refuse)
    (word,) = named.choices
    decide = decide_micro_batch(sink_options(GIVEN | {"resolve": word}))
    assert isinstance(decide(None, micro_batch, group, clusters=("c",), own="c", ours=True), Write)
    assert isinstance(decided(None, first, {AT: 10}, ours=True), Write), "it starts where the group is"


def test_where_micro_batches_ended_is_known_without_the_group() -> None:
    ended = entry("old", buckets=None)
    assert isinstance(decided(ended, batch(0)), Write)
    assert isinstance(decided(replace(ended, sources=None), batch(0)), Refuse)
    elsewhere = (SourceProgress(cluster="another", offsets={AT: 10}),)
    assert isinstance(decided(replace(ended, sources=elsewhere), batch(0)), Refuse)


def test_a_partition_that_was_added_to_a_topic_that_was_left_out_meanwhile_is_new() -> None:
    left = SourceProgress(cluster="c", offsets={NEW: 70})
    added = TopicPartition("new", 1)
    first = replace(batch(0), sources=reads({NEW: 0, added: 0}, {NEW: 12, added: 12}))
    assert isinstance(decided(replace(entry("old", buckets=None), left=left), first), Write)
    assert isinstance(decided(entry("old", buckets=None), first), Refuse)


@pytest.mark.parametrize(("committed", "fits"), [({}, False), ({AT: 9}, False), ({AT: 10}, True)])
def test_a_refusal_says_that_a_batch_starts_at_the_groups_offsets_only_if_it_does(committed, fits) -> None:
    refusal = decided(None, batch(57), committed)
    assert isinstance(refusal, Refuse)
    assert ("it starts at the group's committed offsets" in refusal.reason) == fits


def test_the_words_that_take_a_group_or_a_ledger_are_named_and_accepted() -> None:
    shared = decided(None, batch(0), other_ids=("other",))
    assert isinstance(shared, Refuse) and [*shared.choices] == ["take-group:other"]
    assert isinstance(decided(None, batch(0), other_ids=("other",), resolve="take-group:other"), Write)
    start = going_by(SinkIdentity(transactional_id="other"))
    elsewhere = decided(None, start)
    assert isinstance(elsewhere, Refuse) and [*elsewhere.choices] == ["take-ledger:other"]
    assert isinstance(decided(None, start, resolve="take-ledger:other"), Write)


def test_a_verdict_says_whether_a_word_of_the_operator_led_to_it() -> None:
    taken = decided(None, batch(0), other_ids=("other",), resolve="take-group:other")
    over = decided(entry("old"), batch(0, NEW), takeOverQuery="old")
    for verdict in (taken, over):
        assert isinstance(verdict, Write) and verdict.by_operator
    first = decided(None, batch(0))
    assert isinstance(first, Write) and not first.by_operator


def test_a_group_and_a_ledger_are_taken_by_a_value_with_both_words() -> None:
    start = going_by(SinkIdentity(transactional_id="other"))
    refusal = decided(None, start, other_ids=("other",), resolve="take-ledger:other")
    assert isinstance(refusal, Refuse)
    (both,) = refusal.choices
    assert both == "take-ledger:other; take-group:other"
    assert isinstance(decided(None, start, other_ids=("other",), resolve=both), Write)


def test_a_first_batch_whose_source_looked_on_another_cluster_is_refused() -> None:
    there = SinkIdentity(transactional_id="id", ledger_topic="kafka-eos-ledger", cluster="elsewhere")
    refusal = decided(None, going_by(there))
    assert isinstance(refusal, Refuse) and "on cluster elsewhere" in refusal.reason
    assert isinstance(decided(None, going_by(replace(there, cluster="c"))), Write)
