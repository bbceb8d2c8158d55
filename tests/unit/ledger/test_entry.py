import json
import uuid
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_eos.errors import ConfigurationError
from spark_kafka_eos.kafka.partitions import MAX_METADATA_BYTES, OffsetAndMetadata, TopicPartition
from spark_kafka_eos.ledger import copies, entry_format
from spark_kafka_eos.ledger import entry as ledger
from spark_kafka_eos.ledger.copies import misleading, newest, of_others
from spark_kafka_eos.ledger.entry import BatchCounts, LedgerEntry, MovedLedger, SourceProgress, UnreadableEntry
from spark_kafka_eos.ledger.entry_format import NotAnEntry
from spark_kafka_eos.ledger.signing import Signer
from spark_kafka_eos.ledger.source_mark import marked_by, other_ids, source_mark
from spark_kafka_eos.source_offset import Origin

QUERY = "8e3c1c1e-8e3a-4c0e-9d53-0d8d8e2d4a11"
AT = TopicPartition("kafka-eos-ledger", 0)
PROGRESS = SourceProgress(cluster="A", offsets={TopicPartition("orders", 0): 600, TopicPartition("orders", 1): 0})
ENTRY = LedgerEntry(query_id=QUERY, batch_id=41, digest="0011223344556677", serial=42, sources=(PROGRESS, None))
WRITTEN = BatchCounts(records=600, bytes=54_321, milliseconds=812)
V1 = OffsetAndMetadata(offset=42, metadata=f'{{"v":1,"query":"{QUERY}","batch":41,"digest":"0011223344556677"}}')

COUNT = st.integers(0, 2**62)
TOPIC = st.text("abc.-", min_size=1)
PLACE = st.builds(TopicPartition, TOPIC, st.integers(0, 999))
OFFSETS = st.dictionaries(PLACE, COUNT)
origins = st.builds(
    Origin,
    cluster=st.text(max_size=30),
    topic_ids=st.dictionaries(TOPIC, st.uuids()),
    leader_epochs=st.dictionaries(PLACE, st.integers(-1, 2**31 - 1)),
)
progress = st.builds(
    SourceProgress,
    cluster=st.text(max_size=30),
    offsets=OFFSETS,
    origin=st.none() | origins,
    start=st.none() | OFFSETS,
)
entries = st.builds(
    LedgerEntry,
    query_id=st.text(max_size=300),
    batch_id=st.integers(0, 2**62),
    digest=st.text("0123456789abcdef", max_size=64),
    serial=st.integers(1, 2**62),
    run_id=st.none() | st.text(max_size=40),
    earlier_runs=st.lists(st.text(max_size=40), max_size=8).map(tuple),
    outputs=st.dictionaries(TOPIC, st.none() | st.uuids()),
    writes=st.none() | st.dictionaries(st.text(max_size=30), st.text("0123456789,-")),
    sources=st.none() | st.lists(st.none() | progress, max_size=3).map(tuple),
    incomplete=st.booleans(),
    table=st.none() | COUNT,
    transaction_version=st.none() | st.sampled_from((0, 1, 2)),
    buckets=st.none() | st.integers(1, 99),
    group=st.none() | st.text(max_size=40),
    starts=st.lists(st.integers(1, 2**62), max_size=9).map(tuple),
    left=st.none() | progress,
    written=st.none()
    | st.builds(
        BatchCounts,
        records=COUNT,
        bytes=COUNT,
        milliseconds=COUNT,
        dead_letters=COUNT,
        lost=st.dictionaries(TOPIC, COUNT),
    ),
)


def v1(batch_id: int, query_id: str = QUERY) -> OffsetAndMetadata:
    metadata = json.dumps({"v": 1, "query": query_id, "batch": batch_id, "digest": "d"})
    return OffsetAndMetadata(offset=batch_id + 1, metadata=metadata)


def entry(serial: int, batch_id: int = 7, query_id: str = QUERY) -> LedgerEntry:
    return LedgerEntry(query_id=query_id, batch_id=batch_id, digest="d", serial=serial, sources=(PROGRESS,))


@given(entries)
def test_a_record_survives_the_round_trip(one: LedgerEntry) -> None:
    assert entry_format.decode_record(entry_format.encode_record(one)) == one


@given(entries, COUNT)
def test_a_pointer_says_the_same_but_for_what_may_be_long(one: LedgerEntry, position: int) -> None:
    try:
        pointer = entry_format.encode_pointer(one, position)
    except ConfigurationError:
        return  # see below
    assert pointer.offset == position
    left = one.left and SourceProgress(cluster="", offsets={})
    short = replace(one, earlier_runs=(), transaction_version=None, outputs={}, sources=None, writes=None, written=None)
    short = replace(short, group=None, starts=(), left=left)
    assert entry_format.decode_committed(pointer) == short


def test_a_partition_that_is_new_in_the_batch_has_no_start_and_one_that_was_not_read_keeps_its() -> None:
    old, unread, new = (TopicPartition("orders", number) for number in range(3))
    moved = replace(PROGRESS, offsets={old: 9, unread: 5, new: 7}, start={old: 3, unread: 5})
    record = entry_format.encode_record(replace(ENTRY, sources=(moved,)))
    assert json.loads(record)["sources"][0]["from"] == {"orders": {"0": 3, "2": -1}}
    assert entry_format.decode_record(record).sources == (moved,)


@given(st.integers(0, 2**62), st.text(max_size=20))
def test_where_the_ledger_has_moved_survives_the_round_trip_and_is_no_entry(serial: int, topic: str) -> None:
    moved = MovedLedger(serial=serial, topic=topic)
    record, pointer = entry_format.encode_record(moved), entry_format.encode_pointer(moved, 0)
    assert newest(record, {}, AT) == newest(None, {AT: pointer}, AT) == moved
    with pytest.raises(NotAnEntry, match="has moved to topic"):
        entry_format.decode_record(record)
    with pytest.raises(NotAnEntry, match="has moved to topic"):
        entry_format.decode_committed(pointer)


def test_the_format_of_a_record_stays_readable() -> None:
    assert (
        entry_format.encode_record(ENTRY)
        == (
            f'{{"v":3,"serial":42,"query":"{QUERY}","batch":41,"digest":"0011223344556677",'
            '"sources":[{"cluster":"A","offsets":{"orders":{"0":600,"1":0}}},null]}'
        ).encode()
    )


def test_what_a_batch_wrote_is_added_to_what_release_0_2_0_wrote_and_reads() -> None:
    """That release looks its fields up by name, and leaves others alone."""
    old, new = (json.loads(entry_format.encode_record(replace(ENTRY, written=written))) for written in (None, WRITTEN))
    assert new.pop("written") == {"records": 600, "bytes": 54_321, "ms": 812}
    assert new == old


def test_what_a_batch_wrote_is_left_out_of_the_pointer() -> None:
    assert entry_format.encode_pointer(replace(ENTRY, written=WRITTEN), 7) == entry_format.encode_pointer(ENTRY, 7)


@pytest.mark.parametrize("written", ["null", "[]", '"x"', "{}", '{"records": "600", "bytes": 1, "ms": 1}'])
def test_an_entry_counts_whatever_is_said_of_what_the_batch_wrote(written: str) -> None:
    record = entry_format.encode_record(ENTRY)[:-1] + f',"written":{written}}}'.encode()
    assert entry_format.decode_record(record) == ENTRY


def test_the_format_of_version_1_stays_readable() -> None:
    assert entry_format.decode_committed(V1) == LedgerEntry(query_id=QUERY, batch_id=41, digest="0011223344556677")


def test_a_query_id_too_long_for_a_broker_is_an_error_before_anything_is_sent() -> None:
    with pytest.raises(ConfigurationError, match="4,096"):
        entry_format.encode_pointer(LedgerEntry(query_id="x" * 4_090, batch_id=0, digest=""), 0)


def test_the_longest_metadata_a_broker_takes_is_allowed() -> None:
    overhead = len(entry_format.encode_pointer(LedgerEntry(query_id="", batch_id=0, digest=""), 0).metadata)
    at_limit = LedgerEntry(query_id="x" * (4_096 - overhead), batch_id=0, digest="")
    assert len(entry_format.encode_pointer(at_limit, 0).metadata) == 4_096


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        "[]",
        "7",
        '"text"',
        "{}",
        '{"v":1}',
        '{"v":1,"query":"q","batch":"41","digest":"d"}',
        '{"v":2,"query":"q","batch":41,"digest":"d"}',
        '{"v":2,"serial":1,"query":"q","batch":41,"digest":"d","sources":7}',
        '{"v":2,"serial":1,"query":"q","batch":41,"digest":"d","sources":[{"cluster":"A"}]}',
        '{"v":2,"serial":1,"query":"q","batch":41,"digest":"d","sources":[{"cluster":"A","offsets":{"t":7}}]}',
        '{"v":4,"serial":1,"query":"q","batch":41,"digest":"d"}',
        '{"v":3,"serial":1,"query":"q","batch":41,"digest":"d","buckets":2}',
        '{"v":3,"serial":1,"query":"q","batch":41,"digest":"d","left":{}}',
        '{"v":4,"serial":1,"query":"q","batch":41,"digest":"d","left":{"cluster":"A"}}',
        '{"v":4,"serial":1,"query":"q","batch":41,"digest":"d","buckets":2,"starts":[1,"2"]}',
        '{"v":5,"serial":1,"query":"q","batch":41,"digest":"d"}',
        "consumer metadata",
    ],
)
def test_what_is_not_an_entry_is_neither_read_as_one_nor_as_none(text: str) -> None:
    with pytest.raises(NotAnEntry):
        entry_format.decode_record(text.encode())
    with pytest.raises(NotAnEntry):
        entry_format.decode_committed(OffsetAndMetadata(offset=42, metadata=text))
    last = newest(text.encode(), {}, AT)
    assert isinstance(last, UnreadableEntry)
    assert text[:20] in last.description


def test_long_foreign_metadata_is_shown_in_part() -> None:
    last = newest(None, {AT: OffsetAndMetadata(offset=1, metadata="x" * 4_000)}, AT)
    assert isinstance(last, UnreadableEntry)
    assert len(last.description) < 1_000


def test_an_entry_of_a_later_version_is_unreadable_and_says_so() -> None:
    last = newest(b'{"v":5}', {}, AT)
    assert isinstance(last, UnreadableEntry)
    assert "version 5" in last.description


def test_an_entry_in_real_time_has_a_version_that_releases_without_it_refuse_and_no_ends() -> None:
    in_real_time = replace(ENTRY, buckets=2, starts=(3, 5), group="g")
    assert b'"v":4' in entry_format.encode_record(in_real_time)
    assert entry_format.decode_record(entry_format.encode_record(in_real_time)) == in_real_time
    assert entry_format.decode_committed(entry_format.encode_pointer(in_real_time, 7)).buckets == 2
    assert in_real_time.ends is None, "where its sources began is not where they were read to"
    assert ENTRY.ends == ENTRY.sources


def test_an_entry_with_partitions_that_were_left_out_since_real_time_has_that_version_too() -> None:
    origin = Origin(cluster="A", topic_ids={"b": uuid.UUID(int=7)}, leader_epochs={TopicPartition("b", 0): 4})
    left = SourceProgress(cluster="A", offsets={TopicPartition("b", 0): 9}, origin=origin)
    since = replace(ENTRY, left=left)
    assert b'"v":4' in entry_format.encode_record(since)
    assert entry_format.decode_record(entry_format.encode_record(since)) == since
    pointer = entry_format.decode_committed(entry_format.encode_pointer(since, 7))
    assert pointer.left == SourceProgress(cluster="", offsets={}), "there are some, and only the record says which"
    assert since.ends == ENTRY.sources


def test_an_entry_of_version_1_whose_offset_was_reset_by_hand_is_not_an_entry() -> None:
    with pytest.raises(NotAnEntry, match="is not at offset 42"):
        entry_format.decode_committed(OffsetAndMetadata(offset=7, metadata=V1.metadata))


def test_nothing_anywhere_is_not_an_entry() -> None:
    assert newest(None, {}, AT) is None


def test_the_record_holds_where_the_groups_offsets_have_expired() -> None:
    assert newest(entry_format.encode_record(ENTRY), {}, AT) == ENTRY


def test_the_record_with_all_its_sources_holds_where_both_are_of_one_commit() -> None:
    assert newest(entry_format.encode_record(ENTRY), {AT: entry_format.encode_pointer(ENTRY, 3)}, AT) == ENTRY


@pytest.mark.parametrize(("of_record", "of_pointer"), [(5, 4), (4, 5)])
def test_of_record_and_pointer_the_later_commit_holds_whichever_was_lost(of_record: int, of_pointer: int) -> None:
    record, pointer = entry(of_record, batch_id=of_record), entry(of_pointer, batch_id=of_pointer)
    last = newest(entry_format.encode_record(record), {AT: entry_format.encode_pointer(pointer, 0)}, AT)
    assert isinstance(last, LedgerEntry)
    assert last.batch_id == 5


def test_a_later_commit_of_another_query_with_a_lower_batch_holds_too() -> None:
    old, new = entry(9, batch_id=900), entry(10, batch_id=0, query_id="new")
    assert newest(entry_format.encode_record(new), {AT: entry_format.encode_pointer(old, 0)}, AT) == new


def test_two_that_claim_to_be_the_same_commit_and_differ_are_unreadable() -> None:
    last = newest(
        entry_format.encode_record(entry(5, batch_id=5)), {AT: entry_format.encode_pointer(entry(5, batch_id=6), 0)}, AT
    )
    assert isinstance(last, UnreadableEntry)


def test_an_entry_of_version_1_counts_wherever_it_was_kept() -> None:
    for place in ("a", "b", "z"):
        last = newest(None, {TopicPartition(place, 0): v1(41)}, AT)
        assert isinstance(last, LedgerEntry)
        assert (last.batch_id, last.serial) == (41, 0)


def test_of_a_querys_entries_of_version_1_at_two_topics_the_later_batch_counts() -> None:
    last = newest(None, {TopicPartition("a", 0): v1(41), TopicPartition("b", 0): v1(7)}, AT)
    assert isinstance(last, LedgerEntry)
    assert last.batch_id == 41


def test_entries_of_version_1_of_two_queries_are_unreadable_since_nothing_tells_the_later() -> None:
    last = newest(None, {TopicPartition("a", 0): v1(41), TopicPartition("b", 0): v1(7, "other")}, AT)
    assert isinstance(last, UnreadableEntry)
    assert "unknown which one is the last" in last.description


def test_entries_of_version_1_no_longer_count_once_there_is_one_of_version_2() -> None:
    left = {TopicPartition("a", 0): v1(999), TopicPartition("b", 0): v1(7, "other")}
    assert newest(entry_format.encode_record(ENTRY), left, AT) == ENTRY


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ('{"v":4,"serial":9,"query":"q","batch":41,"digest":"d","buckets":3}', (9, 3)),
        ('{"v":99,"serial":9,"buckets":3}', (9, 3)),
        (f'{{"v":99,"serial":{2**53},"buckets":1000}}', (2**53, 1_000)),
        (f'{{"v":99,"serial":{2**53 + 1},"buckets":1001}}', (0, 0)),
        ('{"v":99,"serial":-1,"buckets":1000000000}', (0, 0)),
        ('{"v":99,"serial":"9","buckets":null}', (0, 0)),
        (f'{{"v":99,"serial":{10**30}}}', (0, 0)),
        ("[" * 100_000, (0, 0)),
        ("[]", (0, 0)),
        ("junk", (0, 0)),
    ],
)
def test_of_what_cannot_be_used_the_serial_and_the_buckets_are_known_as_far_as_it_says_them(record, said) -> None:
    found = newest(record.encode(), {}, AT, Signer("id", ["a-key-of-16-chars"]))
    assert isinstance(found, UnreadableEntry)
    assert (found.serial, found.buckets) == said


# -- several places

OTHER, THIRD, OUT = (TopicPartition(topic, 0) for topic in ("other-ledger", "third-ledger", "out"))
RESET = OffsetAndMetadata(offset=0)  # what kafka-consumer-groups --reset-offsets leaves


def pointer(one: LedgerEntry | MovedLedger) -> OffsetAndMetadata:
    return entry_format.encode_pointer(one, 0)


def to(place: TopicPartition, serial: int) -> MovedLedger:
    return MovedLedger(serial=serial, topic=place.topic)


@pytest.mark.parametrize("elsewhere", [3, 8])
def test_of_two_places_the_one_with_the_higher_serial_counts(elsewhere: int) -> None:
    here, there = entry(5, batch_id=9), entry(elsewhere, batch_id=1)
    found = newest(entry_format.encode_record(here), {OTHER: pointer(there)}, AT)
    assert found == (here if elsewhere < 5 else to(OTHER, 8))


def test_where_the_ledger_has_left_it_leads_on_and_where_it_came_back_it_counts() -> None:
    left, back = to(OTHER, 5), entry(9)
    assert newest(entry_format.encode_record(left), {}, AT) == left
    assert newest(None, {AT: pointer(left)}, AT) == left
    assert newest(entry_format.encode_record(back), {OTHER: pointer(to(AT, 9))}, AT) == back
    assert newest(entry_format.encode_record(back), {AT: pointer(left), OTHER: pointer(to(AT, 9))}, AT) == back
    assert newest(entry_format.encode_record(left), {OTHER: pointer(entry(7))}, AT) == to(OTHER, 7)


def test_a_ledger_that_is_said_to_be_here_and_whose_entry_is_older_leads_on_and_not_to_that_entry() -> None:
    assert newest(entry_format.encode_record(entry(4)), {OTHER: pointer(to(AT, 9))}, AT) == to(AT, 9)


def test_pointers_that_were_reset_give_way_to_the_record_however_many_they_are() -> None:
    record = entry_format.encode_record(ENTRY)
    assert newest(record, {AT: RESET, OTHER: RESET, OUT: RESET}, AT) == ENTRY
    assert newest(record, {AT: RESET, OTHER: pointer(to(AT, 42)), OUT: RESET}, AT) == ENTRY
    left = entry_format.encode_record(to(OTHER, 5))
    assert newest(left, {AT: RESET, OTHER: RESET}, AT) == to(OTHER, 5)


@pytest.mark.parametrize("committed", [{AT: RESET}, {OTHER: RESET}, {AT: RESET, OTHER: RESET, OUT: RESET}])
def test_a_pointer_that_was_reset_is_not_taken_for_no_entry(committed: dict[TopicPartition, OffsetAndMetadata]) -> None:
    last = newest(None, committed, AT)
    assert isinstance(last, UnreadableEntry)
    assert "offset 0, metadata ''" in last.description


@pytest.mark.parametrize("broken", [AT, OTHER, THIRD])
def test_an_entry_elsewhere_may_be_older_than_what_a_reset_pointer_led_to(broken: TopicPartition) -> None:
    valid = OTHER if broken is THIRD else THIRD
    committed = {broken: RESET, valid: pointer(entry(9))}
    last = newest(None, committed, AT)
    assert isinstance(last, UnreadableEntry)
    assert last.serial == 9


@pytest.mark.parametrize("place", [AT, OTHER, OUT])
def test_an_entry_of_a_later_version_is_refused_wherever_it_is(place: TopicPartition) -> None:
    newer = OffsetAndMetadata(offset=1, metadata='{"v":5,"serial":1}')
    last = newest(entry_format.encode_record(ENTRY), {OUT: RESET, AT: RESET, place: newer}, AT)
    assert isinstance(last, UnreadableEntry)
    assert "version 5" in last.description
    assert not copies.is_lost(newer)
    assert copies.is_lost(RESET)


def test_a_broken_record_is_refused_whatever_the_pointers_say_and_the_next_serial_is_above_theirs() -> None:
    last = newest(b"junk", {AT: pointer(ENTRY), OUT: pointer(to(AT, 99))}, AT)
    assert isinstance(last, UnreadableEntry)
    assert last.serial == 99


def test_an_unsigned_pointer_gives_way_to_a_signed_record_and_an_unsigned_record_is_refused() -> None:
    signer = Signer("orders", ["key"])
    forged = pointer(entry(99))
    assert newest(entry_format.encode_record(ENTRY, signer), {AT: forged}, AT, signer) == ENTRY
    assert isinstance(newest(entry_format.encode_record(ENTRY), {}, AT, signer), UnreadableEntry)


def test_every_other_place_that_does_not_lead_here_misleads() -> None:
    committed = {
        AT: pointer(ENTRY),
        OUT: v1(41),
        OTHER: pointer(entry(41)),
        THIRD: pointer(to(OTHER, 3)),
        TopicPartition("fourth", 0): pointer(to(AT, 42)),
        TopicPartition("fifth", 0): replace(v1(41), offset=0),
    }
    # Only where an entry of form 2 or 3 is, there are records; an output topic is nothing to write to.
    assert misleading(committed, AT) == {OUT: False, OTHER: True, THIRD: False, TopicPartition("fifth", 0): False}
    assert misleading({AT: pointer(ENTRY)}, AT) == misleading({}, AT) == {}


def test_pointers_that_were_reset_together_mislead() -> None:
    assert misleading({AT: RESET, OTHER: RESET, OUT: RESET}, AT) == {OTHER: False, OUT: False}
    assert of_others({AT: RESET, OTHER: RESET}, AT) == {}


@pytest.mark.parametrize("metadata", ["", source_mark("another"), "a consumer's own", "{}"])
def test_what_somebody_else_commits_to_the_group_is_no_place_of_the_ledger(metadata: str) -> None:
    others = {TopicPartition("in", number): OffsetAndMetadata(offset=500, metadata=metadata) for number in (0, 1)}
    for here in ({AT: pointer(ENTRY)}, {}):
        assert of_others({**here, **others}, AT) == others
        assert misleading({**here, **others}, AT) == {}


def test_what_a_ledger_has_written_is_a_place_of_it_though_it_cannot_be_read() -> None:
    newer = OffsetAndMetadata(offset=1, metadata='{"v":5,"serial":1}')
    committed = {AT: pointer(ENTRY), OTHER: newer, THIRD: pointer(entry(3)), OUT: replace(v1(41), offset=0)}
    assert of_others(committed, AT) == of_others(committed, AT, Signer("orders", ["key"])) == {}


def test_a_digest_does_not_depend_on_the_order_of_keys() -> None:
    assert ledger.digest({"a": {"0": 1, "1": 2}, "b": 3}) == ledger.digest({"b": 3, "a": {"1": 2, "0": 1}})


def test_a_digest_tells_ranges_apart() -> None:
    ranges: list[object] = [None, {}, [], {"t": {"0": 1}}, {"t": {"0": 2}}, {"t": {"1": 1}}, [{"t": {"0": 1}}, None]]
    assert len({ledger.digest(one) for one in ranges}) == len(ranges)


def test_a_digest_stays_what_it_was() -> None:
    assert ledger.digest([{"orders": {"0": 5}}, {"orders": {"0": 9}}]) == "9bcc711c5dcb812c"


def test_source_offsets_tell_whose_transactions_commit_them() -> None:
    assert marked_by(OffsetAndMetadata(offset=1, metadata=source_mark("orders"))) == "orders"
    assert marked_by(OffsetAndMetadata(offset=1, metadata="")) is None
    assert marked_by(V1) is None


def test_other_sinks_that_commit_to_a_group_are_named_and_ourselves_are_not() -> None:
    marks = ["orders", "billing", "audit", "x" * 3_000]
    committed = {
        TopicPartition("t", n): OffsetAndMetadata(offset=n, metadata=source_mark(mark)) for n, mark in enumerate(marks)
    }
    nobody = {TopicPartition("t", 90): OffsetAndMetadata(offset=1), TopicPartition("t", 91): None}
    assert other_ids(committed | nobody, "orders")[:2] == ["audit", "billing"]
    assert other_ids({TopicPartition("t", 3): committed[TopicPartition("t", 3)]}, "x" * 3_000) == []


def test_the_mark_of_a_very_long_transactional_id_fits() -> None:
    assert len(source_mark("ä" * 10_000).encode()) <= MAX_METADATA_BYTES


def test_the_number_of_dead_letters_is_in_the_record_if_there_are_any() -> None:
    entry = replace(ENTRY, written=replace(WRITTEN, dead_letters=6))
    assert json.loads(entry_format.encode_record(entry))["written"]["dead"] == 6
    assert entry_format.decode_record(entry_format.encode_record(entry)) == entry
    other = entry_format.encode_record(entry).replace(b'"dead":6', b'"dead":"six"')
    assert entry_format.decode_record(other) == replace(ENTRY, written=WRITTEN)


def test_of_several_that_are_no_entries_the_records_reason_is_named_and_a_newer_releases_before_any() -> None:
    junk, other = b"junk", OffsetAndMetadata(offset=3, metadata='{"v":3,"serial":1}')
    found = newest(junk, {AT: other}, AT)
    assert isinstance(found, UnreadableEntry)
    assert "(another program has written it)" in found.description
    assert found.serial == 1, "the next one is above all that any says"
    places = [TopicPartition(name, 0) for name in ("a", "b")]
    newer = {place: OffsetAndMetadata(offset=0, metadata=f'{{"v":{9 + n}}}') for n, place in enumerate(places)}
    found = newest(junk, newer, AT)
    assert isinstance(found, UnreadableEntry)
    assert "(it has format version 9," in found.description


def test_what_is_no_entry_counts_as_the_last_commit_that_is_known_beside_it() -> None:
    found = newest(
        b"junk",
        {
            AT: entry_format.encode_pointer(entry(5), 0),
            TopicPartition("a", 0): entry_format.encode_pointer(entry(8), 0),
        },
        AT,
    )
    assert isinstance(found, UnreadableEntry)
    assert found.serial == 8


def test_of_two_places_with_the_same_commit_the_ledgers_own_counts() -> None:
    same = entry_format.encode_pointer(entry(5), 0)
    for other in (TopicPartition("a", 0), TopicPartition("z", 0)):
        assert newest(None, {other: same, AT: same}, AT) == entry_format.decode_committed(same)
        assert newest(None, {other: same}, AT) == MovedLedger(serial=5, topic=other.topic)


@pytest.mark.parametrize(
    ("topics", "partitions", "size"), [(1, 10_000, 400_000), (1, 20_000, 900_000), (2_000, 1, 1_000_000)]
)
def test_the_record_is_as_large_as_the_page_on_scaling_says_and_a_broker_takes_it(topics, partitions, size):
    """With all that a batch notes of its source, at offsets of 10 to 12 digits."""
    names = [f"{number:04}".ljust(100 if topics > 1 else 10, "n") for number in range(topics)]
    places = [TopicPartition(name, number) for name in names for number in range(partitions)]
    ends = {place: 10 ** (10 + number % 3) for number, place in enumerate(places)}
    origin = Origin(
        cluster="A" * 22,
        topic_ids=dict.fromkeys(names, uuid.UUID(int=1)),
        leader_epochs={place: number % 50 for number, place in enumerate(places)},
    )
    start = {place: end - 1_000 for place, end in ends.items()}
    source = SourceProgress(cluster="A" * 22, offsets=ends, origin=origin, start=start)
    record = entry_format.encode_record(replace(ENTRY, sources=(source,)))
    assert len(record) == pytest.approx(size, rel=0.1)
    assert len(record) < 1_048_588 - 1_000, "Kafka's default of max.message.bytes, with room for the key"
