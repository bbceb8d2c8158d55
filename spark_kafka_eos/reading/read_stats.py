"""Counts what a task reads: bytes of record batches, and records that were skipped as aborted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from spark_kafka_eos.kafka.partitions import OffsetRange, TopicPartition
from spark_kafka_eos.kafka.wire.batch_header import CONTROL
from spark_kafka_eos.kafka.wire.header_table import ends
from spark_kafka_eos.observe.tallies import RangeTally


class Tally:
    """The counts of these ranges, at most one per partition."""

    def __init__(self, ranges: Sequence[OffsetRange]) -> None:
        self._tallies = {
            r.partition: RangeTally(partition=r.partition, start=r.start, end=r.end, bytes=0, aborted=0) for r in ranges
        }

    @property
    def ranges(self) -> tuple[RangeTally, ...]:
        """The counts so far, by range."""
        return tuple(self._tallies.values())

    def count(self, partition: TopicPartition, headers: NDArray[np.void], is_visible: NDArray[np.bool_]) -> None:
        """Add a part of a Fetch response: its record batches (`wire.header_table`), and which are visible."""
        so_far = self._tallies[partition]
        hidden = headers[~is_visible & (headers["attributes"] & CONTROL == 0)]
        self._tallies[partition] = replace(
            so_far,
            bytes=so_far.bytes + int((ends(headers) - headers["position"]).sum()),
            aborted=so_far.aborted + _inside(hidden, so_far),
        )


def _inside(headers: NDArray[np.void], bounds: RangeTally) -> int:
    """The batches' records inside the range: exact, except for a compacted batch that extends beyond it."""
    first = headers["base_offset"]
    next_offset = np.minimum(first + headers["last_offset_delta"] + 1, bounds.end)
    overlap = np.maximum(next_offset - np.maximum(first, bounds.start), 0)
    return int(np.minimum(headers["record_count"], overlap).sum())
