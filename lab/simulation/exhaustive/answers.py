"""The answers to chance's questions when all histories are explored: fixed ones, and choices of the explorer.

Fixed is what does not change which orders of requests and faults are possible, and what belongs to the scenario. A
question that is not known here raises KeyError, so that none is left out unseen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from lab.simulation.exhaustive.scenario import Bound, Scenario

T = TypeVar("T")

Choose = Callable[[str, int], int]  # what, number of options -> the chosen one; 0 is the usual one

# A fault at one of these is explored. All other requests look up what does not change, and a step's own faults need
# conditions that are not explored.
_READS = ("DescribeTransactions", "OffsetFetch", "Fetch", "ListOffsets")
_WRITES = ("InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "Produce", "TxnOffsetCommit", "EndTxn")
STEPS = frozenset((*_READS, *_WRITES, "checkpoint"))  # before them, another process may go on
_FAULTS_AT_READS = frozenset(f"fault at {at}" for at in _READS)
_FAULTS_AT_WRITES = frozenset(f"fault at {at}" for at in (*_WRITES, "a written batch", "an append task"))

# A read changes nothing: whether it arrives before its answer is lost, late, or after its sender's death is the same. A
# short pause is a switch; this one is longer than the transaction's timeout.
_KINDS_AT_READS = ("request lost", "killed", "pause")
_KINDS_AT_WRITES = ("request lost", "answer lost", "request delayed", "killed", "pause")

_FIXED: Mapping[str, Any] = {
    "share of faults": 1.0,
    "checkpoint may be spoilt": False,
    "last epochs": False,
    "slow marker": False,
    "successor": True,
    "successor after": 0.0,
    "restart after": 0.0,
    "jitter": 0.5,
    "records of a batch": 1,
    "records of a block": 1,
    "readable": True,
    "reset": True,
    "pause": 70.0,
    "late by": 0.5,
    "cut with the answer": False,
    "task dies alone": True,
    "placed otherwise": True,
    "straggler after": 0.0,
}
_LATE_S = 0.02  # one of the marker's delays; only whether it is late counts


class Answers:
    """Chance's answers in one history."""

    def __init__(self, scenario: Scenario, bound: Bound, choose: Choose, attempt: Callable[[str], int]) -> None:
        """`attempt` returns another number each time that the same process asks the same."""
        self.markers_left = bound.markers
        self._choose, self._attempt = choose, attempt
        self._reads = False  # whether the last fault is at a read
        self._fixed = {
            **_FIXED,
            "number of faults": bound.faults,
            "records": scenario.batches,
            "way": scenario.way,
            "transaction.version": scenario.transaction_version,
        }

    def happens(self, what: str, share: float) -> bool:  # noqa: ARG002 - every answer is tried
        if what.startswith("fault at "):
            self._reads = what in _FAULTS_AT_READS
            return (self._reads or what in _FAULTS_AT_WRITES) and self._choose(what, 2) == 1
        if what == "executor known lost":
            return self._choose(what, 2) == 1
        return bool(self._fixed[what])

    def choose(self, what: str, options: Sequence[T]) -> T:
        if what == "marker's delay":
            return self._marker_s(options)
        if what.startswith("placement of "):  # each source to its own partition, in each attempt to the other one
            return options[(int(what[-1]) + self._attempt(what)) % 2]
        if what == "last request of the dead" and self._reads:
            return options[0]
        if what in ("last request of the dead", "kind of straggler"):
            return options[self._choose(what, len(options))]
        answer: T = self._fixed[what]
        return answer

    def kind(self, what: str, weights: Mapping[str, int]) -> str:
        possible = _KINDS_AT_READS if self._reads else _KINDS_AT_WRITES
        kinds = [kind for kind in possible if kind in weights]
        return kinds[self._choose(what, len(kinds))]

    def fraction(self, what: str) -> float:
        return float(self._fixed[what])

    def _marker_s(self, options: Sequence[T]) -> T:
        if not self.markers_left or not self._choose("marker's delay", 2):
            return options[0]
        self.markers_left -= 1
        return options[-1]
