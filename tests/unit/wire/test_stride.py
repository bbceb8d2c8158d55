"""What comes out of a table is what a plain loop over the records finds; the loop stands below. What is written as one
is what is written one field after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_eos.errors import CorruptRecordBatch
from spark_kafka_eos.wire import encode as encoder
from spark_kafka_eos.wire import stride
from spark_kafka_eos.wire.decode import decode
from spark_kafka_eos.wire.encode import encode
from spark_kafka_eos.wire.headers import HEADERS
from spark_kafka_eos.wire.record_batch import HEADER, scan
from spark_kafka_eos.wire.varint import MAX_VARLONG_BYTES, read_varint, read_varints, varint_column, varints

T = 1_700_000_000_000
SIZES = st.none() | st.integers(0, 300)
GAP = b"\x00" * 7


class Record(NamedTuple):
    timestamp: int
    offset: int
    key: bytes | None
    value: bytes | None


@pytest.fixture(autouse=True)
def _tables_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stride, "_WORTH_A_TABLE", 1)


def column(rows: int, size: int | None) -> pa.Array:
    return pa.array([None if size is None else bytes([row % 251]) * size for row in range(rows)], pa.binary())


def records(rows: int, key: int | None, value: int | None, times: Sequence[int] | int = T) -> bytes:
    at = np.full(rows, times) if isinstance(times, int) else np.array(times)
    return bytes(encode(column(rows, key), column(rows, value), at)[HEADER.size :])


def by_stride(batches: Sequence[bytes], counts: Sequence[int]) -> list[Record] | None:
    data, start, end = b"", [], []
    for batch in batches:
        data += GAP
        start.append(len(data))
        data += batch
        end.append(len(data))
    found = stride.read_alike(np.frombuffer(data, np.uint8), np.array(start), np.array(end), np.array(counts))
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


def test_small_batches_are_left_to_others(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.undo()
    assert by_stride([records(100, 8, 20)], [100]) is None
    assert by_stride([records(3_000, 8, 20)], [3_000]) is not None


def written(
    keys: pa.Array, values: pa.Array, times: Sequence[int] | int, headers: pa.Array | None = None
) -> tuple[bytes, int]:
    """The record batch, and how many tables it was made of."""
    at, tables = times if isinstance(times, int) else np.array(times), []

    def watched(*columns: Any) -> memoryview | None:
        tables.append(stride.write_alike(*columns))
        return tables[-1]

    with mock.patch.object(encoder, "write_alike", watched):
        return bytes(encode(keys, values, at, headers)), sum(table is not None for table in tables)


def plainly(keys: pa.Array, values: pa.Array, times: Sequence[int] | int, headers: pa.Array | None = None) -> bytes:
    """The record batch as it is written without tables."""
    with mock.patch.object(encoder, "write_alike", return_value=None):
        return bytes(encode(keys, values, times if isinstance(times, int) else np.array(times), headers))


@settings(deadline=None)
@given(st.integers(1, 200), SIZES, SIZES, st.integers(0, 3), st.none() | st.randoms())
def test_records_of_one_size_are_written_as_others_are(
    rows: int, key: int | None, value: int | None, before: int, random: Random | None
):
    keys, values = column(rows + before, key)[before:], column(rows + before, value)[before:]
    times = T if random is None else [T, *(T + random.randint(-64, 63) for _ in range(rows - 1))]
    assert written(keys, values, times) == (plainly(keys, values, times), 1)


@pytest.mark.parametrize("rows", [1, 63, 64, 65, 8_191, 8_192, 8_193, 9_000])
def test_offset_deltas_that_grow_are_written_as_others_are(rows: int):
    keys, values = column(rows, 8), column(rows, 100)
    assert written(keys, values, T) == (plainly(keys, values, T), 1)


@pytest.mark.parametrize("what", ["key", "value", "null", "time", "headers"])
def test_records_that_differ_are_written_one_field_after_the_other(what: str):
    keys, values, times = column(100, 8).to_pylist(), column(100, 20).to_pylist(), [T] * 100
    headers: list[list[dict[str, object]]] = [[] for _ in range(100)]
    match what:
        case "key":
            keys[7] += b"!"
        case "value":
            values[99] = b""
        case "null":
            values[0] = None
        case "time":
            times[50] += 64
        case "headers":
            headers[3] = [{"key": "h", "value": b"v"}]
    columns = pa.array(keys, pa.binary()), pa.array(values, pa.binary()), times, pa.array(headers, HEADERS)
    batch, tables = written(*columns)
    assert tables == 0
    decoded = decode(batch, list(scan(batch)), include_headers=True)
    assert decoded["key"].to_pylist() == keys
    assert decoded["value"].to_pylist() == values
    assert decoded["timestamp"].to_pylist() == times
    assert decoded["headers"].to_pylist() == headers


def test_bytes_behind_a_null_are_not_written():
    offsets = pa.py_buffer(np.array([0, 3, 6], np.int32))
    nulls = pa.BinaryArray.from_buffers(pa.binary(), 2, [pa.py_buffer(b"\0"), offsets, pa.py_buffer(b"abcdef")])
    values = column(2, 5)
    assert written(nulls, values, T) == (plainly(pa.nulls(2, pa.binary()), values, T), 1)


def test_records_of_one_size_that_do_not_fit_into_a_batch_are_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(encoder, "_LARGEST_PAYLOAD", 10_000)
    with pytest.raises(ValueError, match="below 2 GiB"):
        encode(column(100, 8), column(100, 100), T)
