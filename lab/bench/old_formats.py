"""Measures decoding of the formats before Kafka 0.11 (v0 and v1) beside today's (v2), on one core."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator

from kafka.record.legacy_records import LegacyRecordBatchBuilder

from lab.bench.alternating import Show, Side, alternate, silent
from lab.bench.codec import one_core, repeated
from lab.bench.figures import Comparison
from lab.bench.inputs import Shape, rows
from spark_kafka_eos.kafka.wire.batch_header import Compression
from spark_kafka_eos.kafka.wire.compression import codec_of, compress
from spark_kafka_eos.kafka.wire.decode import decode
from spark_kafka_eos.kafka.wire.encode import encode
from spark_kafka_eos.kafka.wire.header_table import header_table
from spark_kafka_eos.kafka.wire.legacy import as_record_batches
from spark_kafka_eos.kafka.wire.record_batch import RecordBatches, extents

MAGICS = (0, 1, 2)
CODECS = ("none", "gzip", "snappy", "lz4")
IN_A_BATCH = 120  # records of about 136 bytes in batch.size, 16 KB
_NOW = 1_700_000_000_000


def decode_old_formats(*, records: int = 50_000, runs: int = 5, show: Show = silent) -> Comparison:
    """Decode `records` records of 100 bytes, in batches or wrappers as a producer makes them of its default size."""
    sides = [
        Side(name=name(magic, compression), run=_decoding(records, magic, compression))
        for compression in CODECS
        for magic in reversed(MAGICS)
    ]
    with one_core():
        series = alternate(sides, records=records, runs=runs, show=show)
    return Comparison(
        title="decode message formats, seconds of a core: 100-byte values",
        series=series,
        settings={"records": records, "runs": runs, "batch_records": IN_A_BATCH},
    )


def name(magic: int, compression: str) -> str:
    """The name of a side."""
    return f"v{magic}, {compression}"


def _decoding(records: int, magic: int, compression: str) -> Callable[[], float]:
    # Pieces of a few megabytes, as fetches are: the rewriting stops when its result is several times its input.
    buffers = [b"".join(batches) for batches in _fetches(record_sets(records, magic, compression))]

    def work() -> None:
        for fetched in buffers:
            buffer = fetched if magic == 2 else as_record_batches(fetched)
            decode(
                buffer, header_table(buffer, RecordBatches(buffer, [position for position, _, _ in extents(buffer)]))
            )

    return repeated(work, 1)


def _fetches(sets: Iterator[bytes], size: int = 1 << 20) -> Iterator[list[bytes]]:
    some: list[bytes] = []
    for message_set in sets:
        some.append(message_set)
        if sum(map(len, some)) >= size:
            yield some
            some = []
    if some:
        yield some


def record_sets(
    records: int, magic: int, compression: str, *, in_a_batch: int = IN_A_BATCH, step: int = 1
) -> Iterator[bytes]:
    """What a producer sends for `records` records of the bench's input, in each of its batches; but offsets go on from
    set to set, as a broker would set them. With magic 0 and 1: messages, or a wrapper of them, whose offsets may go up
    by `step`, as those of a compacted topic that is mirrored.
    """
    first, codec = 0, codec_of(compression)
    # Half of each value is text, whatever the codec, so that all have the same records.
    for keys, values in rows(Shape(records=records, partitions=1, compression="gzip", batch_records=in_a_batch)):
        if magic == 2:
            batch = encode(keys, values, _NOW, compression_type=compression)
            struct.pack_into(">q", batch, 0, first)
            yield bytes(batch)
        else:
            base = first if codec is Compression.NONE or magic == 0 else 0
            builder = LegacyRecordBatchBuilder(magic=magic, compression_type=0, batch_size=1 << 30)
            for number, (key, value) in enumerate(zip(keys.to_pylist(), values.to_pylist(), strict=True)):
                builder.append(base + number * step, timestamp=_NOW, key=key, value=value)
            messages = bytes(builder.build())
            last = first + (len(keys) - 1) * step
            yield messages if codec is Compression.NONE else wrapper(messages, last, magic=magic, codec=codec)
        first += len(keys) * step


def wrapper(messages: bytes, offset: int, *, magic: int, codec: Compression) -> bytes:
    """The compressed message at `offset` that holds `messages`."""
    value = compress(codec, messages)
    timestamp = struct.pack(">q", _NOW) if magic else b""
    body = struct.pack(">bb", magic, codec) + timestamp + struct.pack(">ii", -1, len(value)) + value
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body
