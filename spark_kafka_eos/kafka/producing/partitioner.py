"""Chooses the Kafka partition of each row: its `partition` column, else the hash of its key, else an even distribution.
Pure.

| name | key | no key |
|---|---|---|
| `murmur2` | as in the Java client and Spark's built-in sink: toPositive(murmur2(key)) % partitions | distributed |
| `consistent` | as librdkafka's `consistent`: crc32(key) % partitions | like an empty key |
| `roundrobin` | ignored | distributed |

Rows are distributed in runs of equal length, one per partition: as even as row by row, but with larger blocks. A run
may have a least length, so that few rows stay together, as with the Java client, which fills a batch first (KIP-480).
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_kafka_eos.kafka.errors import ConfigurationError, InvalidRow
from spark_kafka_eos.kafka.producing.murmur2 import murmur2
from spark_kafka_eos.kafka.wire.columns import nulls

if TYPE_CHECKING:
    from numpy.typing import NDArray

PARTITIONERS = ("murmur2", "consistent", "roundrobin")


class Partitioner:
    """Chooses partitions for one task's rows. It only remembers where the last distribution ended (initially
    `start`). Of the rows that are distributed, at least `least_run` in a row go to the same partition.
    """

    def __init__(self, name: str = "murmur2", *, start: int = 0, least_run: int = 1) -> None:
        if name not in PARTITIONERS:
            raise ConfigurationError("partitioner", f"{name!r} is not one of {', '.join(PARTITIONERS)}")
        self._name = name
        self._next, self._least_run = start, least_run
        self._filled = 0  # rows of the run that has begun

    def partition(
        self, topic: str, keys: pa.Array, partitions: int, explicit: pa.Array | None = None
    ) -> NDArray[np.int32]:
        """The partition, 0 to `partitions` - 1, of each row.

        `keys` are binary or string; `explicit` are integers, null if the key decides. Raises InvalidRow for a partition
        that is out of range.
        """
        if explicit is None or explicit.null_count == len(explicit):
            return self._by_key(keys, partitions)
        _check(topic, explicit, partitions)
        out: NDArray[np.int32] = explicit.fill_null(0).to_numpy().astype(np.int32)
        if explicit.null_count:
            undecided = explicit.is_null()
            out[nulls(explicit)] = self._by_key(keys.filter(undecided), partitions)
        return out

    def _by_key(self, keys: pa.Array, partitions: int) -> NDArray[np.int32]:
        match self._name:
            case "roundrobin":
                return self._spread(len(keys), partitions)
            case "consistent":
                hashes = np.fromiter((zlib.crc32(key or b"") for key in _as_bytes(keys)), np.uint32, len(keys))
                return (hashes % np.uint32(partitions)).astype(np.int32)
            case _:
                out = ((murmur2(keys) & np.uint32(0x7FFF_FFFF)) % np.uint32(partitions)).astype(np.int32)
                if keys.null_count:
                    out[nulls(keys)] = self._spread(keys.null_count, partitions)
                return out

    def _spread(self, rows: int, partitions: int) -> NDArray[np.int32]:
        numbers, before = np.arange(rows, dtype=np.int64), self._next
        if rows < self._least_run * partitions:
            runs = (self._filled + numbers) // self._least_run
            begun, self._filled = divmod(self._filled + rows, self._least_run)
            self._next += begun
        else:
            runs = numbers * partitions // rows
            self._filled = 0
        return ((before + runs) % partitions).astype(np.int32)


def _as_bytes(keys: pa.Array) -> list[bytes | None]:
    as_bytes: list[bytes | None] = keys.cast(pa.large_binary()).to_pylist()
    return as_bytes


def out_of_range(explicit: pa.Array, partitions: int) -> pa.Array:
    """Which of these partitions do not exist; not those that are null, because the key decides on them."""
    return pc.fill_null(pc.or_(pc.less(explicit, 0), pc.greater_equal(explicit, partitions)), False)


def _check(topic: str, explicit: pa.Array, partitions: int) -> None:
    bounds = pc.min_max(explicit)
    for number in (bounds["min"].as_py(), bounds["max"].as_py()):
        if not 0 <= number < partitions:
            raise InvalidRow(
                f"a row has partition {number} of topic {topic!r}, which has {partitions} (0 to {partitions - 1})",
                action="Correct the row's 'partition', or set it to null so that the key decides.",
            )
