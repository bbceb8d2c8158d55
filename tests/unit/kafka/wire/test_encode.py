"""Round trips through our own decoder, and our record batches in kafka-python's."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record import MemoryRecords

from spark_kafka_eos.errors import ConfigurationError, InvalidRow
from spark_kafka_eos.kafka.wire.decode import decode
from spark_kafka_eos.kafka.wire.encode import encode
from spark_kafka_eos.kafka.wire.headers import HEADERS
from spark_kafka_eos.kafka.wire.record_batch import scan, stamp

KEYS = pa.array([b"a", None, b"", b"long" * 50, b"x"], pa.binary())
VALUES = pa.array([None, b"v", b"", b"q" * 10_000, b"1"], pa.binary())
TIMES = np.array([5, 2, -7, 1 << 62, -(1 << 62)])
HEADER_LISTS = pa.array(
    [None, [], [{"key": "é", "value": None}], [{"key": "", "value": b""}, {"key": "b", "value": b"zz"}], None], HEADERS
)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("headers", [None, HEADER_LISTS], ids=["plain", "with headers"])
@pytest.mark.parametrize("rows", [slice(0, 5), slice(1, 4), slice(2, 3)], ids=["all", "a slice", "one"])
def test_what_is_encoded_decodes_to_the_same_rows(codec: str, headers: pa.Array | None, rows: slice) -> None:
    some = None if headers is None else headers[rows]
    batch = encode(KEYS[rows], VALUES[rows], TIMES[rows], some, compression_type=codec)
    decoded = decode(batch, list(scan(batch)), include_headers=True)
    assert decoded["key"].equals(KEYS[rows])
    assert decoded["value"].equals(VALUES[rows])
    assert decoded["timestamp"].to_pylist() == TIMES[rows].tolist()
    assert decoded["offset"].to_pylist() == list(range(len(decoded)))
    assert decoded["headers"].to_pylist() == [
        each or [] for each in (some or pa.nulls(len(decoded), HEADERS)).to_pylist()
    ]


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_kafka_python_reads_what_is_encoded(codec: str) -> None:
    batch = encode(KEYS, VALUES, TIMES, HEADER_LISTS, compression_type=codec)
    stamp(batch, producer_id=7, epoch=3, base_sequence=11, transactional=True)
    theirs = MemoryRecords(bytes(batch)).next_batch()
    assert theirs.validate_crc()
    assert (theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == (7, 3, 11)
    assert theirs.is_transactional
    assert [(r.key, r.value, r.timestamp, r.headers) for r in theirs] == [
        (key, value, time, [(h["key"], h["value"]) for h in headers or []])
        for key, value, time, headers in zip(
            KEYS.to_pylist(), VALUES.to_pylist(), TIMES.tolist(), HEADER_LISTS.to_pylist(), strict=True
        )
    ]


CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
INT64 = st.integers(-(2**63), 2**63 - 1)
HEADER = st.fixed_dictionaries({"key": st.text(max_size=5), "value": st.none() | st.binary(max_size=5)})
ROWS = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=80),
        st.none() | st.binary(max_size=80),
        INT64 | st.integers(1_700_000_000_000, 1_700_000_100_000),
        st.none() | st.lists(HEADER, max_size=3),
    ),
    min_size=1,
    max_size=150,
)


@settings(deadline=None)
@given(ROWS, st.sampled_from(CODECS), st.integers(0, 5))
def test_any_rows_come_back_as_they_were(
    rows: list[tuple[bytes | None, bytes | None, int, list[dict[str, object]] | None]], codec: str, skipped: int
) -> None:
    """Deltas of timestamps may be anything: what overflows 64 bits on the way there overflows on the way back."""
    start = min(skipped, len(rows) - 1)
    keys, values, times, headers = zip(*rows, strict=True)
    batch = encode(
        pa.array(keys, pa.binary())[start:],
        pa.array(values, pa.binary())[start:],
        np.array(times)[start:],
        pa.array(headers, HEADERS)[start:],
        compression_type=codec,
    )
    (header,) = scan(batch)
    assert header.size == len(batch)
    assert (header.base_timestamp, header.max_timestamp) == (times[start], max(times[start:]))
    assert (header.record_count, header.last_offset_delta) == (len(rows) - start, len(rows) - start - 1)
    decoded = decode(batch, [header], include_headers=True)
    found = zip(*(decoded[name].to_pylist() for name in ("key", "value", "timestamp", "headers")), strict=True)
    assert list(found) == [(key, value, time, pairs or []) for key, value, time, pairs in rows[start:]]


@pytest.mark.parametrize("rows", [64, 65, 8192, 8193, 20_000])
def test_offset_deltas_of_every_width_come_back(rows: int) -> None:
    values = pa.array([b"v"] * rows, pa.binary())
    batch = encode(pa.nulls(rows, pa.binary()), values, 7)
    decoded = decode(batch, list(scan(batch)))
    assert decoded["offset"].to_numpy().tolist() == list(range(rows))
    assert decoded["value"].equals(values)


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.string(), pa.large_string()], ids=str)
def test_columns_of_every_kind_of_bytes_are_accepted(kind: pa.DataType) -> None:
    column = pa.array(["a", None, "ü"], kind)
    batch = encode(column[1:], column[1:], 7)
    assert decode(batch, list(scan(batch)))["key"].to_pylist() == [None, "ü".encode()]


def test_headers_of_strings_and_large_types_are_accepted() -> None:
    kind = pa.large_list(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())]))
    headers = pa.array([[{"key": "k", "value": b"v"}], None], kind)
    batch = encode(pa.array([b"1", b"2"]), pa.array([b"1", b"2"]), 7, headers)
    decoded = decode(batch, list(scan(batch)), include_headers=True)
    assert decoded["headers"].to_pylist() == [[{"key": "k", "value": b"v"}], []]


def test_one_timestamp_for_all_rows_is_the_same_as_one_per_row() -> None:
    assert encode(KEYS, VALUES, 42) == encode(KEYS, VALUES, np.full(5, 42))


def test_a_batch_belongs_to_no_producer_until_it_is_stamped() -> None:
    (header,) = scan(encode(KEYS, VALUES, 42))
    assert (header.base_offset, header.producer_id, header.producer_epoch, header.base_sequence) == (0, -1, -1, -1)
    assert not header.is_transactional


@pytest.mark.parametrize(
    ("keys", "times", "headers"),
    [(KEYS[:4], TIMES, HEADER_LISTS), (KEYS, TIMES[:4], HEADER_LISTS), (KEYS, TIMES, HEADER_LISTS[:4])],
    ids=["keys", "timestamps", "headers"],
)
def test_columns_of_different_lengths_are_refused(keys: pa.Array, times: np.ndarray, headers: pa.Array) -> None:
    with pytest.raises(ValueError, match="different lengths for 5 values"):
        encode(keys, VALUES, times, headers)


def test_no_rows_make_no_batch() -> None:
    with pytest.raises(ValueError, match="at least one record"):
        encode(KEYS[:0], VALUES[:0], 42)


def test_a_header_without_a_key_is_an_invalid_row() -> None:
    with pytest.raises(InvalidRow, match="no key"):
        encode(KEYS[:1], VALUES[:1], 42, pa.array([[{"key": None, "value": b""}]], HEADERS))


def test_an_unknown_codec_is_a_configuration_error() -> None:
    with pytest.raises(ConfigurationError, match="brotli"):
        encode(KEYS, VALUES, 42, compression_type="brotli")


def test_what_does_not_fit_into_a_batch_is_refused_before_it_is_laid_out() -> None:
    """Key and value are the same GiB of zeros, which takes no memory as long as nobody writes it."""
    gigabyte = pa.py_buffer(np.zeros(1 << 30, np.uint8))
    offsets = pa.py_buffer(np.array([0, 0, 1 << 30], np.int32))
    column = pa.BinaryArray.from_buffers(pa.binary(), 2, [None, offsets, gigabyte])
    with pytest.raises(ValueError, match="below 2 GiB"):
        encode(column, column, 42)
