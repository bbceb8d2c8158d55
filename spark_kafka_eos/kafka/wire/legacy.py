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
so that everything else knows one format. What wrappers hold is joined, a megabyte at a time, and becomes one record
batch with the messages around it: a wrapper has some hundred messages, too few for array operations of its own.

Source: KIP-31, KIP-32; Kafka documentation, "Old Message Format"; Kafka's AbstractLegacyRecordBatch for the LZ4 frames.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_kafka_eos.kafka.errors import CorruptRecordBatch
from spark_kafka_eos.kafka.wire.batch_header import CODEC, LOG_APPEND_TIME, NO_TIMESTAMP, OWN_TIMESTAMPS, Compression
from spark_kafka_eos.kafka.wire.columns import Int64s, cut
from spark_kafka_eos.kafka.wire.compression import Decompressor
from spark_kafka_eos.kafka.wire.encode import encode
from spark_kafka_eos.kafka.wire.record_batch import LENGTH_END, MAGIC, MAGIC_AT, Bytes

_ENTRY = np.dtype(
    [("offset", ">i8"), ("size", ">i4"), ("crc", ">u4"), ("magic", ">i1"), ("attributes", ">i1"), ("timestamp", ">i8")]
)
_SIZE = struct.Struct(">i")
_SIZE_AT = LENGTH_END - _SIZE.size
_LENGTH = np.dtype(">i4")
_CRC_END = LENGTH_END + 4  # the CRC covers a message from here
_BODY = np.array([MAGIC_AT + 2, MAGIC_AT + 2 + 8])  # by magic: where the key's length is
_SMALLEST = int(_BODY[0]) + 4 + 4 - LENGTH_END  # the size of a message with neither key nor value
_NO_TIMESTAMP = -1  # the timestamp of a message with magic 0, as in Kafka's consumer
_MAX_BYTES = 256 << 20  # of a wrapper, decompressed
_EXPANSION, _AT_LEAST = 4, 1 << 20
_STEP_BYTES = 1 << 20  # of messages that are rewritten at once, so that their columns take little memory
# After how many messages of one size it is looked how many more there are, and how many at most.
_ALIKE, _WINDOW = 16, 4096


class _Entries(NamedTuple):
    """Entries of a message set: where they begin and end in a buffer, and their fields before the key."""

    at: Int64s
    end: Int64s
    field: NDArray[np.void]

    def rows(self, some: slice) -> _Entries:
        return _Entries(self.at[some], self.end[some], self.field[some])

    @property
    def wraps(self) -> NDArray[np.bool_]:
        return self.field["attributes"] & CODEC != 0  # type: ignore[no-any-return]


class _Piece(NamedTuple):
    """The messages that some entries are, or that one wrapper holds; `ends`: of each entry, where they end in it."""

    data: NDArray[np.uint8]
    ends: Int64s


class _Messages(NamedTuple):
    """Columns of messages, at least one; `attributes`: of the record batch for each."""

    offset: Int64s
    timestamp: Int64s
    attributes: Int64s
    key: pa.BinaryArray
    value: pa.BinaryArray


def as_record_batches(buffer: Bytes, *, max_bytes: int = _MAX_BYTES) -> bytearray:
    """The messages of a fetched buffer as uncompressed record batches v2, and the record batches v2 among them.

    Stops, as a fetch does, before a truncated message, and when the result is several times as large as the buffer:
    the rest is to be fetched again. Timestamps and offsets are those that Kafka's consumer gives. Attributes of the
    record batches that no broker sets: `model.NO_TIMESTAMP`, with which the timestamps are -1, and
    `model.OWN_TIMESTAMPS`. Raises CorruptRecordBatch, which names the offset, for a wrong CRC, a compression type or an
    order of offsets that the format does not have, and for a wrapper that decompresses to more than `max_bytes`.
    """
    out, enough = bytearray(), max(_EXPANSION * len(buffer), _AT_LEAST)
    data, decompressor = np.frombuffer(buffer, np.uint8), Decompressor()
    entries = _entries(data)
    modern = entries.field["magic"] == MAGIC
    for run in _runs(modern):
        some = entries.rows(run)
        if modern[run.start]:
            out += data[some.at[0] : some.end[-1]].data
            continue
        for part, pieces in _in_steps(some, _pieces(data, some, decompressor, max_bytes)):
            for batch in _rewritten(part, pieces):
                out += batch
            if len(out) >= enough:
                return out
    return out


def _entries(data: NDArray[np.uint8]) -> _Entries:
    """The whole messages and record batches in `data`; the timestamp is one only if the magic is 1."""
    edges = _edges(data)
    at, end = edges[:-1], edges[1:]
    if not at.size or int(at[-1]) + _ENTRY.itemsize > len(data):  # a message can be shorter than that
        data = np.append(data, np.zeros(_ENTRY.itemsize, np.uint8))
    every: NDArray[np.void] = np.ndarray((len(data) - _ENTRY.itemsize + 1,), _ENTRY, data, strides=(1,))
    field = every[at]
    supported = np.isin(field["magic"], (0, 1, MAGIC))
    if not supported.all():
        bad = field[~supported][0]
        raise CorruptRecordBatch(f"unknown magic {bad['magic']} at offset {bad['offset']}")
    return _Entries(at, end, field)


def _edges(data: NDArray[np.uint8]) -> Int64s:
    """Where each whole message or record batch begins, and where the last one ends. Each size leads to the next one;
    after some of the same size, the others of that size are found at once.
    """
    edges: list[list[int] | Int64s] = []
    single: list[int] = []
    at = alike = before = 0
    view, unpack, last = data.data, _SIZE.unpack_from, len(data) - LENGTH_END - _SMALLEST
    while at <= last:
        (size,) = unpack(view, at + _SIZE_AT)
        if size < _SMALLEST:
            raise CorruptRecordBatch(f"a message at byte {at} of its message set declares a size of {size}")
        step = size + LENGTH_END
        if at + step > len(data):
            break
        alike = alike + 1 if size == before else 0
        before = size
        if alike < _ALIKE:
            single.append(at)
            at += step
            continue
        run = _alike(data, at, step)
        edges += [single, np.arange(at, at + run * step, step)]
        at, single, alike = at + run * step, [], 0
    return np.concatenate([*edges, single, [at]]).astype(np.int64)


def _alike(data: NDArray[np.uint8], at: int, step: int) -> int:
    """How many whole messages from `at` on have the size of the first one, at most a window of them."""
    rows = min((len(data) - at) // step, _WINDOW)
    sizes: NDArray[np.int32] = np.ndarray((rows,), _LENGTH, data, at + _SIZE_AT, (step,))
    other = sizes != sizes[0]
    return int(other.argmax()) if other.any() else rows


def _runs(*columns: NDArray[Any]) -> Iterator[slice]:
    """The rows over which no column changes."""
    rows = len(columns[0])
    if not rows:
        return
    changes = np.zeros(rows - 1, np.bool_)
    for column in columns:
        changes |= column[1:] != column[:-1]
    edges = [0, *(np.flatnonzero(changes) + 1).tolist(), rows]
    yield from (slice(first, behind) for first, behind in pairwise(edges))


# -- from entries to messages


def _in_steps(entries: _Entries, pieces: Iterable[_Piece]) -> Iterator[tuple[_Entries, list[_Piece]]]:
    """The pieces, about as many as have `_STEP_BYTES`, and the entries that they are of."""
    some: list[_Piece] = []
    first = behind = size = 0
    for piece in pieces:
        some.append(piece)
        behind, size = behind + len(piece.ends), size + len(piece.data)
        if size >= _STEP_BYTES:
            yield entries.rows(slice(first, behind)), some
            some, first, size = [], behind, 0
    if some:
        yield entries.rows(slice(first, behind)), some


def _pieces(data: NDArray[np.uint8], entries: _Entries, decompressor: Decompressor, max_bytes: int) -> Iterator[_Piece]:
    wraps = entries.wraps
    for run in _runs(wraps):
        some = entries.rows(run)
        if wraps[run.start]:
            yield from _unwrapped(data, some, decompressor, max_bytes)
            continue
        while some.at.size:
            count = max(1, int(np.searchsorted(some.end, some.at[0] + _STEP_BYTES, side="right")))
            end = some.end[:count]
            yield _Piece(data[some.at[0] : end[-1]], end - some.at[0])
            some = some.rows(slice(count, None))


def _unwrapped(
    data: NDArray[np.uint8], wrappers: _Entries, decompressor: Decompressor, max_bytes: int
) -> Iterator[_Piece]:
    """What each of the wrappers holds."""
    _, _, value_at, value_length = _key_and_value(data, wrappers)
    columns = (value_at, value_length, wrappers.field["attributes"] & CODEC, wrappers.field["magic"])
    for row, (at, length, code, magic) in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
        with _named(wrappers, row):
            if length < 0:
                raise CorruptRecordBatch("it has no value")
            value: Bytes = data.data[at : at + length]
            if code == Compression.LZ4 and not magic:
                value = _with_lz4_checksum(bytes(value))
            elif code > Compression.LZ4:
                raise CorruptRecordBatch(f"its compression type {code} is none of the old format")
            inside = np.frombuffer(decompressor.decompress(code, value, limit=max_bytes), np.uint8)
            if not inside.size:
                raise CorruptRecordBatch("it holds no message")
        yield _Piece(inside, np.array([len(inside)]))


@contextmanager
def _named(entries: _Entries, row: int) -> Iterator[None]:
    """Add the offset of the wrapper in this row to an error about what it holds."""
    try:
        yield
    except CorruptRecordBatch as error:
        if not entries.wraps[row]:
            raise
        offset = entries.field["offset"][row]
        raise CorruptRecordBatch(
            f"the compressed message at offset {offset}: {error.what}", action=error.action
        ) from error


def _rewritten(entries: _Entries, pieces: list[_Piece]) -> Iterator[bytearray]:
    """Record batches of the messages in `pieces`."""
    try:
        messages = _messages(entries, pieces)
    except CorruptRecordBatch:
        first = 0
        for piece in pieces:  # one by one, to find out which
            some = entries.rows(slice(first, first := first + len(piece.ends)))
            with _named(some, 0):
                _messages(some, [piece])
        raise
    # The last offset of a record batch has 31 bits, relative to the first.
    for run in _runs(messages.attributes, messages.offset >> 31):
        offset, timestamp, attributes, key, value = (column[run] for column in messages)
        yield encode(key, value, timestamp, offsets=offset, attributes=int(attributes[0]))


def _messages(entries: _Entries, pieces: list[_Piece]) -> _Messages:
    """The messages in `pieces`, with the offsets and timestamps that their wrappers give them."""
    data = pieces[0].data if len(pieces) == 1 else np.concatenate([piece.data for piece in pieces])
    size, count = [[len(column) for column in columns] for columns in zip(*pieces, strict=True)]
    ends = np.concatenate([piece.ends for piece in pieces]) + np.repeat(np.cumsum(size) - size, count)
    wraps, magic = entries.wraps, entries.field["magic"]
    inner = _entries(data) if wraps.any() else _Entries(ends - (entries.end - entries.at), ends, entries.field)
    # Of each entry its last message; of each message its entry.
    last = np.minimum(np.searchsorted(inner.end, ends), max(len(inner.end) - 1, 0))
    if not inner.end.size or (inner.end[last] != ends).any():
        raise CorruptRecordBatch("the messages in it do not fill it exactly")
    entry = np.repeat(np.arange(len(last)), np.diff(last, prepend=-1))
    own = inner.field
    if (own["magic"] != magic[entry]).any() or (inner.wraps & wraps[entry]).any():
        raise CorruptRecordBatch("it holds messages of another format, or compressed ones")
    key_at, key_length, value_at, value_length = _key_and_value(data, inner)
    offset, outer_offset = own["offset"].astype(np.int64), entries.field["offset"].astype(np.int64)
    offset += np.where(wraps & (magic == 1), outer_offset - offset[last], 0)[entry]
    wrong = np.flatnonzero(offset[last] != outer_offset)
    if wrong.size:
        raise CorruptRecordBatch(f"its offsets end at {offset[last[wrong[0]]]}")
    if offset[0] < 0 or (np.diff(offset) <= 0).any():
        raise CorruptRecordBatch(f"offsets of messages do not ascend after offset {offset[0]}")
    by_broker = (magic == 1) & (entries.field["attributes"] & LOG_APPEND_TIME != 0)
    timestamp = np.where(by_broker[entry], entries.field["timestamp"][entry], own["timestamp"]).astype(np.int64)
    timestamp[own["magic"] == 0] = _NO_TIMESTAMP
    attributes = np.where(magic == 0, NO_TIMESTAMP, np.where(by_broker, LOG_APPEND_TIME | OWN_TIMESTAMPS, 0))[entry]
    return _Messages(offset, timestamp, attributes, cut(data, key_at, key_length), cut(data, value_at, value_length))


# -- the fields of messages


def _key_and_value(data: NDArray[np.uint8], messages: _Entries) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """Where each message's key and value begin, and their lengths, -1 for null: key, its length, value, its length."""
    _verify_crcs(data, messages)
    key_length, key_at = _length(data, messages, messages.at + _BODY[messages.field["magic"]])
    value_length, value_at = _length(data, messages, key_at + np.maximum(key_length, 0))
    beyond = value_at + np.maximum(value_length, 0) != messages.end
    _refuse(messages, beyond, "its key and value do not fill it exactly")
    return key_at, key_length, value_at, value_length


def _length(data: NDArray[np.uint8], messages: _Entries, at: Int64s) -> tuple[Int64s, Int64s]:
    """The lengths at `at`, -1 for null, and where the bytes begin. They must lie within the messages."""
    begin = at + _LENGTH.itemsize
    _refuse(messages, begin > messages.end, "it ends within a length")
    every: NDArray[np.int32] = np.ndarray((len(data) - _LENGTH.itemsize + 1,), _LENGTH, data, strides=(1,))
    length = every[at].astype(np.int64)
    _refuse(messages, (length < -1) | (begin + length > messages.end), "its key or value exceeds its end")
    return length, begin


def _refuse(messages: _Entries, wrong: NDArray[np.bool_], what: str) -> None:
    """Raise CorruptRecordBatch for the first of the messages that are wrong, if there is one."""
    if wrong.any():
        raise CorruptRecordBatch(f"the message at offset {messages.field['offset'][wrong.argmax()]}: {what}")


def _verify_crcs(data: NDArray[np.uint8], messages: _Entries) -> None:
    # The only loop over all messages, so of built-in functions only.
    extents = map(slice, (messages.at + _CRC_END).tolist(), messages.end.tolist())
    crcs = np.fromiter(map(zlib.crc32, map(data.data.__getitem__, extents)), np.int64, len(messages.at))
    wrong = np.flatnonzero(crcs != messages.field["crc"])
    if wrong.size:
        bad = messages.field[wrong[0]]
        raise CorruptRecordBatch(
            f"the message at offset {bad['offset']} has CRC {crcs[wrong[0]]:#010x}, but it carries {bad['crc']:#010x}",
            action="It was corrupted on the network or on the broker's disk; reading it again may help.",
        )


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
