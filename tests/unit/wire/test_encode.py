"""Round trips through our own decoder, and our record batches in kafka-python's."""

import numpy as np
import pyarrow as pa
import pytest
from kafka.record import MemoryRecords

from spark_kafka_eos.wire.decode import decode
from spark_kafka_eos.wire.encode import encode, stamp
from spark_kafka_eos.wire.headers import HEADERS
from spark_kafka_eos.wire.record_batch import scan

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
    batch = encode(KEYS[rows], VALUES[rows], TIMES[rows], some, compression=codec)
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
    batch = encode(KEYS, VALUES, TIMES, HEADER_LISTS, compression=codec)
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
