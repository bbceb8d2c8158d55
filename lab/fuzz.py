"""The fuzz targets. Any bytes must lead neither to a crash nor to wrong rows nor to excessive memory, and every
rejection must be an error of `errors.py`.

A target takes bytes, and raises an error only if it finds a violation. Tests call the targets with Hypothesis;
`python -m lab fuzz` runs them with atheris (coverage-guided, https://github.com/google/atheris) for any time. All
clocks are simulated, so nothing waits, and the fuzzer detects hangs.
"""

from __future__ import annotations

import struct
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial, wraps
from typing import Any

import pyarrow as pa

from lab.fuzzed_broker import APIS, answer, converse, fetched, read_rows
from spark_kafka_eos.errors import CorruptRecordBatch
from spark_kafka_eos.kafka.partitions import OffsetAndMetadata
from spark_kafka_eos.kafka.protocol.connection import LARGEST_RESPONSE
from spark_kafka_eos.kafka.wire.batch_header import Compression
from spark_kafka_eos.kafka.wire.compression import compress, decompress
from spark_kafka_eos.kafka.wire.control import aborts
from spark_kafka_eos.kafka.wire.decode import control_marker, decode, decode_in_parts
from spark_kafka_eos.kafka.wire.encode import encode
from spark_kafka_eos.kafka.wire.header_table import header_table
from spark_kafka_eos.kafka.wire.headers import HEADERS
from spark_kafka_eos.kafka.wire.record_batch import CRC_AT, HEADER, crc_of, scan, stamp
from spark_kafka_eos.ledger.entry_format import NotAnEntry, decode_committed, decode_record, encode_record

LIMIT = 1 << 20  # of decompressed bytes

Target = Callable[[bytes], None]


def batches(data: bytes) -> None:
    """A fetched buffer of record batches. Checksums are corrected; otherwise, they would hide all other checks."""
    buffer = bytearray(data)
    try:
        headers = list(scan(buffer))
        for header in headers:
            crc = crc_of(buffer, header.position, header.position + header.size)
            struct.pack_into(">I", buffer, header.position + CRC_AT, crc)
        headers = list(scan(buffer))
    except CorruptRecordBatch:
        return
    assert sum(header.size for header in headers) <= len(data)
    rows = []
    for header in headers:
        with suppress(CorruptRecordBatch):
            if header.is_control:
                marker = control_marker(buffer, header)
                assert marker in ("abort", "commit", "other")
                assert aborts(buffer, header_table(buffer, [header])).tolist() == [marker == "abort"]
            else:
                batch = decode(buffer, [header], include_headers=True, max_bytes=LIMIT)
                batch.validate(full=True)
                assert batch.num_rows == header.record_count
                assert batch.drop_columns("headers").equals(decode(buffer, [header], max_bytes=LIMIT))
                rows.append((header, batch))
    # Decoding all at once takes another path, with the same result.
    with suppress(CorruptRecordBatch):  # together they may exceed the limit
        together = decode(buffer, [header for header, _ in rows], include_headers=True, max_bytes=LIMIT)
        if rows:
            assert pa.Table.from_batches([together]).equals(pa.Table.from_batches([batch for _, batch in rows]))
    with suppress(CorruptRecordBatch):
        data_batches = [header for header in headers if not header.is_control]
        parts = list(decode_in_parts(buffer, data_batches, include_headers=True, max_bytes=LIMIT))
        assert sum(part.num_rows for part in parts) == sum(batch.num_rows for _, batch in rows)


def compression(data: bytes) -> None:
    """A codec's number, followed by the data to decompress."""
    code, rest = (data[0] % 7, data[1:]) if data else (1, b"")
    with suppress(CorruptRecordBatch):
        plain = decompress(code, rest, limit=LIMIT)
        assert len(plain) <= LIMIT
        if code in set(map(int, Compression)):
            assert decompress(code, compress(Compression(code), plain), limit=LIMIT) == plain


def ledger(data: bytes) -> None:
    """The value of a ledger record, or the metadata of a ledger pointer."""
    with suppress(NotAnEntry):
        entry = decode_record(data)
        assert decode_record(encode_record(entry)) == entry
    with suppress(NotAnEntry):
        decode_committed(OffsetAndMetadata(offset=3, metadata=data.decode(errors="replace")))


def connection(data: bytes) -> None:
    """Everything that a broker sends, from the first byte on."""
    converse(data, api=None)


def rows(data: bytes) -> None:
    """The body of a Fetch response, read into rows."""
    converse(data, "Fetch", partial(read_rows, decompressed_bytes=LIMIT))


def _within_bounds(target: Target, *, reserved: int = 0) -> Target:
    @wraps(target)
    def bounded(data: bytes) -> None:
        with _bounded(seconds=1.0, size=64 * LIMIT + reserved):
            target(data)

    return bounded


@contextmanager
def _bounded(*, seconds: float, size: int) -> Iterator[None]:
    """What is inside takes at most so many seconds of CPU, and so many bytes at a time, of Python, NumPy and Arrow."""
    pool = pa.default_memory_pool()
    own = pa.proxy_memory_pool(pool)
    pa.set_memory_pool(own)
    tracemalloc.start()
    began = time.thread_time()
    try:
        yield
    finally:
        taken = time.thread_time() - began
        peak = tracemalloc.get_traced_memory()[1] + (own.max_memory() or 0)
        tracemalloc.stop()
        pa.set_memory_pool(pool)
    assert taken <= seconds, f"{taken:.2f} s"
    assert peak <= size, f"{peak:,} bytes"


def _response(name: str) -> Target:
    def target(data: bytes) -> None:
        converse(data, api=name)

    target.__doc__ = f"The body of a {name} response."
    return target


# What is read of a fetched response has bounds, too. A frame has the memory reserved that it announces.
TARGETS: Mapping[str, Target] = {
    "batches": _within_bounds(batches),
    "compression": _within_bounds(compression),
    "ledger": ledger,
    "connection": _within_bounds(connection, reserved=LARGEST_RESPONSE),
    "rows": _within_bounds(rows),
    **{name: _response(name) for name in APIS},
    "Fetch": _within_bounds(_response("Fetch")),
}


def seeds(name: str) -> list[bytes]:
    """Valid input for a target, from which the fuzzer starts."""
    match name:
        case "batches":
            return [bytes(batch) for batch in _batches()]
        case "compression":
            text = b"some text that repeats itself, " * 9
            return [bytes([codec]) + compress(codec, text) for codec in Compression]
        case "ledger":
            return [b'{"v":1,"query":"q","batch":2,"digest":"d"}']
        case "connection":
            return [b"".join(answer(api, number) for number, api in enumerate(("ApiVersions", "Metadata"), 1))]
        case "rows":
            return [answer("Fetch", 1, fields=fetched(batch))[8:] for batch in _batches()]
    return [answer(name, 1)[8:]]


def _batches() -> list[bytearray]:
    keys, values = pa.array([b"k", None, b""] * 4, pa.binary()), pa.array([b"v" * 20, b"", None] * 4, pa.binary())
    headers: Any = pa.array([[], [{"key": "h", "value": b"x"}], [{"key": "", "value": None}]] * 4, HEADERS)
    made = [
        encode(keys, values, 1_700_000_000_000, headers, compression_type=codec.name.lower()) for codec in Compression
    ]
    for batch in made:
        stamp(batch, producer_id=7, epoch=1, base_sequence=0, transactional=True)
    marker = bytes([2 * 10, 0, 0, 0, 8, 0, 0, 0, 1, 1, 0])
    control = bytearray(HEADER.pack(12, 49 + len(marker), 0, 2, 0, 0x30, 0, 0, 0, 7, 1, -1, 1)) + marker
    return [*made, control, made[0] + control]
