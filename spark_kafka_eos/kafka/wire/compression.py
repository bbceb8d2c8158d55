"""The five compression types of a record batch, compatible with the Java client and librdkafka.

gzip, lz4 and zstd use their usual stream formats. Specific to Kafka:

- snappy: the Java client writes snappy-java's framing ("xerial": a 16-byte header, then blocks, each preceded by its
  32-bit length); librdkafka writes a bare snappy block. This module reads both and writes the framing.
- lz4: the Java client rejects frames with dependent blocks, as pyarrow creates them. So this module builds the frame
  itself, from independent 64 KiB blocks.

Source: KIP-110 (zstd), KIP-57 (lz4 framing), LZ4 frame format 1.6.1, snappy-java's SnappyOutputStream.
"""

from __future__ import annotations

import gzip
import struct
from collections.abc import Mapping

import pyarrow as pa

from spark_kafka_eos.kafka.errors import ConfigurationError, CorruptRecordBatch
from spark_kafka_eos.kafka.wire.batch_header import Compression
from spark_kafka_eos.kafka.wire.unsigned import read_unsigned

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)  # version, oldest version that can read it
_XERIAL_BLOCK = 32 * 1024
_SIZE_BYTES = 5  # at most, of a snappy block's size, which has 32 bits
# Magic; version 1, independent blocks, no checksums, no size; blocks of at most 64 KiB; xxHash of those two bytes.
_LZ4_HEADER = b"\x04\x22\x4d\x18" + b"\x60\x40" + b"\x82"
_LZ4_END = b"\0\0\0\0"
_LZ4_BLOCK = 64 * 1024
_LZ4_STORED = 0x8000_0000  # this bit of a block's length: not compressed
_CODECS: Mapping[int, str] = {int(codec): codec.name.lower() for codec in Compression}
_READ_STEP = 1 << 20
_EXPECTED = 8  # how much larger data may be decompressed to be read at once


def compress(codec: Compression, data: bytes | bytearray | memoryview) -> bytes:
    """`data` compressed by `codec`."""
    match codec:
        case Compression.NONE:
            return bytes(data)
        case Compression.GZIP:
            return gzip.compress(data, compresslevel=6, mtime=0)
        case Compression.SNAPPY:
            return _compress_snappy(data)
        case Compression.LZ4:
            return _compress_lz4(data)
        case Compression.ZSTD:
            # Level 3 is Kafka's default (and zstd's); pyarrow's own would be 1.
            return pa.Codec("zstd", compression_level=3).compress(data, asbytes=True)  # type: ignore[no-any-return]


def codec_of(name: str) -> Compression:
    """The codec none, gzip, snappy, lz4 or zstd. Raises ConfigurationError for an unknown name."""
    try:
        return Compression[name.upper()]
    except KeyError:
        names = ", ".join(codec.name.lower() for codec in Compression)
        raise ConfigurationError("compression", f"unknown codec {name!r}; use one of {names}") from None


def decompress(code: int, data: bytes | bytearray | memoryview, *, limit: int) -> bytes | memoryview:
    """`Decompressor.decompress`, once."""
    return Decompressor().decompress(code, data, limit=limit)


class Decompressor:
    """Decompresses the record batches of one buffer. Not for several threads.

    A zstd or lz4 stream takes much longer to set up than a small batch takes to decompress. So there is one stream of
    each codec, which is given batch after batch.
    """

    def __init__(self) -> None:
        self._streams: dict[str, tuple[_Input, pa.CompressedInputStream]] = {}

    def decompress(self, code: int, data: bytes | bytearray | memoryview, *, limit: int) -> bytes | memoryview:
        """`data` decompressed by the codec of a record batch's attributes; at most `limit` bytes.

        Raises CorruptRecordBatch for an unknown code, for data that is not of that codec, truncated or followed by
        other bytes, and for more than `limit` bytes (so that memory stays limited).
        """
        if code == Compression.NONE:
            return bytes(data)
        codec = _CODECS.get(code)
        if codec is None:
            raise CorruptRecordBatch(f"unknown compression code {code}")
        try:
            if code == Compression.SNAPPY:
                return _decompress_snappy(memoryview(data), limit)
            return self._stream(codec, memoryview(data), limit)
        except (OSError, pa.ArrowInvalid, struct.error) as error:
            raise CorruptRecordBatch(f"cannot decompress {codec} data: {error}") from error

    def _stream(self, codec: str, data: memoryview, limit: int) -> memoryview:
        # Taken out: after an error nobody knows what the stream still contains.
        source, stream = self._streams.pop(codec) if codec in self._streams else _open(codec)
        source.put(data)
        step = min(_READ_STEP, _EXPECTED * len(data) + 1)
        # Not `read`: if that fails, it never frees its buffer (pyarrow 26).
        out: bytearray | pa.Buffer = stream.read_buffer(min(step, limit + 1))
        if not source.ended:
            out = bytearray(out)  # grows in place: joining parts would take the memory twice
        while not source.ended and len(out) <= limit:
            part = stream.read_buffer(min(_READ_STEP, limit - len(out) + 1))
            if not (part.size or source.ended):
                raise CorruptRecordBatch(f"cannot decompress {codec} data: the stream ended before its input")
            out += part
        if len(out) > limit:
            raise _too_large(limit)
        self._streams[codec] = source, stream
        return memoryview(out).cast("B")  # of a buffer of Arrow, bytes would be signed


class _Input:
    """Compressed bytes, as a file that can be filled again. A stream looks for more than it was given only after it has
    decompressed all of that: then the file has `ended`.
    """

    closed = False

    def __init__(self) -> None:
        self._unread, self.ended = memoryview(b""), True

    def put(self, data: memoryview) -> None:
        self._unread, self.ended = data, False

    def read(self, size: int) -> memoryview:
        part, self._unread = self._unread[:size], self._unread[size:]
        self.ended = not part
        return part

    def close(self) -> None:
        self.put(memoryview(b""))


def _open(codec: str) -> tuple[_Input, pa.CompressedInputStream]:
    source = _Input()
    return source, pa.CompressedInputStream(pa.PythonFile(source, "r"), codec)


def _compress_snappy(data: bytes | bytearray | memoryview) -> bytes:
    codec, view = pa.Codec("snappy"), memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK):
        block = codec.compress(view[start : start + _XERIAL_BLOCK], asbytes=True)
        parts += (struct.pack(">i", len(block)), block)
    return b"".join(parts)


def _decompress_snappy(data: memoryview, limit: int) -> bytes:
    if data[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _decompress_snappy_block(data, limit, limit)
    parts: list[bytes] = []
    room, position = limit, len(_XERIAL_HEADER)
    while position < len(data):
        (length,) = struct.unpack_from(">i", data, position)
        position += 4
        if not 0 < length <= len(data) - position:
            raise CorruptRecordBatch(f"a snappy block has {length} bytes, but only {len(data) - position} are left")
        parts.append(_decompress_snappy_block(data[position : position + length], room, limit))
        room -= len(parts[-1])
        position += length
    return b"".join(parts)


def _decompress_snappy_block(block: memoryview, room: int, limit: int) -> bytes:
    """One block, if there is `room` for it; `limit` is the initial room."""
    # A block begins with its decompressed size as an unsigned varint, which pyarrow needs as an argument.
    try:
        size, _ = read_unsigned(block, 0, _SIZE_BYTES)
    except (IndexError, ValueError):
        raise CorruptRecordBatch("a snappy block has no size") from None
    if size > room:
        raise _too_large(limit)
    # A byte of a block yields at most 64 bytes: reject a larger size before memory is allocated for it.
    if size > 64 * len(block):
        raise CorruptRecordBatch(f"a snappy block of {len(block)} bytes claims to hold {size}")
    return pa.Codec("snappy").decompress(block, decompressed_size=size, asbytes=True)  # type: ignore[no-any-return]


def _compress_lz4(data: bytes | bytearray | memoryview) -> bytes:
    codec, view = pa.Codec("lz4_raw"), memoryview(data)
    parts = [_LZ4_HEADER]
    for start in range(0, len(view), _LZ4_BLOCK):
        plain = view[start : start + _LZ4_BLOCK]
        block = codec.compress(plain, asbytes=True)
        if len(block) < len(plain):
            parts += (struct.pack("<I", len(block)), block)
        else:
            parts += (struct.pack("<I", len(plain) | _LZ4_STORED), bytes(plain))
    parts.append(_LZ4_END)
    return b"".join(parts)


def _too_large(limit: int) -> CorruptRecordBatch:
    return CorruptRecordBatch(
        f"a record batch decompresses to more than {limit} bytes",
        action="If such batches are intended, increase kafka.max.partition.fetch.bytes.",
    )
