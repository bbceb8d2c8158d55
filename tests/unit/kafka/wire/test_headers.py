from __future__ import annotations

import time

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_eos.errors import CorruptRecordBatch, InvalidRow
from spark_kafka_eos.kafka.wire.headers import HEADERS, decode_headers, encode_headers
from spark_kafka_eos.kafka.wire.varint import varint_column, varints

HEADER = st.fixed_dictionaries({"key": st.text(max_size=8), "value": st.none() | st.binary(max_size=8)})
LISTS = st.lists(st.none() | st.lists(HEADER, max_size=12), min_size=1, max_size=30)


def decoded(content: list[bytes], counts: list[int]) -> pa.ListArray:
    sizes = np.array([len(each) for each in content])
    end = np.cumsum(sizes)
    return decode_headers(np.frombuffer(b"".join(content), np.uint8), end - sizes, end, np.array(counts))


@settings(deadline=None)
@given(LISTS, st.integers(0, 3))
def test_headers_come_back_as_they_were(lists: list[list[dict[str, object]] | None], skipped: int) -> None:
    column = pa.array(lists, HEADERS)[skipped:]
    counts, content = encode_headers(column)
    expected = [each or [] for each in column.to_pylist()]
    if content is None:
        assert not any(expected)
        return
    result = decoded(content.to_pylist(), [len(each) for each in expected])
    result.validate(full=True)
    assert result.to_pylist() == expected
    assert varint_column([counts], len(column)).to_pylist() == [
        varint_column([varints(len(each))], 1)[0].as_py() for each in expected
    ]


@pytest.mark.parametrize("column", [None, pa.array([None, None], HEADERS), pa.array([[], None], HEADERS)])
def test_rows_without_headers_need_no_bytes_for_them(column: pa.Array | None) -> None:
    assert encode_headers(column).content is None


@pytest.mark.parametrize("bad", [None, {"key": None, "value": b""}])
def test_a_header_without_a_key_cannot_be_sent(bad: object) -> None:
    with pytest.raises(InvalidRow, match="null or has no key"):
        encode_headers(pa.array([[{"key": "k", "value": b""}, bad]], HEADERS))


@pytest.mark.usefixtures("without_collector")
def test_one_record_of_very_many_headers_is_read_in_little_time() -> None:
    column = pa.array([[{"key": "k", "value": None}] * 100_000, []], HEADERS)
    content = encode_headers(column).content
    assert content is not None
    started = time.process_time()
    result = decoded(content.to_pylist(), [100_000, 0])
    assert time.process_time() - started < 2  # an array operation for each would take six
    assert result.equals(column)


def test_a_key_that_is_not_utf_8_is_read_as_java_does() -> None:
    keys = decoded([b"\x04\xc3\x28\x02v"], [1]).to_pylist()
    assert keys == [[{"key": "�(", "value": b"v"}]]


@pytest.mark.parametrize("copies", [1, 20], ids=["one by one", "at once"])
@pytest.mark.parametrize(
    ("content", "count"),
    [
        ("", 1),
        ("02", 1),  # no room for the value's length
        ("026b", 1),  # the value's length is missing
        ("026b04", 1),  # the value is missing
        ("106b0276", 1),  # the key runs over the end
        ("026b1076", 1),  # the value runs over the end
        ("0101", 1),  # the key's length is -1
        ("026b03", 1),  # the value's length is -2
        ("026b0276", 0),  # more than was promised
        ("026b0276", 2),  # less than was promised
        ("026b0276", -1),
        ("026b0276", 2**31 - 1),
    ],
)
def test_bytes_that_are_not_these_headers_are_refused(content: str, count: int, copies: int) -> None:
    with pytest.raises(CorruptRecordBatch):
        decoded([bytes.fromhex(content)] * copies, [count] * copies)
