"""A query's status: what is unread, held back, late and lost, and what the ledger's two copies mean together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_kafka_eos.kafka.partitions import OffsetAndMetadata, TopicPartition
from spark_kafka_eos.kafka.protocol.facts import LogEnds
from spark_kafka_eos.ledger import entry as ledger
from spark_kafka_eos.ledger import entry_format
from spark_kafka_eos.ledger.entry import LedgerEntry
from spark_kafka_eos.tools.operators.status import (
    PartitionLag,
    QueryStatus,
    RecordedEntry,
    SourceLag,
    copies_of,
    entry_of,
)
from tests.batches import record

AT = TopicPartition("kafka-eos-ledger", 0)
O0, O1, P0 = TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("prices", 0)
ENTRY = LedgerEntry(query_id="q", batch_id=4, digest="d", serial=5)


def lag(committed: int, stable: int, high: int, *, earliest: int = 0, oldest: int | None = None) -> PartitionLag:
    log_ends = LogEnds(last_stable_offset=stable, high_watermark=high)
    return PartitionLag(committed=committed, earliest=earliest, log_ends=log_ends, oldest_unread_ms=oldest)


def commit(serial: int) -> RecordedEntry:
    return RecordedEntry(record=record(), entry=replace(ENTRY, serial=serial))


def status(*sources: SourceLag | None) -> QueryStatus:
    return QueryStatus(transactional_id="t", ledger_topic=AT.topic, commits=(commit(5),), sources=sources)


@pytest.mark.parametrize(
    ("of", "unread", "held", "lost"),
    [
        (lag(10, 10, 10), 0, 0, 0),
        (lag(10, 30, 30), 20, 0, 0),
        (lag(10, 30, 37), 20, 7, 0),
        (lag(30, 30, 37), 0, 7, 0),
        (lag(10, 30, 30, earliest=25), 5, 0, 15),
        (lag(40, 30, 35), 0, 0, 0),  # another topic of the same name, or another leader
    ],
)
def test_offsets_are_unread_held_back_or_lost(of: PartitionLag, unread: int, held: int, lost: int) -> None:
    assert (of.unread, of.held, of.lost) == (unread, held, lost)


def test_a_query_that_has_read_all_is_not_late_and_one_whose_oldest_record_is_unknown_is_not_called_punctual() -> None:
    assert lag(10, 10, 10).late_ms(99) == 0
    assert lag(10, 30, 30).late_ms(99) is None
    assert lag(10, 30, 30, oldest=40).late_ms(99) == 59
    assert lag(10, 30, 30, oldest=140).late_ms(99) == 0, "the producer's clock is ahead"


def test_a_query_is_as_late_as_its_latest_partition_and_sums_its_offsets() -> None:
    one = SourceLag(cluster="a", offsets={}, partitions={O0: lag(0, 2, 3, oldest=10), O1: lag(0, 5, 5, oldest=20)})
    other = SourceLag(cluster="b", offsets={}, unknown={P0: "no connection"})
    found = status(one, None, other)
    assert (found.unread, found.held, found.lost, found.late_ms(100)) == (7, 1, None, 90), "at least 7, 1 and 90"
    assert found.unknown == ["no connection"]
    known = status(one)
    assert (known.unread, known.held, known.lost, known.late_ms(100)) == (7, 1, 0, 90)


def test_what_is_read_hides_no_unread_record_whose_time_is_unknown() -> None:
    found = status(SourceLag(cluster="a", offsets={}, partitions={O0: lag(0, 2, 2), O1: lag(5, 5, 5)}))
    assert (found.unread, found.late_ms(100)) == (2, None)
    late = status(SourceLag(cluster="a", offsets={}, partitions={O0: lag(0, 2, 2), O1: lag(3, 5, 5, oldest=10)}))
    assert (late.unread, late.late_ms(100)) == (4, 90), "at least"


def test_a_lag_of_which_nothing_is_known_is_unknown_and_not_zero() -> None:
    found = status(SourceLag(cluster="b", offsets={P0: 1}, unknown={P0: "no connection"}))
    assert (found.unread, found.held, found.lost, found.late_ms(100)) == (None,) * 4


def test_commits_that_are_missing_are_counted_by_their_numbers() -> None:
    found = status()
    assert replace(found, commits=(commit(1), commit(2))).commits_missing == 0
    assert replace(found, commits=(commit(4), commit(9))).commits_missing == 7
    assert replace(found, commits=()).commits_missing == 0


def pointer(serial: int) -> dict[TopicPartition, OffsetAndMetadata]:
    return {AT: entry_format.encode_pointer(replace(ENTRY, serial=serial), 0)}


@pytest.mark.parametrize(
    ("record", "committed", "said", "valid"),
    [
        (None, {}, "There is no entry", None),
        (ENTRY, pointer(5), "say the same", 5),
        (ENTRY, {}, "The pointer has expired", 5),
        (None, pointer(5), "The record is gone", 5),
        (ENTRY, pointer(4), "The pointer is older", 5),
        (ENTRY, pointer(6), "The record is older", 6),
    ],
)
def test_the_two_copies_say_together_which_one_counts(
    record: LedgerEntry | None, committed: dict[TopicPartition, OffsetAndMetadata], said: str, valid: int | None
) -> None:
    found = copies_of(None if record is None else entry_format.encode_record(record), committed, AT)
    assert said in found.agreement
    assert (found.valid.serial if isinstance(found.valid, LedgerEntry) else None) == valid


def test_what_is_not_an_entry_is_said_to_be_refused() -> None:
    found = copies_of(b"junk", {}, AT)
    assert found.agreement.startswith("The query will be refused: the ledger contains something that is not an entry")
    assert isinstance(entry_of(b"junk"), ledger.UnreadableEntry)


def test_copies_that_contradict_each_other_are_said_to_be_refused() -> None:
    other = {AT: entry_format.encode_pointer(replace(ENTRY, digest="other"), 0)}
    assert "unknown which one is the last" in copies_of(entry_format.encode_record(ENTRY), other, AT).agreement
