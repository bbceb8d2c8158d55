"""Where partitions are read on in real time, by the ledger's entry and the records of buckets."""

from __future__ import annotations

import uuid

import pytest

from spark_kafka_eos.kafka.partitions import Offsets, TopicPartition
from spark_kafka_eos.ledger.bucket_record import BucketRecord, latest
from spark_kafka_eos.ledger.entry import LedgerEntry, SourceProgress, UnreadableEntry
from spark_kafka_eos.ledger.next_entry import next_entry
from spark_kafka_eos.ledger.real_time import impossible, said, with_records
from spark_kafka_eos.micro_batch import MicroBatch, SourceRange
from spark_kafka_eos.source_offset import Origin

A, B, C = TopicPartition("a", 0), TopicPartition("b", 0), TopicPartition("c", 0)
IDS = {"a": uuid.UUID(int=1), "b": uuid.UUID(int=2), "c": uuid.UUID(int=3)}


def _source(offsets: Offsets, epochs: Offsets | None = None) -> SourceProgress:
    ids = {tp.topic: IDS[tp.topic] for tp in offsets}
    return SourceProgress(
        cluster="C", offsets=offsets, origin=Origin(cluster="C", topic_ids=ids, leader_epochs=epochs or {})
    )


def _entry(
    serial: int,
    sources: tuple[SourceProgress, ...] | None,
    *,
    buckets: int | None = None,
    starts: tuple[int, ...] = (),
    left: SourceProgress | None = None,
) -> LedgerEntry:
    return LedgerEntry(
        query_id="q",
        batch_id=serial,
        digest="d",
        serial=serial,
        sources=sources,
        buckets=buckets,
        starts=starts,
        left=left,
    )


def _record(serial: int, tp: TopicPartition, offset: int, epoch: int = 1) -> BucketRecord:
    return BucketRecord(serial=serial, offsets={tp: offset}, topic_ids={}, epochs={tp: epoch})


def _ends(entry: LedgerEntry | UnreadableEntry | None, *records: BucketRecord) -> tuple[Offsets, Offsets]:
    found = latest(said(entry, "C", dict(enumerate(records))))
    return found.offsets, found.epochs


def _after(entry: LedgerEntry, batch: MicroBatch, cluster: str = "C") -> LedgerEntry:
    return next_entry(
        entry, batch, (cluster,), incomplete=False, written=None, table=None, transaction_version=2, group="g"
    )


def _next(
    entry: LedgerEntry, ends: Offsets, *, buckets: int | None, started: tuple[int, ...] | None = None
) -> LedgerEntry:
    origin = Origin(
        cluster="C", topic_ids={tp.topic: IDS[tp.topic] for tp in ends}, leader_epochs=dict.fromkeys(ends, 9)
    )
    batch = MicroBatch(
        query_id="q",
        batch_id=7,
        digest="d",
        sources=(SourceRange(start=None, end=ends, origin=origin),),
        buckets=buckets,
        started=started,
    )
    return _after(entry, batch)


def test_a_record_of_a_bucket_that_the_entry_has_started_counts_and_an_earlier_one_does_not() -> None:
    entry = _entry(5, (_source({A: 10, B: 20}, {A: 2}),), buckets=2)
    assert _ends(entry, _record(5, A, 12), _record(4, B, 99)) == ({A: 12, B: 20}, {A: 1})


def test_an_entry_that_starts_one_bucket_again_leaves_the_records_of_those_that_run_on() -> None:
    entry = _next(_entry(5, (_source({A: 10, B: 20}),), buckets=2), {A: 7}, buckets=2, started=(0,))
    assert (entry.serial, entry.starts) == (6, (6, 5))
    assert _ends(entry, _record(5, A, 12), _record(5, B, 25)) == ({A: 7, B: 25}, {A: 9, B: 1})
    again = _next(entry, {B: 25}, buckets=2, started=(1,))
    assert again.starts == (6, 7)
    assert _ends(again, _record(6, A, 8), _record(5, B, 99)) == ({A: 8, B: 25}, {A: 1, B: 9})


def test_an_entry_that_starts_all_buckets_leaves_no_earlier_record() -> None:
    entry = _next(_entry(5, (_source({A: 10, B: 20}),), buckets=2, starts=(5, 4)), {A: 7, B: 25}, buckets=1)
    assert entry.starts == ()
    assert _ends(entry, _record(5, A, 12), _record(5, B, 99)) == ({A: 7, B: 25}, {A: 9, B: 9})


def test_after_micro_batches_no_record_of_a_bucket_counts_nor_the_epochs_of_when_they_were_planned() -> None:
    entry = _next(_entry(5, (_source({A: 700}),), buckets=1), {A: 200}, buckets=None)
    assert _ends(entry, _record(5, A, 700)) == ({A: 200}, {})


def test_what_micro_batches_leave_out_is_kept_until_it_is_read_again() -> None:
    began = _entry(5, (_source({A: 10, B: 20}, {A: 3, B: 4}),), buckets=1)
    first = _next(began, {A: 12}, buckets=None)
    second = _next(first, {A: 14}, buckets=None)
    assert first.left == second.left == _source({B: 20}, {B: 4})
    assert _ends(second) == ({A: 14, B: 20}, {B: 4})
    assert _next(second, {A: 14, B: 30}, buckets=None).left is None
    in_real_time = _next(second, {A: 15}, buckets=1)
    assert (in_real_time.left, in_real_time.sources) == (None, (_source({A: 15, B: 20}, {A: 9, B: 4}),))


def test_what_was_left_out_is_read_on_beside_a_source_of_which_no_topics_ids_are_known() -> None:
    began = _entry(5, (_source({A: 10, B: 20}),), buckets=1)
    batch = MicroBatch(query_id="q", batch_id=7, digest="d", sources=(SourceRange(start=None, end={A: 12}),), buckets=1)
    entry = _after(began, batch)
    assert entry.sources == (SourceProgress(cluster="C", offsets={A: 12, B: 20}),)


def test_a_topic_of_the_same_name_on_another_cluster_is_not_what_was_left_out() -> None:
    began = _entry(5, (_source({A: 10}),), buckets=1)
    batch = MicroBatch(query_id="q", batch_id=7, digest="d", sources=(SourceRange(start=None, end={A: 3}),))
    entry = _after(began, batch, "other")
    assert entry.left == _source({A: 10})
    assert _ends(entry) == ({A: 10}, {})


@pytest.mark.parametrize(
    "entry",
    [None, UnreadableEntry(description="why", digest="d"), _entry(5, None, buckets=1)],
    ids=["no entry", "an unreadable one", "only the pointer"],
)
def test_records_count_where_no_entry_says_that_they_are_old(entry: LedgerEntry | UnreadableEntry | None) -> None:
    assert _ends(entry, _record(3, A, 12)) == ({A: 12}, {A: 1})


def test_an_entry_with_its_buckets_records_has_no_partition_that_it_did_not_have() -> None:
    entry = _entry(5, (_source({A: 10}, {A: 2}),), buckets=2)
    assert with_records(entry, {0: _record(5, A, 12), 1: _record(5, B, 9)}).sources == (_source({A: 12}, {A: 1}),)


@pytest.mark.parametrize(
    ("entry", "number", "last"),
    [
        pytest.param(_entry(5, (_source({A: 10}),), buckets=2), 1, 5, id="in real time"),
        pytest.param(_entry(5, (_source({A: 10}),), buckets=2), 2, 4, id="a bucket that the entry does not have"),
        pytest.param(_entry(6, (_source({A: 10}),), buckets=2, starts=(6, 5)), 1, 5, id="a bucket that runs on"),
        pytest.param(_entry(6, (_source({A: 10}),), buckets=2, starts=(6, 5)), 0, 6, id="the one that began again"),
        pytest.param(_entry(5, None, buckets=2), 1, 5, id="only the pointer"),
        pytest.param(_entry(5, (_source({A: 10}),)), 0, 4, id="micro-batches"),
        pytest.param(None, 0, 0, id="no entry"),
    ],
)
def test_a_bucket_has_no_record_of_a_later_start_than_the_entry_says(entry, number, last) -> None:
    assert impossible(entry, {number: _record(last, A, 12)}) is None
    assert impossible(entry, {number: _record(last + 1, A, 12)}) == number


@pytest.mark.parametrize("left", [None, B])
def test_what_micro_batches_have_ended_and_real_time_does_not_read_stays_known_without_the_epochs_of_their_plan(
    left: TopicPartition | None,
) -> None:
    read = {A: 5, C: 7} if left else {A: 5, B: 6, C: 7}
    micro = _entry(3, (_source(read, {A: 1, C: 1}),), left=left and _source({left: 6}, {left: 2}))
    first = _next(micro, {A: 5}, buckets=1)
    (source,) = first.sources or ()
    assert source is not None and source.origin is not None
    assert source.offsets == {A: 5, B: 6, C: 7}
    assert source.origin.topic_ids == IDS
    assert source.origin.leader_epochs == {A: 9} | ({left: 2} if left else {})
    (source,) = _next(first, {A: 8}, buckets=1).sources or ()
    assert source is not None and source.offsets == {A: 8, B: 6, C: 7}


def test_what_micro_batches_leave_out_of_earlier_ones_does_not_change_the_entrys_version() -> None:
    """A release without real time reads it, too."""
    assert _next(_entry(3, (_source({A: 5, B: 6}),)), {A: 7}, buckets=None).left is None
