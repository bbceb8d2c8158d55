"""Record batches of a few bytes that are valid, and take much memory or time to decode: made by a hostile producer.

`python tests/unit/kafka/wire/test_poison_batches.py` prints what each of them takes with the source's limits: bytes
on the wire, memory, CPU time, rows, and why it was refused.
"""

from __future__ import annotations

import json
import re
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest

from spark_kafka_eos.errors import CorruptRecordBatch
from spark_kafka_eos.kafka.wire import single
from spark_kafka_eos.kafka.wire.batch_header import Compression
from spark_kafka_eos.kafka.wire.compression import compress
from spark_kafka_eos.kafka.wire.decode import _ROW_BYTES, decode, decode_in_parts
from spark_kafka_eos.kafka.wire.record_batch import HEADER, scan, sign
from spark_kafka_eos.kafka.wire.single import _varint as varint

MIB = 1 << 20
SOURCE_LIMIT = 256 * MIB  # reading.records
MOST_SECONDS_PER_BYTE = 1e-6  # a record of seven bytes, or three headers of two, are a microsecond's work


def batch(payload: bytes, records: int, codec: Compression = Compression.ZSTD, compressed: bytes = b"") -> bytearray:
    """A record batch of these records, as a broker would store it."""
    compressed = compressed or compress(codec, payload)
    out = bytearray(HEADER.pack(0, 49 + len(compressed), 0, 2, 0, codec, records - 1, 0, 0, -1, -1, -1, records))
    out += compressed
    sign(out)
    return out


def record(number: int, value: bytes = b"", headers: bytes = b"", header_count: int = 0) -> bytes:
    start = b"\0\0" + varint(number) + b"\1" + (varint(len(value)) + value if value else b"\1") + varint(header_count)
    return varint(len(start) + len(headers)) + start + headers


def of_headers(records: int, size: int) -> bytearray:
    """Records of as many headers of two bytes as there is room for."""
    each = (size // records - 20) // 2
    headers = b"\0\1" * each
    return batch(b"".join(record(number, b"", headers, each) for number in range(records)), records)


def of_small_records(size: int, *values: bytes) -> bytearray:
    """As many records as there is room for, with these values in turns; all offset deltas take four bytes."""
    first = 1 << 26
    count = size // len(record(first, max(values, key=len)))
    payload = b"".join(record(first + number, values[number % len(values)]) for number in range(count))
    out = batch(payload, count)
    struct.pack_into(">i", out, 23, first + count - 1)
    sign(out)
    return out


def bomb(codec: Compression, size: int) -> bytearray:
    return batch(record(0, bytes(4 * size)), 1, codec)


POISON: Mapping[str, Callable[[int], bytearray]] = {
    "10 records of many headers": lambda size: of_headers(10, min(size // 4, 4 * MIB)),
    "100 records of many headers": lambda size: of_headers(100, size - MIB),
    "1 record of many headers": lambda size: of_headers(1, size - MIB),
    "records of 10 bytes": lambda size: of_small_records(size // 4, b""),
    "records of 10 and 12 bytes": lambda size: of_small_records(size // 4, b"", b"ab"),
    "1 large value": lambda size: batch(record(0, bytes(size - MIB)), 1),
    **{f"a {codec.name.lower()} bomb": partial(bomb, codec) for codec in Compression if codec is not Compression.NONE},
    "2**31 - 1 records in 9 bytes": lambda size: batch(bytes(9), 2**31 - 1),
}


class Cost(NamedTuple):
    wire: int
    memory: int
    seconds: float
    rows: int
    refused: str


def cost(poison: bytearray, limit: int, part_bytes: int) -> Cost:
    """What decoding `poison` takes, in this process."""
    tiny = batch(record(0, b"v", b"\0\1", 1), 1)
    for _ in decode_in_parts(tiny, scan(tiny), include_headers=True):
        pass
    before, started, rows, refused = peak(), time.process_time(), 0, ""
    parts = decode_in_parts(poison, scan(poison), include_headers=True, part_bytes=part_bytes, max_bytes=limit)
    try:
        for part in parts:
            rows += part.num_rows
    except CorruptRecordBatch as error:
        refused = error.what
    return Cost(len(poison), peak() - before, time.process_time() - started, rows, refused)


def peak() -> int:
    """Not `ru_maxrss`, which a process inherits from the one that started it."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return 1024 * int(line.split()[1])


def measured(name: str, limit: int, part_bytes: int) -> Cost:
    """The same in a process of its own, because a process's peak never falls."""
    poison = POISON[name](limit)
    command = [sys.executable, __file__, str(limit), str(part_bytes)]
    return Cost(*json.loads(subprocess.run(command, input=bytes(poison), stdout=subprocess.PIPE, check=True).stdout))


REFUSED = {
    "1 record of many headers": "the record at offset 0 has .* headers, but at most 209715 are decoded",
    **{f"a {codec} bomb": "decompresses to more than" for codec in ("gzip", "snappy", "lz4", "zstd")},
    "2**31 - 1 records in 9 bytes": "declares 2147483647 records in 9 bytes",
}


@pytest.mark.parametrize("name", POISON)
def test_a_poison_batch_takes_bounded_memory_and_time_or_is_refused_by_its_offset(name: str) -> None:
    limit, part_bytes = 16 * MIB, 16 * MIB
    found = measured(name, limit, part_bytes)
    # Decompressed, then as columns; and what is decoded at once.
    assert found.memory < 2 * limit + 3 * part_bytes, found
    assert found.seconds < limit * MOST_SECONDS_PER_BYTE, found
    assert re.search(REFUSED.get(name, "^$"), found.refused), found
    assert (found.rows > 0) == (name not in REFUSED)
    assert not found.refused or found.refused.startswith("the record batch at offset 0"), found


def test_headers_of_any_number_are_skipped_where_they_are_not_read() -> None:
    many = POISON["1 record of many headers"](16 * MIB)
    with pytest.raises(CorruptRecordBatch, match=REFUSED["1 record of many headers"]):
        list(decode_in_parts(many, scan(many), include_headers=True, max_bytes=16 * MIB))
    assert (
        sum(part.num_rows for part in decode_in_parts(many, scan(many), include_headers=False, max_bytes=16 * MIB)) == 1
    )


@pytest.mark.parametrize("include_headers", [False, True])
def test_a_batch_that_is_decoded_in_pieces_has_the_same_records(include_headers: bool) -> None:
    payload = b"".join(
        record(number, b"v" * (number % 90), b"\0\1" * (number % 5), number % 5) for number in range(999)
    )
    for buffer in (batch(payload, 999), batch(payload, 999, Compression.NONE)):
        whole = decode(buffer, scan(buffer), include_headers=include_headers)
        parts = list(decode_in_parts(buffer, scan(buffer), include_headers=include_headers, part_bytes=5_000))
        assert len(parts) > 20
        assert pa.Table.from_batches(parts).equals(pa.Table.from_batches([whole]))


def test_offsets_must_ascend_also_from_piece_to_piece() -> None:
    payload = b"".join(record(number % 50) for number in range(100))
    buffer = batch(payload, 100)
    with pytest.raises(CorruptRecordBatch, match="do not ascend"):
        list(decode_in_parts(buffer, scan(buffer), part_bytes=50 * (_ROW_BYTES + 8)))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(cost(bytearray(sys.stdin.buffer.read()), int(sys.argv[1]), int(sys.argv[2]))))
    else:
        for each in POISON:
            found = measured(each, SOURCE_LIMIT, 64 * MIB)
            wire, memory, seconds, rows, refused = found
            print(
                f"{each:30}{wire:12,} B {memory / MIB:6.0f} MiB {seconds:6.2f} s {rows:11,} {refused[:60]}", flush=True
            )


def test_the_ledgers_reader_stops_at_a_number_without_an_end():
    endless = batch(b"\x80" * (MIB // 8), 1, Compression.NONE)
    with pytest.raises(CorruptRecordBatch, match="at offset 0, a number has more than 10 bytes"):
        list(single.records(endless, next(iter(scan(endless)))))
