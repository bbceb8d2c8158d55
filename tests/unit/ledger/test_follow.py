"""Where a ledger that was moved is found: from each place that it left, whatever pointers are lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_eos.kafka.partitions import OffsetAndMetadata, TopicPartition
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.ledger import copies, entry_format
from spark_kafka_eos.ledger.entry import LedgerEntry, MovedLedger, UnreadableEntry
from spark_kafka_eos.ledger.topic import follow

NO_CLUSTER = cast(Cluster, None)  # the reader is given
OUT = TopicPartition("out", 0)  # where version 1 kept its pointer
A, B, C = (TopicPartition(topic, 0) for topic in ("ledger-a", "ledger-b", "ledger-c"))


def entry(serial: int) -> LedgerEntry:
    return LedgerEntry(query_id="q", batch_id=serial - 1, digest=f"d{serial}", serial=serial, sources=())


def followed(
    records: Mapping[TopicPartition, bytes],
    found: LedgerEntry | MovedLedger | UnreadableEntry | None,
    at: TopicPartition,
) -> tuple[LedgerEntry | UnreadableEntry | None, list[TopicPartition]]:
    """With the topics of these records; others do not exist."""

    return follow(NO_CLUSTER, "q", found, at, lambda kept: records.get(kept.at))


def records(**places: LedgerEntry | MovedLedger) -> dict[TopicPartition, bytes]:
    return {TopicPartition(f"ledger-{name}", 0): entry_format.encode_record(each) for name, each in places.items()}


def moved(serial: int, place: TopicPartition) -> MovedLedger:
    return MovedLedger(serial=serial, topic=place.topic)


@pytest.mark.parametrize("found", [None, entry(3), UnreadableEntry(description="x", digest="d")])
def test_what_does_not_lead_on_is_the_answer(found: Any) -> None:
    assert followed({}, found, A) == (found, [A])


def test_from_place_to_place_it_leads_to_the_entry() -> None:
    there = records(b=moved(7, C), c=entry(9))
    assert followed(there, moved(4, B), A) == (entry(9), [A, B, C])


@pytest.mark.parametrize(
    "there",
    [
        pytest.param({}, id="no topic"),
        pytest.param(records(b=entry(3)), id="an older entry"),
        pytest.param(records(b=moved(5, A)), id="a circle"),
        pytest.param(records(b=moved(5, B)), id="to itself"),
        pytest.param(records(b=moved(3, C), c=entry(9)), id="an older place"),
    ],
)
def test_where_the_entry_is_lost_on_the_way_none_is_made_up(there: dict[TopicPartition, bytes]) -> None:
    found, _ = followed(there, moved(4, B), A)
    assert isinstance(found, UnreadableEntry)
    assert "its entry is not there: the topic was deleted, or its records were" in found.description
    assert found.serial >= 4


def test_a_place_that_is_said_to_be_here_and_has_no_such_entry_is_lost() -> None:
    found, passed = followed({}, moved(9, A), A)
    assert isinstance(found, UnreadableEntry)
    assert (found.serial, passed) == (9, [A])


def test_what_cannot_be_read_there_is_refused_and_its_serial_is_not_below_what_led_there() -> None:
    found, passed = followed({B: b"junk"}, moved(4, B), A)
    assert isinstance(found, UnreadableEntry)
    assert (found.serial, passed) == (4, [A, B])


@dataclass(slots=True)
class Books:
    """What brokers hold of one transactional.id: records by ledger topic, and the group's offsets."""

    records: dict[TopicPartition, bytes] = field(default_factory=dict)
    committed: dict[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)

    def look(self, at: TopicPartition) -> tuple[LedgerEntry | UnreadableEntry | None, list[TopicPartition]]:
        return followed(self.records, copies.newest(self.records.get(at), self.committed, at), at)

    def commit(self, at: TopicPartition, one: LedgerEntry, passed: list[TopicPartition]) -> None:
        """As the keeper does it, in one transaction."""
        left = copies.misleading(self.committed, at) | {place: True for place in passed if place != at}
        self.records[at], self.committed[at] = entry_format.encode_record(one), entry_format.encode_pointer(one, 0)
        onward = moved(one.serial, at)
        for place, has_records in left.items():
            if has_records:
                self.records[place] = entry_format.encode_record(onward)
            self.committed[place] = entry_format.encode_pointer(onward, 0)


STEPS = st.one_of(
    st.tuples(st.just("commit"), st.sampled_from([A, B, C])),
    st.tuples(st.just("expire"), st.sets(st.sampled_from([A, B, C, OUT]))),
    st.tuples(st.just("reset"), st.sets(st.sampled_from([A, B, C, OUT]))),
)


@given(st.booleans(), st.lists(STEPS, max_size=25))
def test_however_often_the_ledger_moves_and_pointers_are_lost_the_last_entry_is_found_or_none_and_never_an_older_one(
    began_with_version_1: bool, steps: list[tuple[str, Any]]
) -> None:
    books, last = Books(), cast(LedgerEntry | None, None)
    if began_with_version_1:
        old = '{"v":1,"query":"q","batch":0,"digest":"d"}'
        books.committed[OUT] = OffsetAndMetadata(offset=1, metadata=old)
        last = entry_format.decode_committed(books.committed[OUT])
    for step, where in steps:
        if step == "expire":
            books.committed = {place: at for place, at in books.committed.items() if place not in where}
        elif step == "reset":
            books.committed |= {place: OffsetAndMetadata(offset=0) for place in where & books.committed.keys()}
        else:
            found, passed = books.look(where)
            if isinstance(found, LedgerEntry) or last is None:
                assert found == last
                last = entry(1 if last is None else last.serial + 1)
                books.commit(where, last, passed)
            else:  # refused; only where the ledger never was
                assert where not in books.records
    for place in books.records:
        assert books.look(place)[0] == last
