"""Messages of the format before Kafka 0.11, which no client writes any more (KIP-724), byte by byte."""

from __future__ import annotations

import struct
import zlib

from spark_kafka_eos.kafka.wire.batch_header import Compression
from spark_kafka_eos.kafka.wire.compression import compress

T0 = 1_450_000_000_000
BY_BROKER = 0x08  # attribute: LogAppendTime


def message(
    offset: int,
    value: bytes | None = b"value",
    *,
    magic: int,
    key: bytes | None = None,
    timestamp: int = T0,
    attributes: int = 0,
) -> bytes:
    """A message at `offset`; `timestamp` in milliseconds, which magic 0 does not have."""
    body = struct.pack(">bb", magic, attributes) + (struct.pack(">q", timestamp) if magic else b"")
    for part in (key, value):
        body += struct.pack(">i", -1 if part is None else len(part)) + (part or b"")
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def wrapper(
    last: int, inside: bytes, *, magic: int, codec: Compression, attributes: int = 0, timestamp: int = T0
) -> bytes:
    """The compressed message at offset `last` that holds the messages `inside`. With magic 0, the header of an LZ4
    frame has a wrong checksum, as the Java client gave it (KAFKA-3160).
    """
    value = compress(codec, inside)
    if codec is Compression.LZ4 and magic == 0:
        value = value[:6] + bytes([value[6] ^ 0xFF]) + value[7:]
    return message(last, value, magic=magic, attributes=codec | attributes, timestamp=timestamp)
