"""Determines the outcome of each record batch of a partition from its log alone, with the control batches.

`kafka.fetching.visibility` uses the list of aborted transactions in a Fetch response, as readers do. This module does
not use that list, in order to check both it and the readers: a producer's transactional batches wait for its next
control batch, which commits or aborts them. Batches that still wait at the end of the log are open, and nothing from
the first such batch on is stable. Source: KIP-98 ("control messages", "last stable offset").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Self

import numpy as np
from numpy.typing import NDArray


class BatchKind(IntEnum):
    """A record batch: data, or a type of control batch."""

    DATA = 0
    COMMIT = 1
    ABORT = 2
    OTHER = 3


class Outcome(IntEnum):
    """The outcome of a record batch; data outside of transactions is committed."""

    CONTROL = 0
    COMMITTED = 1
    ABORTED = 2
    OPEN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTable:
    """A partition's record batches in log order, one element each; `kind` as in `Kind`, `records` 0 for control."""

    base_offset: NDArray[np.int64]
    next_offset: NDArray[np.int64]
    producer_id: NDArray[np.int64]
    epoch: NDArray[np.int64]
    transactional: NDArray[np.bool_]
    kind: NDArray[np.int8]
    records: NDArray[np.int64]

    @classmethod
    def of(cls, rows: Sequence[tuple[int, int, int, int, bool, int, int]]) -> Self:
        """From a row for each batch, with the fields in their order."""
        table = np.array(rows, np.int64).reshape(-1, 7).T
        return cls(
            base_offset=table[0],
            next_offset=table[1],
            producer_id=table[2],
            epoch=table[3],
            transactional=table[4].astype(np.bool_),
            kind=table[5].astype(np.int8),
            records=table[6],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """`of` has each batch's `Outcome`; `open` the first offset of each producer's open transaction."""

    of: NDArray[np.int8]
    open: Mapping[int, int]

    def last_stable_offset(self, high_watermark: int) -> int:
        """Where a read_committed reader must stop in a log that ends at `high_watermark`."""
        return min(self.open.values(), default=high_watermark)


def outcomes(batches: BatchTable) -> Outcomes:
    """Follow every producer through the log."""
    of = np.where(batches.kind == BatchKind.DATA, np.int8(Outcome.COMMITTED), np.int8(Outcome.CONTROL))
    waiting: dict[int, list[int]] = {}
    # Only transactional data and markers matter. The loop is over batches, of which there are few.
    columns = (batches.transactional | (batches.kind != BatchKind.DATA), batches.kind, batches.producer_id)
    concerned = np.flatnonzero(columns[0])
    kinds, producers = (column[concerned].tolist() for column in columns[1:])
    for index, kind, producer in zip(concerned.tolist(), kinds, producers, strict=True):
        if kind == BatchKind.DATA:
            waiting.setdefault(producer, []).append(index)
        elif kind in (BatchKind.COMMIT, BatchKind.ABORT):
            ended = waiting.pop(producer, [])
            if kind == BatchKind.ABORT:
                of[ended] = Outcome.ABORTED
    for unended in waiting.values():
        of[unended] = Outcome.OPEN
    return Outcomes(of=of, open={producer: int(batches.base_offset[at[0]]) for producer, at in waiting.items()})
