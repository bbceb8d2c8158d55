"""Message sets, the format before Kafka 0.11 (magic 0 and 1), rewritten as record batches v2.

    MessageSet: { offset int64, size int32, message }
    message: crc uint32 (CRC-32 of what follows), magic int8, attributes int8, timestamp int64 (only magic 1),
             keyLength int32, key, valueLength int32, value

In attributes, bits 0-2 are the compression type and bit 3 is the timestamp type. The value of a compressed message, the
wrapper, is a message set. Its offset is the last one inside. The offsets inside are absolute with magic 0 and relative
to the first one with magic 1 (KIP-31). A wrapper with LogAppendTime sets the timestamp of all that it holds (KIP-32).
Compaction leaves holes in both.

Since Kafka 4.0, no client or broker writes this format or converts to it (KIP-724). But brokers return what is stored,
so topics that are older than Kafka 0.11, or compacted topics, can begin with it. A fetched buffer is rewritten whole,
so that everything else knows one format: a wrapper becomes a record batch, and so do messages in sequence.

Source: KIP-31, KIP-32; Kafka documentation, "Old Message Format"; Kafka's AbstractLegacyRecordBatch for the LZ4 frames.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_kafka_eos.errors import CorruptRecordBatch
from spark_kafka_eos.model import CODEC, LOG_APPEND_TIME, NO_TIMESTAMP, Compression
from spark_kafka_eos.wire.columns import Int64s, cut
from spark_kafka_eos.wire.compression import Decompressor
from spark_kafka_eos.wire.encode import encode
from spark_kafka_eos.wire.record_batch import LENGTH_END, MAGIC, MAGIC_AT, Bytes

_ENTRY = np.dtype(
    [("offset", ">i8"), ("size", ">i4"), ("crc", ">u4"), ("magic", ">i1"), ("attributes", ">i1"), ("timestamp", ">i8")]
)
_SIZE = struct.Struct(">i")
_LENGTH = np.dtype(">i4")
_CRC_END = LENGTH_END + 4  # the CRC covers a message from here
_BODY = (MAGIC_AT + 2, MAGIC_AT + 2 + 8)  # by magic: where the key's length is
_SMALLEST = _BODY[0] + 4 + 4 - LENGTH_END  # the size of a message with neither key nor value
_NO_TIMESTAMP = -1  # the timestamp of a message with magic 0, as in Kafka's consumer
_MAX_BYTES = 256 << 20  # of a wrapper, decompressed
_EXPANSION, _AT_LEAST = 4, 1 << 20


class _Messages(NamedTuple):
    """Columns of messages, at least one."""

    offset: Int64s
    timestamp: Int64s
    key: pa.BinaryArray
    value: pa.BinaryArray


def as_record_batches(buffer: Bytes, *, max_bytes: int = _MAX_BYTES) -> bytearray:
    """The messages of a fetched buffer as uncompressed record batches v2, and the record batches v2 among them.

    Stops, as a fetch does, before a truncated message, and when the result is several times as large as the buffer:
    the rest is to be fetched again. Timestamps and offsets are those that Kafka's consumer gives; a message without
    timestamp has -1, and its batch the attribute `model.NO_TIMESTAMP`. Raises CorruptRecordBatch, which names the
    offset, for a wrong CRC, a compression type or an order of offsets that the format does not have, and for a wrapper
    that decompresses to more than `max_bytes`.
    """
    out, enough = bytearray(), max(_EXPANSION * len(buffer), _AT_LEAST)
    data, decompressor = np.frombuffer(buffer, np.uint8), Decompressor()
    at, _ = _positions(data)
    entries = _entries(data, at)
    for run in _runs(entries):
        some, entry = at[run], entries[run]
        if entry["magic"][0] == MAGIC:
            start = int(some[0])
            out += data[start : start + int(entry["size"][0]) + LENGTH_END].tobytes()
        elif entry["attributes"][0] & CODEC:
            out += _unwrapped(data, some, entry, decompressor, max_bytes)
        else:
            out += _batch(_messages(data, some, entry), entry[0])
        if len(out) >= enough:
            break
    return out


def _positions(data: NDArray[np.uint8]) -> tuple[Int64s, int]:
    """Where each whole message or record batch begins, and where the last one ends."""
    view, size = data.data, len(data)
    at, found = 0, [0]
    while size - at >= LENGTH_END + _SMALLEST:
        (length,) = _SIZE.unpack_from(view, at + LENGTH_END - _SIZE.size)
        if length < _SMALLEST:
            raise CorruptRecordBatch(f"a message at byte {at} of its message set declares a size of {length}")
        at += length + LENGTH_END
        if at > size:
            break
        found.append(at)
    return np.array(found[:-1], np.int64), found[-1]


def _entries(data: NDArray[np.uint8], at: Int64s) -> NDArray[np.void]:
    """The fields before the key of each message at `at`; the timestamp is one only if the magic is 1."""
    if not at.size:
        return np.zeros(0, _ENTRY)
    if int(at[-1]) + _ENTRY.itemsize > len(data):
        data = np.append(data, np.zeros(_ENTRY.itemsize, np.uint8))
    every: NDArray[np.void] = np.ndarray((len(data) - _ENTRY.itemsize + 1,), _ENTRY, data, strides=(1,))
    return every[at]


def _runs(entries: NDArray[np.void]) -> Iterator[slice]:
    """The rows of `entries` that make one record batch each: a wrapper, a record batch, or messages alike.

    Messages with LogAppendTime are alike if their timestamps are equal, because a record batch has only one.
    """
    if not len(entries):
        return
    known = np.isin(entries["magic"], (0, 1, MAGIC))
    if not known.all():
        bad = entries[~known][0]
        raise CorruptRecordBatch(f"unknown magic {bad['magic']} at offset {bad['offset']}")
    alone = (entries["magic"] == MAGIC) | (entries["attributes"] & CODEC != 0)
    by_broker = (entries["magic"] == 1) & (entries["attributes"] & LOG_APPEND_TIME != 0)
    when = np.where(by_broker, entries["timestamp"], _NO_TIMESTAMP)
    changes = alone[1:] | alone[:-1]
    # The last offset of a record batch has 31 bits, relative to the first.
    for field in (entries["magic"], by_broker, when, entries["offset"] >> 31):
        changes |= field[1:] != field[:-1]
    edges = [0, *(np.flatnonzero(changes) + 1).tolist(), len(entries)]
    yield from (slice(first, behind) for first, behind in pairwise(edges))


def _messages(data: NDArray[np.uint8], at: Int64s, entry: NDArray[np.void]) -> _Messages:
    """The messages at `at`, all of the same magic and not compressed; `entry` are their fields."""
    magic, end = int(entry["magic"][0]), at + entry["size"] + LENGTH_END
    _verify_crcs(data, at, end, entry)
    key_length, key_at = _length(data, at + _BODY[magic], end)
    value_length, value_at = _length(data, key_at + np.maximum(key_length, 0), end)
    if (value_at + np.maximum(value_length, 0) != end).any():
        raise CorruptRecordBatch("the key and the value of a message do not fill it exactly")
    offset = entry["offset"].astype(np.int64)
    if (np.diff(offset) <= 0).any() or offset[0] < 0 or offset[-1] - offset[0] >= 1 << 31:
        raise CorruptRecordBatch(f"offsets of messages do not ascend after offset {offset[0]}")
    timestamp = entry["timestamp"].astype(np.int64) if magic else np.full(len(at), _NO_TIMESTAMP)
    return _Messages(offset, timestamp, cut(data, key_at, key_length), cut(data, value_at, value_length))


def _verify_crcs(data: NDArray[np.uint8], at: Int64s, end: Int64s, entry: NDArray[np.void]) -> None:
    view = data.data
    extents = zip((at + _CRC_END).tolist(), end.tolist(), strict=True)
    crcs = np.fromiter((zlib.crc32(view[start:stop]) for start, stop in extents), np.int64, len(at))
    wrong = np.flatnonzero(crcs != entry["crc"])
    if wrong.size:
        bad = entry[wrong[0]]
        raise CorruptRecordBatch(
            f"the message at offset {bad['offset']} has CRC {crcs[wrong[0]]:#010x}, but it carries {bad['crc']:#010x}",
            action="It was corrupted on the network or on the broker's disk; reading it again may help.",
        )


def _length(data: NDArray[np.uint8], at: Int64s, end: Int64s) -> tuple[Int64s, Int64s]:
    """The lengths at `at`, -1 for null, and where the bytes begin. They must lie before `end`."""
    begin = at + _LENGTH.itemsize
    if (begin > end).any():
        raise CorruptRecordBatch("a message ends within a length")
    every: NDArray[np.int32] = np.ndarray((len(data) - _LENGTH.itemsize + 1,), _LENGTH, data, strides=(1,))
    length = every[at].astype(np.int64)
    if int(length.min()) < -1 or (begin + length > end).any():
        raise CorruptRecordBatch("a key or value exceeds the end of its message")
    return length, begin


def _unwrapped(
    data: NDArray[np.uint8], at: Int64s, entry: NDArray[np.void], decompressor: Decompressor, max_bytes: int
) -> bytearray:
    """The record batch for the wrapper at `at`; `entry` are its fields."""
    magic, last = int(entry["magic"][0]), int(entry["offset"][0])
    try:
        (value,) = _messages(data, at, entry).value.to_pylist()
        payload = _decompressed(value, int(entry["attributes"][0] & CODEC), magic, decompressor, max_bytes)
        inner_at, end = _positions(payload)
        if end != len(payload):
            raise CorruptRecordBatch("the messages in it do not fill it exactly")
        if not inner_at.size:
            raise CorruptRecordBatch("it holds no message")
        inner = _entries(payload, inner_at)
        if (inner["magic"] != magic).any() or (inner["attributes"] & CODEC).any():
            raise CorruptRecordBatch("it holds messages of another format, or compressed ones")
        messages = _messages(payload, inner_at, inner)
        if magic:
            messages = messages._replace(offset=messages.offset + (last - messages.offset[-1]))
        if messages.offset[0] < 0 or messages.offset[-1] != last:
            raise CorruptRecordBatch(f"its offsets end at {messages.offset[-1]}")
        return _batch(messages, entry[0])
    except CorruptRecordBatch as error:
        raise CorruptRecordBatch(
            f"the compressed message at offset {last}: {error.what}", action=error.action
        ) from error


def _decompressed(
    value: bytes | None, code: int, magic: int, decompressor: Decompressor, max_bytes: int
) -> NDArray[np.uint8]:
    """The message set that is the value of a wrapper."""
    if value is None:
        raise CorruptRecordBatch("it has no value")
    if code == Compression.LZ4 and not magic:
        value = _with_lz4_checksum(value)
    elif code > Compression.LZ4:
        raise CorruptRecordBatch(f"its compression type {code} is none of the old format")
    return np.frombuffer(decompressor.decompress(code, value, limit=max_bytes), np.uint8)


def _batch(messages: _Messages, entry: np.void) -> bytearray:
    """One record batch of `messages`; `entry` are the fields of their wrapper, or of one of them."""
    attributes, timestamps = 0, messages.timestamp
    if entry["magic"] == 0:
        attributes = NO_TIMESTAMP
    elif entry["attributes"] & LOG_APPEND_TIME:
        attributes, timestamps = LOG_APPEND_TIME, np.full(len(timestamps), int(entry["timestamp"]))
    return encode(messages.key, messages.value, timestamps, offsets=messages.offset, attributes=attributes)


# -- LZ4 with magic 0: the Java client computed the checksum of the frame's header from the wrong bytes (KAFKA-3160).

_FRAME_MAGIC_BYTES = 4
_CONTENT_SIZE = 1 << 3  # this bit of the first byte of the frame's descriptor: 8 bytes of size follow
_PRIMES = 2654435761, 2246822519, 3266489917, 668265263, 374761393


def _with_lz4_checksum(frame: bytes) -> bytes:
    """The LZ4 frame with the checksum that its header should have."""
    if len(frame) < _FRAME_MAGIC_BYTES + 3:
        raise CorruptRecordBatch("it is too short for an LZ4 frame")
    end = _FRAME_MAGIC_BYTES + (10 if frame[_FRAME_MAGIC_BYTES] & _CONTENT_SIZE else 2)
    checksum = _xxh32(frame[_FRAME_MAGIC_BYTES:end]) >> 8 & 0xFF
    return frame[:end] + bytes([checksum]) + frame[end + 1 :]


def _xxh32(data: bytes) -> int:
    """XXH32 with seed 0 of fewer than 16 bytes. Source: the xxHash specification."""
    mask, (prime1, prime2, prime3, prime4, prime5) = 0xFFFFFFFF, _PRIMES

    def rotated(value: int, by: int) -> int:
        value &= mask
        return (value << by | value >> 32 - by) & mask

    hashed, lanes = prime5 + len(data), len(data) // 4
    for (lane,) in struct.iter_unpack("<I", data[: 4 * lanes]):
        hashed = rotated(hashed + lane * prime3, 17) * prime4
    for byte in data[4 * lanes :]:
        hashed = rotated(hashed + byte * prime5, 11) * prime1
    hashed &= mask
    hashed = (hashed ^ hashed >> 15) * prime2 & mask
    hashed = (hashed ^ hashed >> 13) * prime3 & mask
    return hashed ^ hashed >> 16
