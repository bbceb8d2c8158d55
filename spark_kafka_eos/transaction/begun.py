"""Remembers which micro-batches this process has begun to write, and which of them did not end in a commit.

Spark takes a batch for done when the function of foreachBatch returns, whatever happened in it: the function may have
caught the writer's error, or its own, or left the call to a thread. So a batch counts as begun from the first moment on
in which this package hears of it, before anything can fail, and the batches after one that did not end in a commit are
refused. What is remembered belongs to the run of the query, not to a writer: a function may make a writer for each
batch, and several writers may share a transactional.id.

| a batch was begun, and | the batches after it |
|---|---|
| was committed, or found committed | go on |
| failed with nothing committed, and was then begun again and committed | go on: the second call had the same rows |
| failed with nothing committed | are refused |
| was begun twice at the same time, and one of both failed | are refused |
| has not ended yet | are refused |
| was begun after a later batch, by a thread that came late, and failed | are refused |
| failed, and may be committed | follow the ledger, which says whether it is |

At-least-once, a batch may have several calls, and nobody can tell a repeated one from another: the batches after one
with a call that failed are refused, whatever else was written.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Literal

_Outcome = Literal["running", "failed", "unknown", "committed"]


@dataclass(slots=True, eq=False, kw_only=True)
class BatchMark:
    """A batch that was begun under a transactional.id on a cluster, each None if it is not known. `repeatable`: it may
    have several calls (at-least-once).
    """

    batch_id: int
    transactional_id: str | None
    repeatable: bool = False
    cluster: str | None = None
    outcome: _Outcome = "running"
    earlier: tuple[BatchMark, ...] = field(default=(), repr=False)  # what its commit settles

    def may_concern(self, other: BatchMark) -> bool:
        """Whether both may be written under one transactional.id to one cluster."""
        pairs = ((self.transactional_id, other.transactional_id), (self.cluster, other.cluster))
        return all(mine is None or theirs is None or mine == theirs for mine, theirs in pairs)


class BegunBatches:
    """Those of one run of a query. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begun: list[BatchMark] = []

    def begin(self, batch_id: int, transactional_id: str | None, *, repeatable: bool = False) -> BatchMark:
        """Call it before anything can fail; `end` ends what it returns."""
        begun = BatchMark(batch_id=batch_id, transactional_id=transactional_id, repeatable=repeatable)
        with self._lock:
            if not repeatable:  # what failed is repeated now
                same = (mark for mark in self._begun if mark.batch_id == batch_id and mark.may_concern(begun))
                begun.earlier = tuple(mark for mark in same if mark.outcome != "running")
            self._begun.append(begun)
        return begun

    def end(self, begun: BatchMark, outcome: _Outcome) -> None:
        """How it ended. A commit settles what the verdict on it knew of: see `failed`."""
        with self._lock:
            begun.outcome = outcome
            if outcome == "committed":
                for mark in begun.earlier:
                    mark.outcome = "committed"
                self._begun = [mark for mark in self._begun if self._counts(mark)]
            begun.earlier = ()

    def failed(self, begun: BatchMark) -> tuple[int, ...]:
        """The batches before this one that are known not to be committed: they failed, or are running."""
        with self._lock:
            open_ones = [mark for mark in self._before(begun) if mark.outcome != "committed"]
            begun.earlier += tuple(mark for mark in open_ones if mark not in begun.earlier)
            return tuple(sorted({mark.batch_id for mark in open_ones if mark.outcome != "unknown"}))

    def last(self, begun: BatchMark) -> int | None:
        """The last batch before this one that was begun, whatever became of it; None if none was."""
        with self._lock:
            return max((mark.batch_id for mark in self._before(begun)), default=None)

    def _before(self, begun: BatchMark) -> list[BatchMark]:
        return [mark for mark in self._begun if mark.batch_id < begun.batch_id and mark.may_concern(begun)]

    def _counts(self, begun: BatchMark) -> bool:
        """Whether it is still needed: of those that are settled, the last two of their kind, for `last`."""
        if begun.outcome != "committed":
            return True
        kind = (begun.transactional_id, begun.cluster)
        later = {
            mark.batch_id
            for mark in self._begun
            if (mark.transactional_id, mark.cluster) == kind and mark.batch_id > begun.batch_id
        }
        return len(later) < 2  # one may be of the batch that runs


def begun_batches(query: str, run: str | None) -> BegunBatches:
    """Those that this process has begun in this `run` of the `query`. An earlier run of it is over, and forgotten."""
    with _lock:
        latest, batches = _runs.get(query, (None, None))
        if batches is None or latest != run:
            batches = BegunBatches()
            _runs[query] = run, batches
        return batches


_lock = threading.Lock()
_runs: dict[str, tuple[str | None, BegunBatches]] = {}  # by query
