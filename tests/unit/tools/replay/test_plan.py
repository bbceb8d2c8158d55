"""How dead letters are sent back: where each one goes, with which headers, and in which batches."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_kafka_eos.dead_letters.headers import DeadLetter
from spark_kafka_eos.dead_letters.signature import MAC, fingerprint, signature
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.tools.replay.plan import (
    MOST,
    REPLAYS,
    Stream,
    batches,
    destination,
    is_number_signed,
    misses_key,
    partition_of,
    replayed_headers,
    replays_of,
    stream_of,
    timestamp_of,
)
from tests.letters import headers_of

READ = DeadLetter(cause="undecodable", topic="orders", partition=3, offset=7)
WRITTEN = DeadLetter(cause="too-large", topic="orders", partition=3, offset=7, output_topic="clean")
UNKNOWN = DeadLetter(cause="other")
PLAIN: tuple[tuple[str, ...], None, None] = ((), None, None)
KEY, OLDER = "a key of 16 letters", "another key of 16 letters"
FORBIDDEN = DeadLetter(cause="topic-not-allowed", topic="orders", partition=3, offset=7, output_topic="secret")


@pytest.mark.parametrize(
    ("letter", "to", "topic", "partition"),
    [
        (READ, None, "orders", 3),
        (READ, "repaired", "repaired", None),
        (WRITTEN, None, "clean", None),
        (UNKNOWN, None, None, None),
        (UNKNOWN, "repaired", "repaired", None),
        (FORBIDDEN, None, None, None),
        (FORBIDDEN, "repaired", "repaired", None),
    ],
)
def test_it_goes_where_it_came_from_or_could_not_go_unless_a_topic_is_named(letter, to, topic, partition):
    assert (destination(letter, to), partition_of(letter, to, 4)) == (topic, partition)


def test_the_key_decides_if_the_topic_no_longer_has_the_partition():
    assert partition_of(READ, None, 3) is None


@pytest.mark.parametrize(
    ("letter", "timestamp"),
    [
        (replace(READ, timestamp=5), 5),
        (replace(READ, timestamp=5, output_timestamp=6), 5),
        (replace(READ, output_timestamp=6), 6),
        (replace(WRITTEN, timestamp=5), None),
        (replace(WRITTEN, timestamp=5, output_timestamp=6), 6),
        (replace(FORBIDDEN, output_topic=None, timestamp=5), None),
    ],
)
def test_its_time_is_that_of_what_was_read_or_of_the_row_that_could_not_be_written(letter, timestamp):
    assert timestamp_of(letter) == timestamp


def test_each_replay_is_counted_and_the_records_own_headers_stay():
    own = [("trace", b"1"), ("trace", None)]
    once = replayed_headers([*own, *headers_of(READ)], *PLAIN)
    assert once == [*own, (REPLAYS, b"1")]
    assert replays_of([*once, *headers_of(READ)]) == 1
    assert replayed_headers([*once, *headers_of(READ)], *PLAIN) == [*own, (REPLAYS, b"2")]


def test_numbers_that_anybody_may_write_are_not_told_apart_beyond_the_most():
    numbers = (MOST - 1, MOST, MOST + 1, 999_999_999)
    found = [replays_of([(REPLAYS, str(number).encode())]) for number in numbers]
    assert found == [MOST - 1, MOST, MOST, MOST]


@pytest.mark.parametrize("value", [None, b"", b"-1", b"x", b"9" * 10])
def test_a_count_that_is_no_number_is_none(value):
    assert replays_of([(REPLAYS, value)]) == 0


def test_with_a_key_only_a_number_that_is_signed_for_this_record_counts():
    own = [("trace", b"1"), (REPLAYS, b"9")]
    assert not is_number_signed(own, [KEY], b"k", b"v")
    once = replayed_headers(own, [KEY], b"k", b"v")
    assert once[:2] == [own[0], (REPLAYS, b"1")], "what the input said of it is gone"
    assert is_number_signed(once, [KEY], b"k", b"v")
    assert is_number_signed(once, [OLDER, KEY], b"k", b"v"), "while the key is replaced"
    assert replayed_headers(once, [KEY], b"k", b"v")[1] == (REPLAYS, b"2")
    assert not is_number_signed(once, [OLDER], b"k", b"v")
    assert replayed_headers(once, [OLDER], b"k", b"v")[1] == (REPLAYS, b"1")
    assert not is_number_signed(once, [KEY], b"k", b"w"), "of another record"
    changed = [(REPLAYS, b"5") if name == REPLAYS else (name, value) for name, value in once]
    assert not is_number_signed(changed, [KEY], b"k", b"v")
    assert is_number_signed(own, [], b"k", b"v"), "without a key there is only the number"


def test_the_number_of_a_stream_is_what_the_header_says_whatever_keys_are_given():
    once = replayed_headers([], [KEY], b"k", b"v")
    found = {stream_of("undecodable", once, secrets, b"k", b"v") for secrets in ([], [KEY], [OLDER], [OLDER, KEY])}
    assert found == {Stream("undecodable", 1)}


def test_each_key_has_a_stream_and_what_none_verifies_another():
    own = headers_of(READ)
    signed = [*own, (MAC, signature(OLDER, b"k", b"v", own))]

    def found(headers, secrets, value=b"v"):
        return stream_of("undecodable", headers, secrets, b"k", value)

    plain = Stream("undecodable", 0)
    unknown, known = plain._replace(signed=True), Stream("undecodable", 0, signed=True, key=fingerprint(OLDER))
    assert found(own, [KEY]) == found(own, []) == plain
    assert found(signed, [OLDER]) == found(signed, [KEY, OLDER]) == known
    assert found(signed, [KEY]) == found(signed, []) == found(signed, [OLDER], b"of another record") == unknown
    assert known.unknown == unknown
    assert len({plain.suffix, unknown.suffix, known.suffix}) == 3


def test_what_no_key_verifies_waits_for_the_keys_that_replays_before_had():
    unknown = Stream("undecodable", 0, signed=True)
    known = unknown._replace(key=fingerprint(OLDER))
    ids = [f"t{stream.suffix}" for stream in (unknown, known, Stream("undecodable", 0))]
    assert misses_key(unknown, "t", ids, []) and misses_key(unknown, "t", ids, [KEY])
    assert not misses_key(unknown, "t", ids, [KEY, OLDER])
    assert not misses_key(unknown, "u", ids, []), "of another replay"
    assert misses_key(unknown._replace(replays=1), "t", ids, []), "an earlier version took such a number for 0"
    assert not misses_key(unknown._replace(cause="other"), "t", ids, []), "of another stream"
    assert not misses_key(known, "t", ids, [OLDER])
    assert not misses_key(Stream("undecodable", 0), "t", ids, []), "nobody signed it"


def test_batches_go_forward_in_each_partition():
    places = [(TopicPartition("dead", number), offset) for number in (1, 0) for offset in (2, 1, 0)]
    assert [[(tp.partition, at) for tp, at in batch] for batch in batches(places, 4)] == [
        [(0, 0), (0, 1), (0, 2), (1, 0)], [(1, 1), (1, 2)]
    ]  # fmt: skip
    assert list(batches([], 4)) == []
