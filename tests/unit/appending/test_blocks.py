import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_eos.appending.blocks import ROWS, Block, BlockEncoder, EncodeSettings, Target
from spark_kafka_eos.errors import InvalidRow, UnknownTopic
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.facts import TopicLimits
from spark_kafka_eos.kafka.wire.decode import decode
from spark_kafka_eos.kafka.wire.record_batch import scan
from spark_kafka_eos.options.parsers import output_topics

NOW = 1_700_000_000_000


def rows(**columns: Sequence[object]) -> pa.RecordBatch:
    columns.setdefault("key", [None] * len(columns["value"]))
    return pa.RecordBatch.from_pydict(columns, schema=pa.schema([(name, ROWS[name]) for name in columns]))


def unknown(topic: str) -> Target:
    raise UnknownTopic(f"topic {topic!r} does not exist")


def encode(encoding: EncodeSettings, *batches: pa.RecordBatch, lookup=unknown) -> list[Block]:
    encoder = BlockEncoder(encoding, 3, lookup, lambda: NOW)
    return [*(block for batch in batches for block in encoder.add(batch)), *encoder.finish()]


def values(blocks: list[Block], partition: TopicPartition) -> list[bytes]:
    chosen = [block for block in blocks if block.partition == partition]
    assert [block.number for block in chosen] == list(range(len(chosen)))
    out: list[bytes] = []
    for block in chosen:
        decoded = decode(block.data, list(scan(block.data)))
        assert decoded.num_rows == block.records
        out += decoded.column("value").to_pylist()
    return out


ONE = EncodeSettings(topic="t", targets={"t": Target(partitions=1)})


def test_all_rows_of_a_topic_with_one_partition_are_one_block_in_order():
    blocks = encode(ONE, rows(value=[b"a", b"b"]), rows(value=[b"c"]))
    assert [(block.partition, block.task, block.records) for block in blocks] == [(TopicPartition("t", 0), 3, 3)]
    assert values(blocks, TopicPartition("t", 0)) == [b"a", b"b", b"c"]


def test_no_rows_make_no_block():
    assert encode(ONE, rows(value=[])) == []


def test_rows_with_one_key_stay_in_order_in_one_partition():
    encoding = EncodeSettings(topic="t", targets={"t": Target(partitions=3)})
    batches = [rows(key=[b"x", b"y"] * 50, value=[b"%d" % i for i in range(n, n + 100)]) for n in (0, 100)]
    blocks = encode(encoding, *batches)
    everything = {p: values(blocks, TopicPartition("t", p)) for p in range(3)}
    assert sorted(int(v) for vs in everything.values() for v in vs) == list(range(200))
    for parity in (0, 1):
        owners = [[int(v) for v in vs if int(v) % 2 == parity] for vs in everything.values()]
        assert [v for v in owners if v] == [list(range(parity, 200, 2))]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.binary(max_size=300), min_size=1, max_size=200),
    st.integers(500, 3_000),
    st.integers(1, 5),
    st.integers(1_000, 20_000),
)
def test_no_block_is_above_the_bound_and_no_row_is_lost_or_moved(payload, limit, partitions, buffered):
    encoding = EncodeSettings(
        topic="t", targets={"t": Target(partitions=partitions)}, max_request_size=limit, max_buffered_bytes=buffered
    )
    numbers = [i % partitions for i in range(len(payload))]
    half = len(payload) // 2
    blocks = encode(
        encoding,
        rows(value=payload[:half], partition=numbers[:half]),
        rows(value=payload[half:], partition=numbers[half:]),
    )
    assert all(len(block.data) <= limit for block in blocks)
    for partition in range(partitions):
        expected = [value for value, number in zip(payload, numbers, strict=True) if number == partition]
        assert values(blocks, TopicPartition("t", partition)) == expected


def test_a_record_above_the_limit_is_an_error_that_names_partition_limit_and_option():
    with pytest.raises(InvalidRow, match=r"t-0 .*1,000 \(kafka.max.request.size\)") as raised:
        encode(
            EncodeSettings(topic="t", targets={"t": Target(partitions=1)}, max_request_size=1_000),
            rows(value=[b"ok", b"x" * 1_000]),
        )
    assert raised.value.committed == "nothing"


SMALL = EncodeSettings(
    topic="t",
    targets={"t": Target(partitions=1, limits=TopicLimits(max_message_bytes=1_000))},
    max_request_size=100_000,
)


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_a_topics_own_limit_cuts_the_blocks_where_it_is_the_smaller_one(compression):
    payload = [random.Random(n).randbytes(n * 30) for n in range(30)]
    blocks = encode(replace(SMALL, compression_type=compression), rows(value=payload))
    assert all(len(block.data) <= 1_000 for block in blocks)
    assert values(blocks, TopicPartition("t", 0)) == payload


def test_a_block_that_compression_makes_larger_than_the_topic_takes_is_cut_in_two():
    payload = [random.Random(n).randbytes(300_000) for n in range(2)]
    tight = Target(
        partitions=1, limits=TopicLimits(max_message_bytes=600_125)
    )  # as much as these records may take uncompressed
    records = {}
    for compression in ("none", "gzip"):
        encoding = EncodeSettings(topic="t", targets={"t": tight}, compression_type=compression)
        blocks = encode(encoding, rows(value=payload))
        records[compression] = [block.records for block in blocks]
        assert all(len(block.data) <= 600_125 for block in blocks)
        assert values(blocks, TopicPartition("t", 0)) == payload
    assert records == {"none": [2], "gzip": [1, 1]}


def test_a_record_above_the_topics_own_limit_is_an_error_that_names_partition_and_limit():
    with pytest.raises(InvalidRow, match=r"t-0 .*1,000 \(the topic's max.message.bytes\)") as raised:
        encode(SMALL, rows(value=[b"ok", b"x" * 1_000]))
    assert raised.value.committed == "nothing"


def test_what_a_record_takes_in_the_topic_is_its_compressed_size():
    (block,) = encode(replace(SMALL, compression_type="zstd"), rows(value=[b"x" * 5_000]))
    assert len(block.data) <= 1_000


def test_headers_count_in_the_bound():
    headers = [[{"key": "k", "value": b"v" * 900}]]
    with pytest.raises(InvalidRow, match="kafka.max.request.size"):
        encode(
            EncodeSettings(topic="t", targets={"t": Target(partitions=1)}, max_request_size=900),
            rows(value=[b"x"], headers=headers),
        )
    blocks = encode(ONE, rows(value=[b"x"], headers=headers))
    decoded = decode(blocks[0].data, list(scan(blocks[0].data)), include_headers=True)
    assert decoded.column("headers").to_pylist() == headers


def test_rows_go_to_the_topic_they_name():
    encoding = EncodeSettings(topic=None, targets={"a": Target(partitions=1)})
    blocks = encode(
        encoding, rows(value=[b"1", b"2", b"3"], topic=["a", "b", "a"]), lookup={"b": Target(partitions=1)}.__getitem__
    )
    assert values(blocks, TopicPartition("a", 0)) == [b"1", b"3"]
    assert values(blocks, TopicPartition("b", 0)) == [b"2"]


def test_the_option_topic_wins_over_the_column():
    (block,) = encode(ONE, rows(value=[b"1", b"2"], topic=["where-they-came-from", None]))
    assert block.partition == TopicPartition("t", 0)
    assert block.records == 2


def test_a_row_for_an_unregistered_topic_breaks_the_contract():
    encoding = EncodeSettings(topic=None, targets={"a": Target(partitions=1)}, output_topics=output_topics("a"))
    with pytest.raises(InvalidRow, match="'b', which is not in outputTopics"):
        encode(encoding, rows(value=[b"1"], topic=["b"]))


@pytest.mark.parametrize("topic", ["a", None])
def test_a_row_for_an_undeclared_partition_breaks_the_contract(topic):
    encoding = EncodeSettings(
        topic=topic, targets={"a": Target(partitions=8)}, output_topics=output_topics("a:0-3,a:7")
    )
    named = {} if topic else {"topic": ["a"] * 3}
    blocks = encode(encoding, rows(value=[b"1", b"2", b"3"], partition=[0, 3, 7], **named))
    assert [block.partition.partition for block in blocks] == [0, 3, 7]
    with pytest.raises(InvalidRow, match=r"a row goes to a-5, .* not in outputTopics \(a:0-3,a:7\)"):
        encode(encoding, rows(value=[b"1", b"2", b"3"], partition=[0, 5, 7], **named))
    keys = [b"%d" % number for number in range(20)]
    named = {} if topic else {"topic": ["a"] * 20}
    with pytest.raises(InvalidRow, match=r"a row goes to a-\d, .* not in outputTopics \(a:0-3,a:7\)"):
        encode(encoding, rows(value=keys, key=keys, **named))


def test_a_row_without_a_topic_is_an_error():
    with pytest.raises(InvalidRow, match="a null 'topic'"):
        encode(
            EncodeSettings(topic=None, targets={"a": Target(partitions=1)}), rows(value=[b"1", b"2"], topic=["a", None])
        )


def test_an_unknown_topic_is_an_error():
    with pytest.raises(UnknownTopic, match="'nope'"):
        encode(EncodeSettings(topic=None, targets={}), rows(value=[b"1"], topic=["nope"]))


def test_a_partition_out_of_range_is_an_error():
    with pytest.raises(InvalidRow, match="partition 1 of topic 't'"):
        encode(ONE, rows(value=[b"1"], partition=[1]))


@pytest.mark.parametrize(("column", "expected"), [({"timestamp": [5, None]}, [5, NOW]), ({}, [NOW, NOW])])
def test_timestamps_are_the_rows_own_or_now(column, expected):
    (block,) = encode(ONE, rows(value=[b"1", b"2"], **column))
    assert decode(block.data, list(scan(block.data))).column("timestamp").to_pylist() == expected


def test_rows_that_are_slices_of_a_larger_batch_are_encoded_alone():
    batch = rows(value=[b"%d" % i for i in range(10)], headers=[[{"key": "h", "value": b"%d" % i}] for i in range(10)])
    blocks = encode(ONE, batch.slice(3, 4))
    assert values(blocks, TopicPartition("t", 0)) == [b"3", b"4", b"5", b"6"]


def test_what_is_buffered_stays_below_the_bound():
    encoding = EncodeSettings(topic="t", targets={"t": Target(partitions=50)}, max_buffered_bytes=20_000)
    encoder = BlockEncoder(encoding, 0, unknown, lambda: NOW)
    out = 0
    for _ in range(50):
        batch = rows(value=[b"x" * 100] * 50, partition=np.arange(50, dtype=np.int32).tolist())
        out += sum(block.records for block in encoder.add(batch))
    held = 50 * 50 - out
    assert held * 100 <= 20_000
    assert out + sum(block.records for block in encoder.finish()) == 2_500


def test_rows_that_wait_are_encoded_before_a_column_of_them_would_be_too_large_for_arrow(monkeypatch):
    """Arrow's offsets have 32 bits: what is above would be joined to two batches."""
    monkeypatch.setattr("spark_kafka_eos.appending.blocks._LARGEST_COLUMN", 10_000)
    payload = [[b"%d-%d" % (batch, row) + bytes(1_000) for row in range(4)] for batch in range(9)]
    blocks = encode(ONE, *(rows(value=each) for each in payload))
    assert values(blocks, TopicPartition("t", 0)) == [value for each in payload for value in each]
    assert all(len(block.data) <= 10_000 for block in blocks)


def test_a_partition_with_few_rows_does_not_keep_the_batches_they_came_in():
    """Else a task with skewed keys would keep all its input."""
    limit, number = 1 << 20, 60
    encoding = EncodeSettings(
        topic="t", targets={"t": Target(partitions=2)}, max_request_size=limit // 4, max_buffered_bytes=limit
    )
    encoder = BlockEncoder(encoding, 0, unknown, lambda: NOW)
    before, most = pa.total_allocated_bytes(), 0
    found: list[Block] = []
    for batch in range(number):
        given = rows(value=[b"rare %d" % batch, *[bytes(1_000)] * 500], partition=[1, *[0] * 500])
        found += encoder.add(given)
        del given
        most = max(most, pa.total_allocated_bytes() - before)
    found += encoder.finish()
    assert values(found, TopicPartition("t", 1)) == [b"rare %d" % batch for batch in range(number)]
    assert len(values(found, TopicPartition("t", 0))) == 500 * number
    assert most < 4 * limit, "of 30 MB"
