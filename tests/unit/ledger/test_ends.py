"""Where the last transaction ended and the batch starts: what lies in between, and what is covered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from uuid import UUID

import pytest

from spark_kafka_eos.kafka.partitions import Offsets, TopicPartition
from spark_kafka_eos.ledger.ends import CommittedEnd, is_enough
from spark_kafka_eos.ledger.entry import LedgerEntry, SourceProgress, UnreadableEntry
from spark_kafka_eos.micro_batch import MicroBatch, SourceRange
from spark_kafka_eos.source_offset import Origin

O0, O1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
OLD, NEW = (Origin(cluster="here", topic_ids={"orders": UUID(int=number)}) for number in (1, 2))


def ended(
    end: Offsets, start: Offsets | None, until: Mapping[TopicPartition, int], *, began: Offsets | None = None
) -> CommittedEnd:
    """An entry that ended at `end`, and a batch from `start` to `until`."""
    progress = SourceProgress(cluster="here", offsets=end, origin=OLD, start=began)
    entry = LedgerEntry(query_id="q", batch_id=7, digest="d", serial=8, sources=(progress,))
    batch = MicroBatch(query_id="q", batch_id=9, digest="e", sources=(SourceRange(start=start, end=until),))
    return CommittedEnd.of(entry, batch, ("here",), "here", None)


@pytest.mark.parametrize(
    ("end", "start", "between"),
    [
        ({O0: 10}, {O0: 10}, {}),
        ({O0: 10}, {O0: 13}, {O0: (10, 13)}),
        ({O0: 10, O1: 4}, {O0: 13, O1: 4}, {O0: (10, 13)}),
        ({O0: 10}, {O0: 10, O1: 1}, {O1: (0, 1)}),
        ({O0: 10}, {O0: 10, O1: 0}, {}),
        ({O0: 10, O1: 4}, {O0: 13, O1: 3}, None),
        ({O0: 10}, None, None),
        ({O0: 10}, {}, None),
    ],
)
def test_what_lies_between_is_known_by_partition_unless_the_batch_starts_earlier(end, start, between) -> None:
    found = ended(end, start, {O0: 20, O1: 20}).between()
    assert found == (between if between is None else {("here", tp): gap for tp, gap in between.items()})


def test_nothing_is_known_to_lie_between_an_entry_and_a_topic_that_was_created_again() -> None:
    both = ended({O0: 10}, {O0: 13}, {O0: 20})
    (source,) = both.sources
    assert source is not None
    assert replace(both, sources=(replace(source, start_origin=OLD),)).between() == {("here", O0): (10, 13)}
    assert replace(both, sources=(replace(source, start_origin=NEW),)).between() is None
    assert replace(both, entry=None).between() is None


@pytest.mark.parametrize(
    ("start", "until", "covered"),
    [
        ({O0: 5}, {O0: 10}, True),
        ({O0: 5}, {O0: 11}, False),
        ({O0: 5, O1: 0}, {O0: 10, O1: 1}, False),
        (None, {O0: 10}, False),
        ({}, {}, False),
    ],
)
def test_a_batch_is_covered_only_if_all_that_it_reads_is_known_to_be_committed(start, until, covered) -> None:
    both = ended({O0: 10}, start, until, began={O0: 8})
    assert both.is_committed() is covered
    assert not replace(both, entry=None).is_committed()


def test_each_source_must_have_its_cluster() -> None:
    both = ended({O0: 10}, {O0: 10}, {O0: 20})
    with pytest.raises(ValueError, match="zip"):
        replace(both, clusters=("here", "there")).starts()


@pytest.mark.parametrize(
    ("whose", "was_in_real_time", "in_real_time", "enough"),
    [
        ("own", False, False, True),
        ("own", False, True, True),
        ("own", True, True, True),
        ("own", True, False, False),
        ("another", False, False, True),
        ("another", False, True, False),
        ("another", True, False, False),
        ("another", True, True, False),
    ],
)
def test_the_groups_offsets_are_needed_where_real_time_moved_them_or_begins_under_another_query(
    whose: str, was_in_real_time: bool, in_real_time: bool, enough: bool
) -> None:
    sources = (SourceProgress(cluster="here", offsets={O0: 10}),)
    entry = LedgerEntry(
        query_id=whose, batch_id=7, digest="d", sources=sources, buckets=1 if was_in_real_time else None
    )
    batch = MicroBatch(query_id="own", batch_id=8, digest="e", sources=(), buckets=1 if in_real_time else None)
    assert is_enough(entry, batch) is enough


def test_the_groups_offsets_are_needed_where_the_entry_does_not_say_where_it_ended() -> None:
    batch = MicroBatch(query_id="own", batch_id=8, digest="e", sources=())
    assert not is_enough(None, batch)
    assert not is_enough(UnreadableEntry(description="?", digest="d"), batch)
    assert not is_enough(LedgerEntry(query_id="another", batch_id=7, digest="d"), batch)
    assert is_enough(LedgerEntry(query_id="own", batch_id=7, digest="d"), batch), "its numbers say it"
