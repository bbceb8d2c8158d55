"""What is explored: one kind of history, and how much may go wrong in it."""

from __future__ import annotations

from dataclasses import dataclass

from lab.simulation.conditions import Conditions
from lab.simulation.query import WritePath


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A query of `batches` micro-batches, each with one record of each of the two source partitions, which go to
    different output partitions.
    """

    way: WritePath
    transaction_version: int
    verification: bool = True
    batches: int = 1

    @property
    def conditions(self) -> Conditions:
        return Conditions(verification=self.verification)

    def __str__(self) -> str:
        unverified = "" if self.verification else ", unverified"
        batches = "1 batch" if self.batches == 1 else f"{self.batches} batches"
        return f"TV{self.transaction_version}{unverified}, {self.way}, {batches}"


@dataclass(frozen=True, slots=True, order=True)
class Bound:
    """How often, in one history, a process is interrupted for another one (`switches`, each time at any step), a fault
    happens (`faults`, each at any request), and a marker is late (`markers`, each until any later step).
    """

    switches: int
    faults: int
    markers: int = 0

    def covers(self, other: Bound) -> bool:
        """Whether nothing is allowed by `other` that this does not allow."""
        return self.switches >= other.switches and self.faults >= other.faults and self.markers >= other.markers

    def __str__(self) -> str:
        return f"{self.switches} switches, {self.faults} faults, {self.markers} late markers"
