"""Java's `Utils.murmur2` for a whole column of keys, so that keys have the same partition as with the Java client.
Pure.

Keys of equal length (ids, numbers, hashes) form a matrix, which is hashed word by word along its columns. Others are
sorted by length, longest first: at each step, the keys that still have words are at the front of the array. Chunks are
small enough for the processor's cache.

Source: org.apache.kafka.common.utils.Utils.murmur2 (MurmurHash2, little endian, seed 0x9747b28c).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from spark_kafka_eos.kafka.wire.columns import nulls

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SEED, _M = np.uint32(0x9747B28C), np.uint32(0x5BD1E995)
_CHUNK = 16_384


def murmur2(keys: pa.Array) -> NDArray[np.uint32]:
    """The hash of each key of a binary or string array, as unsigned 32 bits; a null is hashed as an empty key."""
    data, starts, lengths = _bytes_of(keys)
    out = np.empty(len(keys), np.uint32)
    if len(keys) == 0:
        return out
    size, uniform = int(lengths[0]), bool(np.all(lengths == lengths[0]))
    for first in range(0, len(keys), _CHUNK):
        chunk = slice(first, first + _CHUNK)
        if uniform:
            # Arrow stores them contiguously.
            count = len(starts[chunk])
            out[chunk] = _equally_long(data[starts[first] : starts[first] + count * size].reshape(count, size))
        else:
            longest_first = np.argsort(-lengths[chunk], kind="stable")
            out[chunk][longest_first] = _longest_first(
                data, starts[chunk][longest_first], lengths[chunk][longest_first]
            )
    return out


def _bytes_of(keys: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
    """The array's bytes, and the start and length of each key."""
    large = pa.types.is_large_binary(keys.type) or pa.types.is_large_string(keys.type)
    if not large and not pa.types.is_binary(keys.type) and not pa.types.is_string(keys.type):
        raise TypeError(f"keys must be binary or string, not {keys.type}")
    _, offsets, data = keys.buffers()
    if len(keys) == 0 or data is None:
        return np.empty(0, np.uint8), np.zeros(len(keys), np.int64), np.zeros(len(keys), np.int64)
    width = np.int64 if large else np.int32
    bounds = np.frombuffer(offsets, width)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    length = np.diff(bounds)
    if keys.null_count:
        length[nulls(keys)] = 0  # the bytes under a null are undefined
    return np.frombuffer(data, np.uint8), bounds[:-1], length


def _equally_long(keys: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """Hash the rows of a matrix of bytes."""
    count, size = keys.shape
    whole = size - size % 4
    words = np.ascontiguousarray(keys[:, :whole]).view("<u4")
    h = np.full(count, _SEED ^ np.uint32(size), np.uint32)
    for column in range(whole // 4):
        _mix(h, words[:, column].copy())
    if whole < size:
        for byte in range(whole, size):
            h ^= keys[:, byte].astype(np.uint32) << np.uint32(8 * (byte - whole))
        h *= _M
    return _finish(h)


def _longest_first(
    data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> NDArray[np.uint32]:
    """Hash keys that are ordered by length, descending."""
    # A copy with four extra bytes, so that a whole word can be read at the last key's tail; a word at any byte.
    first, end = int(starts.min()), int((starts + lengths).max())
    padded = np.zeros(end - first + 4, np.uint8)
    padded[:-4] = data[first:end]
    word_at = np.ndarray((end - first + 1,), "<u4", padded.data, strides=(1,))
    at = starts - first

    h = _SEED ^ lengths.astype(np.uint32)
    words = lengths // 4
    for step in range(int(words[0])):
        remaining = int(np.searchsorted(-words, -step))  # number of keys with more words than `step`
        _mix(h[:remaining], word_at[at[:remaining] + 4 * step])
    tail = np.flatnonzero(lengths % 4)
    mask = (np.uint32(1) << (8 * (lengths[tail] % 4)).astype(np.uint32)) - np.uint32(1)
    h[tail] = (h[tail] ^ (word_at[at[tail] + 4 * words[tail]] & mask)) * _M
    return _finish(h)


def _mix(h: NDArray[np.uint32], word: NDArray[np.uint32]) -> None:
    """Mix one word into the hash, in place; overwrites `word`."""
    word *= _M
    word ^= word >> np.uint32(24)
    word *= _M
    h *= _M
    h ^= word


def _finish(h: NDArray[np.uint32]) -> NDArray[np.uint32]:
    h ^= h >> np.uint32(13)
    h *= _M
    h ^= h >> np.uint32(15)
    return h
