"""Where the batches end that repeat what a sink has committed, after an old copy of a checkpoint was restored. Pure.

The source is past the copy by then, so a newly planned batch would straddle the end of the ledger: a part of it is in
the output, and the sink can neither skip nor write it. So no batch is planned across that end. Nor across the start of
the last committed batch: which windows a batch closes depends on the watermark that the batches before it brought
about. If the last batch has its old boundaries, query and ledger agree on what was emitted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_kafka_eos.kafka.partitions import Offsets, TopicPartition

if TYPE_CHECKING:
    from spark_kafka_eos.ledger.entry import SourceProgress


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchBoundary:
    """`ends` of the next batch; with `exact`, it must read up to there, without a limit."""

    ends: Offsets
    exact: bool


def next_boundary(begin: Offsets, last: SourceProgress, latest: Offsets) -> BatchBoundary | None:
    """Where the batch after `begin` ends, for the partitions in `latest`; None if it is behind the last committed one.

    A partition that `begin` lacks was added since; it begins at 0. One that the ledger does not know stays where it is.
    """
    ends = _clipped(last.offsets, latest)
    if last.start is not None:
        starts = _clipped(last.start, latest)
        if _is_before(begin, starts):
            return BatchBoundary(ends=_ends(begin, starts, latest), exact=False)
    if _is_before(begin, ends):
        return BatchBoundary(ends=_ends(begin, ends, latest), exact=last.start is not None)
    return None


def began_before(begin: Offsets, last: SourceProgress) -> bool:
    """Whether a batch that starts there repeats one before the last committed batch."""
    return last.start is not None and _is_before(begin, last.start)


def is_empty(last: SourceProgress) -> bool:
    """Whether the last committed batch read nothing: Spark runs such a batch to close windows."""
    return last.start is not None and all(last.start.get(tp, 0) == at for tp, at in last.offsets.items())


def _clipped(offsets: Offsets, latest: Offsets) -> dict[TopicPartition, int]:
    """Only what can be reached: a log that was truncated ends earlier."""
    return {tp: min(at, latest[tp]) for tp, at in offsets.items() if tp in latest}


def _is_before(begin: Offsets, boundary: Offsets) -> bool:
    return any(begin.get(tp, 0) < at for tp, at in boundary.items())


def _ends(begin: Offsets, boundary: Offsets, latest: Offsets) -> dict[TopicPartition, int]:
    reached = {tp: max(begin.get(tp, 0), boundary.get(tp, 0)) for tp in latest}
    return {tp: at for tp, at in reached.items() if tp in begin or at > 0}
