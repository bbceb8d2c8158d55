"""What comes out of a table is what a plain loop over the records finds; the loop stands below. What is written as one
is what is written one field after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from spark_kafka_eos.errors import CorruptRecordBatch
from spark_kafka_eos.kafka.wire import stride
from spark_kafka_eos.kafka.wire.columns import MAX_BYTES, lengths
from spark_kafka_eos.kafka.wire.decode import decode
from spark_kafka_eos.kafka.wire.encode import encode
from spark_kafka_eos.kafka.wire.headers import HEADERS
from spark_kafka_eos.kafka.wire.record_batch import HEADER, scan
from spark_kafka_eos.kafka.wire.varint import MAX_VARLONG_BYTES, ZERO, read_varint, read_varints, varint_column, varints

T = 1_700_000_000_000
SIZES = st.none() | st.integers(0, 300)
GAP = b"\x00" * 7


class Record(NamedTuple):
    timestamp: int
    offset: int
    key: bytes | None
    value: bytes | None


def column(rows: int, size: int | None) -> pa.Array:
    return pa.array([None if size is None else bytes([row % 251]) * size for row in range(rows)], pa.binary())


def records(rows: int, key: int | None, value: int | None, times: Sequence[int] | int = T) -> bytes:
    at = np.full(rows, times) if isinstance(times, int) else np.array(times)
    return bytes(encode(column(rows, key), column(rows, value), at)[HEADER.size :])


def by_stride(batches: Sequence[bytes], counts: Sequence[int], *, worth_a_table: int = 1) -> list[Record] | None:
    data, start, end = b"", [], []
    for batch in batches:
        data += GAP
        start.append(len(data))
        data += batch
        end.append(len(data))
    found = stride.read_alike(
        np.frombuffer(data, np.uint8), np.array(start), np.array(end), np.array(counts), worth_a_table=worth_a_table
    )
    if found is None:
        return None
    for arrow in (found.key, found.value):
        arrow.validate(full=True)
    fields = (found.timestamp.tolist(), found.offset.tolist(), found.key.to_pylist(), found.value.to_pylist())
    return [Record(*fields) for fields in zip(*fields, strict=True)]


def by_loop(batch: bytes, count: int) -> Iterator[Record]:
    """Raises CorruptRecordBatch where the records do not make up the batch, or have headers."""
    data, at = np.frombuffer(batch, np.uint8), 0

    def number(most: int = 5) -> int:
        nonlocal at
        value, behind = read_varints(data, np.array([at]), np.array([len(data)]), most)
        at = int(behind[0])
        return int(value[0])

    def content(length: int) -> bytes | None:
        nonlocal at
        at += max(length, 0)
        if length < -1 or at > len(data):
            raise CorruptRecordBatch("a length that cannot be")
        return None if length < 0 else batch[at - length : at]

    for _ in range(count):
        length = number()
        stop, at = at + length, at + 1
        yield Record(number(MAX_VARLONG_BYTES), number(), content(number()), content(number()))
        if number() != 0 or at != stop:
            raise CorruptRecordBatch("headers, or a record of another length")
    if at != len(batch):
        raise CorruptRecordBatch("a batch of another length")


@settings(deadline=None)
@given(st.lists(st.integers(1, 200), min_size=1, max_size=3), SIZES, SIZES, st.booleans(), st.randoms())
def test_records_of_one_size_are_read(
    counts: list[int], key: int | None, value: int | None, same_time: bool, random: Random
):
    def times(rows: int) -> list[int]:
        return [T, *(T if same_time else T + random.randint(-64, 63) for _ in range(rows - 1))]

    batches = [records(rows, key, value, times(rows)) for rows in counts]
    expected = [record for rows, batch in zip(counts, batches, strict=True) for record in by_loop(batch, rows)]
    assert by_stride(batches, counts) == expected


@pytest.mark.parametrize("rows", [63, 64, 65, 8_191, 8_192, 8_193, 9_000])
def test_offset_deltas_grow(rows: int):
    batch = records(rows, 8, 100)
    found = by_stride([batch], [rows])
    assert found == list(by_loop(batch, rows))
    assert [record.offset for record in found] == list(range(rows))


@pytest.mark.parametrize("times", [[8_192, 9_000, -9_000], [1 << 33, -(1 << 33), 1 << 30]])
def test_timestamp_deltas_may_take_several_bytes(times: list[int]):
    fields = [varints(number) for number in (0, np.array(times), np.arange(len(times)), -1, -1, 0)]
    rest = varint_column(fields, len(times)).to_pylist()
    batch = b"".join(bytes([2 * len(each)]) + each for each in rest)
    expected = [Record(time, offset, None, None) for offset, time in enumerate(times)]
    assert by_stride([batch], [len(times)]) == expected == list(by_loop(batch, len(times)))


@pytest.mark.parametrize("at", [0, 1, 63, 64, 99])
@pytest.mark.parametrize("what", ["key", "value", "null", "time", "headers"])
def test_one_record_unlike_the_others_is_left_to_others(what: str, at: int):
    keys, values, times = column(100, 8).to_pylist(), column(100, 20).to_pylist(), np.full(100, T)
    headers: list[list[dict[str, object]]] = [[] for _ in range(100)]
    match what:
        case "key":
            keys[at] += b"!"
        case "value":
            values[at] = values[at][1:]
        case "null":
            values[at] = None
        case "time":
            times[at] += 64 if at else -64
        case "headers":
            headers[at] = [{"key": "h", "value": b"v"}]
    batch = encode(pa.array(keys, pa.binary()), pa.array(values, pa.binary()), times, pa.array(headers, HEADERS))
    assert by_stride([bytes(batch[HEADER.size :])], [100]) is None


def test_batches_unlike_each_other_are_left_to_others():
    assert by_stride([records(80, 8, 20), records(80, 8, 21)], [80, 80]) is None
    assert by_stride([records(80, 8, 20), records(80, 8, 20)], [80, 80]) is not None


@settings(deadline=None, max_examples=300)
@given(st.integers(1, 80), SIZES, SIZES, st.data())
def test_damaged_records_are_read_as_they_are_or_not_at_all(
    rows: int, key: int | None, value: int | None, data: st.DataObject
):
    batch, claimed = bytearray(records(rows, key, value)), rows
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(batch) - 1))
        match data.draw(st.sampled_from(["flip", "insert", "delete", "varint", "count"])):
            case "flip":
                batch[at] ^= 1 << data.draw(st.integers(0, 7))
            case "insert":
                batch[at:at] = data.draw(st.binary(min_size=1, max_size=4))
            case "delete":
                del batch[at : at + data.draw(st.integers(1, 4))]
            case "varint":
                batch[at : at + 5] = b"\xff\xff\xff\xff\x0f"
            case "count":
                claimed = max(claimed + data.draw(st.integers(-2, 2)), 1)
        if not batch:
            return
    found = by_stride([bytes(batch)], [claimed])
    assert found is None or found == list(by_loop(bytes(batch), claimed))


def test_a_length_that_the_bytes_do_not_hold_takes_no_memory():
    huge = b"".join(varint_column([varints(number)], 1)[0].as_py() for number in (0, 0, 0, 2_000_000_000))
    assert by_stride([huge + bytes(100)], [10]) is None
    length, _ = read_varint(np.frombuffer(huge, np.uint8), 3, len(huge))
    assert length == 2_000_000_000


def test_small_batches_are_left_to_others():
    assert by_stride([records(100, 8, 20)], [100], worth_a_table=stride.WORTH_A_TABLE) is None
    assert by_stride([records(3_000, 8, 20)], [3_000], worth_a_table=stride.WORTH_A_TABLE) is not None


def by_table(keys: pa.Array, values: pa.Array, times: NDArray[np.int64] | int) -> bytes | None:
    delta = ZERO if isinstance(times, int) else varints(times - times[0])
    before_key, before_value = varints(lengths(keys)), varints(lengths(values))
    table = stride.write_alike(keys, values, delta, before_key, before_value, MAX_BYTES)
    return None if table is None else bytes(table)


def one_by_one(keys: pa.Array, values: pa.Array, times: NDArray[np.int64] | int) -> bytes:
    def varint(number: int) -> bytes:
        folded, written = (number << 1) ^ (number >> 63), bytearray()
        while folded > 0x7F:
            written.append(folded & 0x7F | 0x80)
            folded >>= 7
        return bytes([*written, folded])

    def content(of: bytes | None) -> bytes:
        return varint(-1) if of is None else varint(len(of)) + of

    payload = bytearray()
    deltas = [0] * len(keys) if isinstance(times, int) else (times - times[0]).tolist()
    for offset, (delta, key, value) in enumerate(zip(deltas, keys.to_pylist(), values.to_pylist(), strict=True)):
        record = b"\0" + varint(delta) + varint(offset) + content(key) + content(value) + varint(0)
        payload += varint(len(record)) + record
    return bytes(payload)


def payload(keys: pa.Array, values: pa.Array, times: NDArray[np.int64] | int) -> bytes:
    return bytes(encode(keys, values, times)[HEADER.size :])


@settings(deadline=None)
@given(st.integers(1, 200), SIZES, SIZES, st.integers(0, 3), st.none() | st.randoms())
def test_records_of_one_size_are_written_as_others_are(
    rows: int, key: int | None, value: int | None, before: int, random: Random | None
):
    keys, values = column(rows + before, key)[before:], column(rows + before, value)[before:]
    times = T if random is None else np.array([T, *(T + random.randint(-64, 63) for _ in range(rows - 1))])
    assert by_table(keys, values, times) == one_by_one(keys, values, times) == payload(keys, values, times)


@pytest.mark.parametrize("rows", [1, 63, 64, 65, 8_191, 8_192, 8_193, 9_000])
def test_offset_deltas_that_grow_are_written_as_others_are(rows: int):
    keys, values = column(rows, 8), column(rows, 100)
    assert by_table(keys, values, T) == one_by_one(keys, values, T) == payload(keys, values, T)


@pytest.mark.parametrize("what", ["key", "value", "null", "time"])
def test_records_that_differ_are_written_one_field_after_the_other(what: str):
    keys, values, times = column(100, 8).to_pylist(), column(100, 20).to_pylist(), np.full(100, T)
    match what:
        case "key":
            keys[7] += b"!"
        case "value":
            values[99] = b""
        case "null":
            values[0] = None
        case "time":
            times[50] += 64
    columns = pa.array(keys, pa.binary()), pa.array(values, pa.binary()), times
    assert by_table(*columns) is None
    assert payload(*columns) == one_by_one(*columns)


def test_headers_of_records_that_are_alike_otherwise_are_written():
    headers: list[list[dict[str, object]]] = [[] for _ in range(100)]
    headers[3] = [{"key": "h", "value": b"v"}]
    batch = encode(column(100, 8), column(100, 20), T, pa.array(headers, HEADERS))
    assert decode(batch, list(scan(batch)), include_headers=True)["headers"].to_pylist() == headers


def test_bytes_under_a_null_are_not_written():
    offsets = pa.py_buffer(np.array([0, 3, 6], np.int32))
    nulls = pa.BinaryArray.from_buffers(pa.binary(), 2, [pa.py_buffer(b"\0"), offsets, pa.py_buffer(b"abcdef")])
    values = column(2, 5)
    assert by_table(nulls, values, T) == one_by_one(nulls, values, T) == payload(nulls, values, T)


def test_records_of_one_size_that_do_not_fit_into_a_batch_are_refused():
    """Key and value are the same GiB of zeros, which takes no memory as long as nobody writes it."""
    gigabyte = pa.py_buffer(np.zeros(1 << 30, np.uint8))
    column = pa.BinaryArray.from_buffers(
        pa.binary(), 1, [None, pa.py_buffer(np.array([0, 1 << 30], np.int32)), gigabyte]
    )
    with pytest.raises(ValueError, match="below 2 GiB"):
        encode(column, column, T)
