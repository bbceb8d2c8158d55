"""Counts what a task reads: bytes of record batches, and records that were skipped as aborted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from spark_kafka_eos.core.fetch_steps import Fetched
from spark_kafka_eos.core.progress import RangeTally
from spark_kafka_eos.model import OffsetRange, RecordBatchHeader


class Tally:
    """The counts of these ranges, at most one per partition."""

    def __init__(self, ranges: Sequence[OffsetRange]) -> None:
        self._found = {
            r.partition: RangeTally(partition=r.partition, start=r.start, end=r.end, bytes=0, aborted=0) for r in ranges
        }

    @property
    def ranges(self) -> tuple[RangeTally, ...]:
        """The counts so far, by range."""
        return tuple(self._found.values())

    def count(self, fetched: Fetched, shown: Iterable[RecordBatchHeader]) -> None:
        """Add a part of a Fetch response; `shown` are those of its record batches that are visible."""
        seen = {header.position for header in shown}
        so_far = self._found[fetched.partition]
        self._found[fetched.partition] = replace(
            so_far,
            bytes=so_far.bytes + sum(header.size for header in fetched.batches),
            aborted=so_far.aborted
            + sum(
                _inside(header, so_far)
                for header in fetched.batches
                if not (header.position in seen or header.is_control)
            ),
        )


def _inside(header: RecordBatchHeader, bounds: RangeTally) -> int:
    """The batch's records inside the range: exact, except for a compacted batch that extends beyond it."""
    overlap = min(header.next_offset, bounds.end) - max(header.base_offset, bounds.start)
    return min(header.record_count, max(0, overlap))
