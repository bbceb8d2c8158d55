"""Computes a 16-byte digest of each record's key and value, to compare the contents of topics without storing them."""

from __future__ import annotations

import itertools
from hashlib import blake2b

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_kafka_eos.kafka.wire.columns import from_offsets, interleave, lengths

_SIZE = 16


def digests(key: pa.BinaryArray, value: pa.BinaryArray) -> NDArray[np.uint64]:
    """A BLAKE2b digest of each record's key and value, as two 64-bit halves per row. Null and empty differ.

    A record of 100 bytes takes about a microsecond. A hash in numpy arithmetic, computed for all records at once, takes
    as long for 20 bytes and ten times as long for 1,000 bytes.
    """
    rows = len(key)
    if not rows:
        return np.zeros((0, 2), np.uint64)
    # The lengths come first, so that different records never give the same bytes: they show where the key ends, and
    # whether key or value is null.
    sizes = np.stack([lengths(key), lengths(value)], axis=1).astype("<i4")
    framed = from_offsets(np.arange(rows + 1, dtype=np.int32) * 8, sizes.reshape(-1).view(np.uint8))
    data, starts = interleave([framed, key, value])
    pieces = (data[start:end] for start, end in itertools.pairwise(starts.tolist()))
    hashes = b"".join([blake2b(piece, digest_size=_SIZE).digest() for piece in pieces])
    return np.frombuffer(hashes, np.uint64).reshape(rows, 2)
