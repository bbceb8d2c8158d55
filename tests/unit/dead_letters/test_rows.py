"""Which rows become dead letters, and that each row goes to exactly one place."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2

from spark_kafka_eos.appending.blocks import ROWS, Block, BlockEncoder, EncodeSettings, Target
from spark_kafka_eos.dead_letters.causes import Cause
from spark_kafka_eos.dead_letters.headers import DeadLetter, Header, letter_of, own_headers
from spark_kafka_eos.dead_letters.rows import DeadLetterTopic
from spark_kafka_eos.dead_letters.signature import is_signed, signature
from spark_kafka_eos.errors import InvalidRow, UnknownTopic
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.facts import TopicLimits
from spark_kafka_eos.kafka.wire.decode import decode
from spark_kafka_eos.kafka.wire.record_batch import scan
from spark_kafka_eos.options import Secret
from spark_kafka_eos.options.parsers import output_topics
from spark_kafka_eos.spark.rows import arrow_rows

ASIDE = DeadLetterTopic(topic="dead", query_id="q", batch_id=7, transactional_id="clean")
TARGETS = {
    "a": Target(partitions=2),
    "small": Target(partitions=1, limits=TopicLimits(max_message_bytes=300)),
    "compacted": Target(partitions=1, limits=TopicLimits(needs_keys=True)),
    "recent": Target(partitions=1, limits=TopicLimits(before_ms=1_000, after_ms=2_000)),
    "dead": Target(partitions=3),
}
SETTINGS = EncodeSettings(topic=None, targets=TARGETS, dead_letters=ASIDE)
ERROR = {"cause": "undecodable", "message": "2 bytes are left over", "schema_id": 7}


def rows(**columns):
    columns.setdefault("key", [None] * len(columns["value"]))
    return pa.RecordBatch.from_pydict(columns, schema=pa.schema([(name, ROWS[name]) for name in columns]))


def unknown(topic: str) -> Target:
    raise UnknownTopic(f"topic {topic!r} does not exist")


def encode(encoding: EncodeSettings, *batches: pa.RecordBatch) -> tuple[list[Block], dict[str, int]]:
    encoder = BlockEncoder(encoding, 0, unknown, lambda: 0)
    blocks = [*(block for batch in batches for block in encoder.add(batch)), *encoder.finish()]
    return blocks, encoder.dead_letters


def records(blocks: list[Block]) -> dict[TopicPartition, list[dict]]:
    """Each partition's records, in order; `headers` as pairs."""
    found = defaultdict(list)
    for block in blocks:
        decoded = decode(block.data, list(scan(block.data)), include_headers=True).to_pylist()
        for record in decoded:
            pairs = [(header["key"], header["value"]) for header in record["headers"] or ()]
            found[block.partition].append(record | {"headers": pairs})
    return found


def dead_letters(blocks: list[Block]) -> list[tuple[bytes | None, DeadLetter | None]]:
    """The value of each dead letter and what its headers say, partition by partition."""
    return [
        (record["value"], letter_of(record["headers"]))
        for partition, found in sorted(records(blocks).items())
        if partition.topic == "dead"
        for record in found
    ]


def test_a_row_with_an_error_keeps_key_value_and_headers_and_says_where_and_when_it_is_from():
    own = [{"key": "trace", "value": b"1"}, {"key": "empty", "value": None}]
    source = {"topic": "in", "partition": 3, "offset": 42, "timestamp": 1_700}
    batch = rows(
        key=[b"k", b"k"], value=[b"good", b"bad"], topic=["a", "a"], partition=[1, 1], headers=[None, own],
        timestamp=[5, 6], error=[None, ERROR], source=[source, source],
    )  # fmt: skip
    blocks, counts = encode(SETTINGS, batch)
    found = records(blocks)
    [good] = found.pop(TopicPartition("a", 1))
    [[dead]] = found.values()
    assert (good["value"], good["headers"]) == (b"good", [])
    assert (dead["key"], dead["value"], dead["timestamp"]) == (b"k", b"bad", 0)  # the clock's
    assert own_headers(dead["headers"]) == [("trace", b"1"), ("empty", None)]
    assert letter_of(dead["headers"]) == DeadLetter(
        cause="undecodable",
        message="2 bytes are left over",
        schema_id=7,
        topic="in",
        partition=3,
        offset=42,
        timestamp=1_700,
        query_id="q",
        batch_id=7,
        transactional_id="clean",
        output_timestamp=6,
    )
    assert counts == {"undecodable": 1}


def test_a_dead_letters_partition_follows_from_its_key_and_not_from_the_rows_partition():
    encoding = EncodeSettings(topic="a", targets=TARGETS, dead_letters=ASIDE)
    keys = [b"%d" % number for number in range(20)]
    blocks, _ = encode(encoding, rows(key=keys, value=keys, partition=[1] * 20, error=[ERROR] * 20))
    found = {record["key"]: partition for partition, each in records(blocks).items() for record in each}
    assert found == {key: TopicPartition("dead", (murmur2(key) & 0x7FFFFFFF) % 3) for key in keys}


def unchecked(text: bytes, *, kind: pa.DataType | None = None) -> pa.Array:
    """A string of these bytes, as Spark's cast from binary makes it."""
    kind = kind or pa.string()
    offsets = np.array([0, len(text)], np.int64 if pa.types.is_large_string(kind) else np.int32)
    return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(offsets), pa.py_buffer(text)])


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
@pytest.mark.parametrize("key", [None, Secret("secret")])
@pytest.mark.parametrize("where", ["cause", "message", "source", "topic", "header"])
def test_a_string_of_other_bytes_than_utf_8_stops_no_batch_and_its_record_keeps_its_bytes(where, key, kind):
    corrupt = b"not JSON: \xff"

    def text(place: str, otherwise: bytes) -> pa.Array:
        return unchecked(corrupt if place == where else otherwise, kind=kind)

    error = [text("cause", b"x"), text("message", b"m"), pa.array([7], pa.int32())]
    source = [text("source", b"in"), pa.array([0], pa.int32()), pa.array([5]), pa.array([0], pa.timestamp("us", "UTC"))]
    header = pa.StructArray.from_arrays([text("header", b"h"), pa.array([corrupt])], names=["key", "value"])
    columns = {
        "key": unchecked(corrupt),
        "value": pa.array([corrupt]),
        "topic": text("topic", b"a"),
        "headers": pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), header),
        "source": pa.StructArray.from_arrays(source, names=["topic", "partition", "offset", "timestamp"]),
    }
    if where != "topic":
        columns["error"] = pa.StructArray.from_arrays(error, names=["cause", "message", "schema_id"])
    given = replace(SETTINGS, dead_letters=replace(ASIDE, ledger_key=key))
    blocks, counts = encode(given, *arrow_rows(iter([pa.RecordBatch.from_pydict(columns)]), dead_letters=True))
    [[record]] = records(blocks).values()
    [(value, letter)] = dead_letters(blocks)
    shown = "not JSON: \ufffd"
    assert (record["key"], value) == (corrupt, corrupt)
    assert own_headers(record["headers"]) == [(shown if where == "header" else "h", corrupt)]
    cause = "unknown-topic" if where == "topic" else shown if where == "cause" else "x"
    assert (counts, letter and letter.cause) == ({cause: 1}, cause)
    assert letter is not None
    assert letter.topic == (shown if where == "source" else "in")
    if where == "topic":
        assert letter.output_topic == shown
    else:
        assert letter.message == (shown if where == "message" else "m")
    if key is not None:
        assert is_signed([key.reveal()], record["key"], record["value"], record["headers"])


REFUSED = [
    ({"topic": [None]}, SETTINGS, Cause.NO_TOPIC, None),
    ({}, SETTINGS, Cause.NO_TOPIC, None),
    ({"topic": ["nowhere"]}, SETTINGS, Cause.UNKNOWN_TOPIC, "nowhere"),
    ({"topic": ["dead"]}, SETTINGS, Cause.TOPIC_NOT_ALLOWED, "dead"),
    (
        {"topic": ["b"]},
        EncodeSettings(topic=None, targets=TARGETS, output_topics=output_topics("a"), dead_letters=ASIDE),
        Cause.TOPIC_NOT_ALLOWED,
        "b",
    ),
    (
        {"topic": ["a"], "partition": [1]},
        EncodeSettings(topic=None, targets=TARGETS, output_topics=output_topics("a:0,b"), dead_letters=ASIDE),
        Cause.PARTITION_NOT_ALLOWED,
        "a",
    ),
    ({"topic": ["a"], "partition": [2]}, SETTINGS, Cause.UNKNOWN_PARTITION, "a"),
    ({"topic": ["a"], "partition": [-1]}, SETTINGS, Cause.UNKNOWN_PARTITION, "a"),
    ({"topic": ["a"], "headers": [[{"key": None, "value": b"x"}]]}, SETTINGS, Cause.INVALID_HEADERS, "a"),
    ({"topic": ["a"], "headers": [[None]]}, SETTINGS, Cause.INVALID_HEADERS, "a"),
    ({"topic": ["a"], "timestamp": [-1]}, SETTINGS, Cause.INVALID_TIMESTAMP, "a"),
]
# What only the broker refuses where there is no dead-letter topic. It is 0 o'clock.
REFUSED_BY_THE_TOPIC = [
    ({"topic": ["compacted"]}, SETTINGS, Cause.NO_KEY, "compacted"),
    ({"topic": ["recent"], "timestamp": [2_001]}, SETTINGS, Cause.INVALID_TIMESTAMP, "recent"),
]


@pytest.mark.parametrize(("columns", "encoding", "cause", "output_topic"), [*REFUSED, *REFUSED_BY_THE_TOPIC])
def test_a_row_that_cannot_be_written_is_a_dead_letter_that_says_where_it_should_have_gone(
    columns, encoding, cause, output_topic
):
    blocks, counts = encode(encoding, rows(value=[b"v"], **columns))
    [(value, letter)] = dead_letters(blocks)
    assert value == b"v"
    assert letter is not None
    assert (letter.cause, letter.output_topic, counts) == (cause, output_topic, {cause: 1})
    assert letter.message


def test_a_dead_letter_lacks_the_headers_that_cannot_be_written_and_has_the_others():
    headers = [{"key": "trace", "value": b"1"}, {"key": None, "value": b"x"}, None, {"key": "empty", "value": None}]
    blocks, counts = encode(SETTINGS, rows(value=[b"v"], topic=["a"], headers=[headers]))
    [[dead]] = records(blocks).values()
    assert (own_headers(dead["headers"]), counts) == ([("trace", b"1"), ("empty", None)], {"invalid-headers": 1})


@pytest.mark.parametrize(
    ("error", "counts"), [(None, {"invalid-timestamp": 1}), (ERROR | {"cause": "mine"}, {"mine": 3})], ids=str
)
def test_a_dead_letter_has_the_time_of_writing_and_says_which_one_its_row_had(error, counts):
    """Retention counts from it: with the row's own, a topic deleted dead letters that nobody had seen yet."""
    early = -62_135_596_800_000
    written = rows(
        key=[b"k"] * 3, value=[b"1", b"2", b"3"], topic=["a"] * 3, timestamp=[early, 7, None], error=[error] * 3
    )
    blocks, dead = encode(SETTINGS, written)
    assert dead == counts
    found = {record["value"]: record for part in records(blocks).values() for record in part}
    letters = {value: letter_of(record["headers"]) for value, record in found.items()}
    times = {value: letter and letter.output_timestamp for value, letter in letters.items()}
    assert times == {b"1": early, b"2": 7 if error else None, b"3": None}
    assert [found[value]["timestamp"] for value, letter in letters.items() if letter] == [0] * sum(counts.values())


@pytest.mark.parametrize(("columns", "encoding", "cause", "output_topic"), REFUSED)
def test_without_a_dead_letter_topic_it_is_an_error(columns, encoding, cause, output_topic):
    without = EncodeSettings(topic=None, targets=TARGETS, output_topics=encoding.output_topics)
    if output_topic == "dead":
        assert encode(without, rows(value=[b"v"], **columns))[1] == {}
        return
    with pytest.raises(UnknownTopic if cause is Cause.UNKNOWN_TOPIC else InvalidRow):
        encode(without, rows(value=[b"v"], **columns))


@pytest.mark.parametrize(("columns", "encoding", "cause", "output_topic"), REFUSED_BY_THE_TOPIC)
def test_without_a_dead_letter_topic_it_is_for_the_broker_to_say(columns, encoding, cause, output_topic):
    blocks, _ = encode(EncodeSettings(topic=None, targets=TARGETS), rows(value=[b"v"], **columns))
    assert [block.partition.topic for block in blocks] == [output_topic]


def at(now: int, topic: str, times: list[int | None], targets=TARGETS) -> tuple[dict[bytes, int], dict[bytes, int]]:
    """The timestamps of what is written at `now`, by value: in the topic, and among the dead letters."""
    values = [b"%d" % number for number in range(len(times))]
    settings = EncodeSettings(topic=topic, targets=targets, dead_letters=ASIDE)
    encoder = BlockEncoder(settings, 0, unknown, lambda: now)
    blocks = [*encoder.add(rows(key=values, value=values, timestamp=times)), *encoder.finish()]
    found: dict[bool, dict[bytes, int]] = {True: {}, False: {}}
    for partition, part in records(blocks).items():
        found[partition.topic == "dead"] |= {record["value"]: record["timestamp"] for record in part}
    return found[False], found[True]


def test_timestamps_are_taken_up_to_the_topics_limits():
    written, dead = at(10_000, "recent", [8_999, 9_000, 12_000, 12_001, None])
    assert written == {b"1": 9_000, b"2": 12_000, b"4": 10_000}
    assert dead == {b"0": 10_000, b"3": 10_000}, "the time of writing"
    assert at(500, "recent", [0])[0] == {b"0": 0}


@pytest.mark.parametrize("limit", [(1 << 63) - 2, 0])
def test_a_limit_may_be_as_large_or_small_as_any(limit):
    targets = {"a": Target(partitions=1, limits=TopicLimits(before_ms=limit, after_ms=limit)), "dead": TARGETS["dead"]}
    assert at(10_000, "a", [10_000], targets)[0] == {b"0": 10_000}


def test_a_row_with_an_error_is_not_dropped_where_there_is_no_dead_letter_topic():
    encoding = EncodeSettings(topic="a", targets=TARGETS)
    assert sum(block.records for block in encode(encoding, rows(value=[b"v"], error=[None]))[0]) == 1
    with pytest.raises(InvalidRow, match="deadLetterTopic"):
        encode(encoding, rows(value=[b"v"], error=[ERROR]))


def test_an_option_that_names_no_topic_is_an_error_and_no_reason_to_put_all_rows_aside():
    for encoding in (
        EncodeSettings(topic="nowhere", targets={}, dead_letters=ASIDE),
        EncodeSettings(topic=None, targets={}, output_topics=output_topics("nowhere"), dead_letters=ASIDE),
    ):
        with pytest.raises(UnknownTopic):
            encode(encoding, rows(value=[b"v"], topic=["nowhere"]))


def test_a_row_too_large_for_its_topic_is_a_dead_letter_before_and_after_compression():
    for compression in ("none", "gzip"):
        encoding = EncodeSettings(topic="small", targets=TARGETS, compression_type=compression, dead_letters=ASIDE)
        large = bytes(range(256)) * 3
        blocks, counts = encode(encoding, rows(value=[b"1", large, b"2"]), rows(value=[b"3", large + b"."]))
        assert [record["value"] for record in records(blocks)[TopicPartition("small", 0)]] == [b"1", b"2", b"3"]
        assert {value for value, _ in dead_letters(blocks)} == {large, large + b"."}
        assert counts == {"too-large": 2}


def test_a_dead_letter_may_be_as_large_as_its_topic_takes():
    targets = {"a": Target(partitions=1), "dead": Target(partitions=1, limits=TopicLimits(max_message_bytes=10_000))}
    encoding = EncodeSettings(topic="a", targets=targets, max_request_size=1_000, dead_letters=ASIDE)
    blocks, counts = encode(encoding, rows(value=[b"x" * 5_000, b"ok"]))
    [(value, letter)] = dead_letters(blocks)
    assert (len(value or b""), counts) == (5_000, {"too-large": 1})
    assert letter is not None
    assert "1,000 (kafka.max.request.size)" in (letter.message or "")


@pytest.mark.parametrize(
    ("own", "limit"), [(2_000, "2,000 .the topic's max.message.bytes"), (None, "1,000 .kafka.max.request.size")]
)
def test_a_dead_letter_that_is_too_large_itself_is_an_error(own, limit):
    targets = {"a": Target(partitions=1), "dead": Target(partitions=1, limits=TopicLimits(max_message_bytes=own))}
    encoding = EncodeSettings(topic="a", targets=targets, max_request_size=1_000, dead_letters=ASIDE)
    with pytest.raises(InvalidRow, match=rf"a dead letter for dead-0 .*; the limit is {limit}") as raised:
        encode(encoding, rows(value=[b"x" * 5_000]))
    assert raised.value.committed == "nothing"


row = st.fixed_dictionaries(
    {
        "key": st.none() | st.sampled_from([b"x", b"y"]),
        "size": st.sampled_from([10, 10, 10, 150, 2_000]),
        "topic": st.sampled_from(["a", "a", "small", "nowhere", "dead", None]),
        "partition": st.sampled_from([None, None, 0, 1, 2]),
        "headers": st.sampled_from([None, [], [{"key": "h", "value": b"1"}], [{"key": None, "value": b"1"}]]),
        "error": st.sampled_from([None, None, ERROR]),
    }
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(row, min_size=1, max_size=30), min_size=1, max_size=4), st.sampled_from([None, "a"]))
def test_every_row_goes_to_exactly_one_place_and_rows_of_a_partition_keep_their_order(batches, topic):
    numbered = 0
    encoder_rows = []
    expected: Counter[bytes | None] = Counter()
    for batch in batches:
        values = []
        for each in batch:
            values.append(b"%06d" % numbered + b"x" * each["size"])
            expected[values[-1]] += 1
            numbered += 1
        names = ("key", "topic", "partition", "headers", "error")
        columns = {name: [each[name] for each in batch] for name in names}
        encoder_rows.append(rows(value=values, **columns))
    targets = TARGETS | {"dead": Target(partitions=3, limits=TopicLimits(max_message_bytes=100_000))}
    encoding = EncodeSettings(
        topic=topic, targets=targets, dead_letters=ASIDE, max_request_size=1_000, max_buffered_bytes=5_000
    )
    blocks, counts = encode(encoding, *encoder_rows)
    found = records(blocks)
    assert Counter(record["value"] for each in found.values() for record in each) == expected
    for partition, each in found.items():
        sequence = [record["value"][:6] for record in each]
        if partition.topic != "dead":
            assert sequence == sorted(sequence)
        assert all((letter_of(record["headers"]) is not None) == (partition.topic == "dead") for record in each)
    by_cause = Counter(letter.cause for _, letter in dead_letters(blocks) if letter is not None)
    assert by_cause == counts


def test_with_a_key_each_dead_letter_is_signed_and_no_part_can_be_changed():
    key = Secret("a key of 16 letters")
    own = [{"key": "trace", "value": b"1"}, {"key": "none", "value": None}]
    signed = replace(SETTINGS, dead_letters=replace(ASIDE, ledger_key=key))
    given = rows(value=[b"1", None], topic=["none", "none"], headers=[own, None])
    found = [each for part in records(encode(signed, given)[0]).values() for each in part]
    assert len(found) == 2
    for each in found:
        parts = {name: each[name] for name in ("key", "value", "headers")}
        assert is_signed([key.reveal()], **parts)
        assert not is_signed(["another key of 16"], **parts)
        assert letter_of(each["headers"]) is not None
        for changed in (
            {"key": b"k"},
            {"value": b"2"},
            {"headers": each["headers"][1:]},
            {"headers": [("a", b""), *each["headers"]]},
            {"headers": [(name, b"x" if name.endswith("cause") else value) for name, value in each["headers"]]},
            {"headers": [*each["headers"], ("more", b"")]},
            {"headers": each["headers"][:-1]},
        ):
            assert not is_signed([key.reveal()], **(parts | changed)), changed
    assert "16 letters" not in repr(signed)


def test_parts_of_a_record_cannot_be_shifted_into_each_other():
    shapes: list[tuple[bytes | None, bytes | None, list[Header]]] = [
        (b"ab", b"", []), (b"a", b"b", []), (None, b"ab", []), (b"", b"ab", []), (b"a", None, [("b", None)]),
        (b"a", None, [("b", b"")]), (b"a", None, [("", b"b")]), (b"1:a", None, []),
    ]  # fmt: skip
    assert len({signature("key", *each) for each in shapes}) == len(shapes)
