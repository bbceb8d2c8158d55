from __future__ import annotations

import gzip
import os
import struct
from contextlib import suppress

import psutil
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_eos.errors import ConfigurationError, CorruptRecordBatch
from spark_kafka_eos.kafka.wire.batch_header import Compression
from spark_kafka_eos.kafka.wire.compression import codec_of, compress, decompress

CODECS = [codec for codec in Compression if codec is not Compression.NONE]
TEXT = b"some text that repeats itself, " * 10_000
NOISE = os.urandom(300_000)


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("data", [b"", b"x", TEXT, NOISE, TEXT[:65_536], NOISE[:65_537]])
def test_what_is_compressed_decompresses_to_the_same(codec: Compression, data: bytes) -> None:
    assert decompress(codec, compress(codec, data), limit=len(data)) == data


@pytest.mark.parametrize("codec", CODECS)
def test_repeating_data_becomes_smaller(codec: Compression) -> None:
    assert len(compress(codec, TEXT)) < len(TEXT) / 5


@pytest.mark.parametrize("codec", CODECS)
def test_decompression_stops_at_its_limit(codec: Compression) -> None:
    with pytest.raises(CorruptRecordBatch, match=f"more than {len(TEXT) - 1} bytes"):
        decompress(codec, compress(codec, TEXT), limit=len(TEXT) - 1)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("data", [TEXT, NOISE], ids=["text", "noise"])
def test_data_cut_short_is_refused(codec: Compression, data: bytes) -> None:
    with pytest.raises(CorruptRecordBatch, match=codec.name.lower()):
        decompress(codec, compress(codec, data)[:-3], limit=1 << 20)


@pytest.mark.parametrize("codec", CODECS)
def test_bytes_after_the_data_are_refused(codec: Compression) -> None:
    with pytest.raises(CorruptRecordBatch):
        decompress(codec, compress(codec, TEXT) + b"more", limit=1 << 20)


@settings(deadline=None)
@given(st.sampled_from(CODECS), st.binary(min_size=1, max_size=200))
def test_any_other_bytes_are_refused_or_decompressed(codec: Compression, data: bytes) -> None:
    with suppress(CorruptRecordBatch):
        assert len(decompress(codec, data, limit=1000)) <= 1000


def test_an_unknown_code_is_refused() -> None:
    with pytest.raises(CorruptRecordBatch, match="unknown compression code 5"):
        decompress(5, b"", limit=1)


def test_an_unknown_name_is_a_configuration_error_that_lists_the_names() -> None:
    with pytest.raises(ConfigurationError, match="none, gzip, snappy, lz4, zstd"):
        codec_of("brotli")


def test_a_bare_snappy_block_as_librdkafka_writes_it_is_read() -> None:
    assert decompress(Compression.SNAPPY, pa.Codec("snappy").compress(TEXT, asbytes=True), limit=len(TEXT)) == TEXT


def test_snappy_is_framed_as_snappy_java_does_it() -> None:
    data = compress(Compression.SNAPPY, NOISE)
    assert data.startswith(b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1))
    position, blocks = 16, 0
    while position < len(data):
        position += 4 + struct.unpack_from(">i", data, position)[0]
        blocks += 1
    assert (position, blocks) == (len(data), -(-len(NOISE) // 32_768))


@pytest.mark.parametrize("length", [-1, 0, 1 << 30])
def test_a_snappy_frame_with_a_wrong_block_length_is_refused(length: int) -> None:
    frame = compress(Compression.SNAPPY, b"")
    with pytest.raises(CorruptRecordBatch, match=f"block has {length} bytes"):
        decompress(Compression.SNAPPY, frame + struct.pack(">i", length) + b"\x01\x00a", limit=1 << 20)


@pytest.mark.parametrize("block", [b"", b"\x80", b"\x80" * 5 + b"\x01"], ids=["empty", "cut off", "endless"])
def test_a_snappy_block_without_its_size_is_refused(block: bytes) -> None:
    with pytest.raises(CorruptRecordBatch, match="has no size"):
        decompress(Compression.SNAPPY, block, limit=100)


def test_a_snappy_block_that_claims_more_than_it_can_hold_is_refused_before_memory_is_allocated() -> None:
    with pytest.raises(CorruptRecordBatch, match="claims to hold"):
        decompress(Compression.SNAPPY, b"\xff\xff\xff\xff\x07" + b"\0" * 20, limit=1 << 40)


def test_lz4_frames_have_independent_blocks_for_java_reads_no_others() -> None:
    magic, flags, block_size = struct.unpack_from("<IBB", compress(Compression.LZ4, NOISE))
    assert magic == 0x184D2204
    assert flags == 0b0110_0000  # version 1, independent blocks, no checksums, no content size
    assert block_size == 4 << 4  # 64 KiB


def test_lz4_frames_of_dependent_blocks_are_read() -> None:
    frame = pa.Codec("lz4").compress(TEXT, asbytes=True)
    assert not frame[4] & 0b0010_0000
    assert decompress(Compression.LZ4, frame, limit=len(TEXT)) == TEXT


def test_several_gzip_members_are_read_as_one() -> None:
    assert decompress(Compression.GZIP, gzip.compress(b"one ") + gzip.compress(b"two"), limit=100) == b"one two"


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
def test_data_that_cannot_be_decompressed_leaves_no_memory_behind(codec: Compression) -> None:
    """pyarrow's `read` lost its buffer, 80 kB of it in use, each time that it failed."""
    process = psutil.Process()

    def refuse(times: int) -> int:
        for _ in range(times):
            with pytest.raises(CorruptRecordBatch):
                decompress(codec, b"no such thing", limit=1 << 20)
        return int(process.memory_info().rss)

    before = refuse(100)
    assert refuse(500) - before < 10 << 20
