"""The known pairs: zigzag as in the Protocol Buffers encoding guide, and the edges of each number of bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_eos.errors import CorruptRecordBatch
from spark_kafka_eos.kafka.wire.varint import MAX_VARLONG_BYTES, read_varint, read_varints, varint_column, varints

KNOWN = {
    0: "00",
    -1: "01",
    1: "02",
    63: "7e",
    -64: "7f",
    64: "8001",
    -65: "8101",
    8191: "fe7f",
    8192: "808001",
    2**31 - 1: "feffffff0f",
    -(2**31): "ffffffff0f",
    2**63 - 1: "feffffffffffffffff01",
    -(2**63): "ffffffffffffffffff01",
}
INT64 = st.integers(-(2**63), 2**63 - 1) | st.sampled_from(sorted(KNOWN))


def read(data: bytes, at: list[int], end: list[int], max_bytes: int = MAX_VARLONG_BYTES) -> tuple[list[int], list[int]]:
    values, after = read_varints(np.frombuffer(data, np.uint8), np.array(at), np.array(end), max_bytes)
    return values.tolist(), after.tolist()


@pytest.mark.parametrize(("number", "octets"), KNOWN.items())
def test_known_numbers_have_their_known_bytes(number: int, octets: str) -> None:
    assert varint_column([varints(number)], 2).to_pylist() == [bytes.fromhex(octets)] * 2


@settings(deadline=None)
@given(st.lists(st.tuples(INT64, INT64, INT64), min_size=1), INT64)
def test_a_column_of_several_fields_reads_back(rows: list[tuple[int, int, int]], same: int) -> None:
    fields = [*np.array(rows, np.int64).T]
    column = varint_column([varints(fields[0]), varints(same), varints(fields[1]), varints(fields[2])], len(rows))
    data = b"".join(column.to_pylist())
    ends = np.cumsum([len(row) for row in column.to_pylist()]).tolist()
    at = [0, *ends[:-1]]
    for field in (fields[0].tolist(), [same] * len(rows), fields[1].tolist(), fields[2].tolist()):
        values, at = read(data, at, ends)
        assert values == field
    assert at == ends


@settings(deadline=None)
@given(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1))
def test_32_bit_numbers_have_the_bytes_of_64_bit_ones(numbers: list[int]) -> None:
    narrow, wide = (varint_column([varints(np.array(numbers, t))], len(numbers)) for t in (np.int32, np.int64))
    assert narrow.equals(wide)


@pytest.mark.parametrize("octets", [octets for number, octets in KNOWN.items() if abs(number) < 2**32])
def test_one_number_reads_as_a_column_of_them_does(octets: str) -> None:
    data = np.frombuffer(bytes.fromhex(octets), np.uint8)
    values, after = read_varints(data, np.array([0]), np.array([len(data)]))
    assert read_varint(data, 0, len(data)) == (values[0], after[0])


@pytest.mark.parametrize("octets", ["", "80", "8080", "808080"])
def test_a_number_that_runs_over_its_end_is_refused(octets: str) -> None:
    data = bytes.fromhex(octets) + b"\x01"  # what follows would complete it
    with pytest.raises(CorruptRecordBatch, match="end"):
        read(data, [0], [len(data) - 1])
    with pytest.raises(CorruptRecordBatch, match="end"):
        read_varint(np.frombuffer(data, np.uint8), 0, len(data) - 1)


@pytest.mark.parametrize(("max_bytes", "octets"), [(5, "ffffffffff01"), (10, "ffffffffffffffffffff01")])
def test_a_number_of_too_many_bytes_is_refused(max_bytes: int, octets: str) -> None:
    data = bytes.fromhex(octets)
    with pytest.raises(CorruptRecordBatch, match=f"more than {max_bytes} bytes"):
        read(data, [0], [len(data)], max_bytes)


def test_one_number_of_too_many_bytes_is_refused() -> None:
    with pytest.raises(CorruptRecordBatch, match="more than 5 bytes"):
        read_varint(np.full(100, 0xFF, np.uint8), 0, 100)
