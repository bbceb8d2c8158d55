"""Determines which fault happens when: a pure function of a seed and a duration, so a schedule can be repeated."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from lab.soak.queries import MIRROR, STATEFUL, STATELESS, TRANSACTION_TIMEOUT_MS

ELSEWHERE = "elsewhere"  # the only broker of the cluster to which the mirror writes


class FaultKind(StrEnum):
    """The kind of fault. A kill is SIGKILL, a pause SIGSTOP and later SIGCONT, for drivers to their process tree."""

    DRIVER_KILLED = "driver killed"
    CHECKPOINT_LOST = "checkpoint lost"  # and the driver killed
    EXECUTOR_KILLED = "executor killed"
    DRIVER_PAUSED = "driver paused"
    BROKER_KILLED = "broker killed"
    BROKER_PAUSED = "broker paused"
    CONNECTIONS_CUT = "connections cut"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFault:
    """One fault, `at` seconds after the start. `target`: a query's name, a broker's node id or ELSEWHERE, "" for all.

    `seconds`: how long a pause lasts, or a broker is down; 0 for other faults, because a driver is restarted at once.
    """

    at: float
    kind: FaultKind
    target: str = ""
    seconds: float = 0.0

    @property
    def lane(self) -> str:
        """Faults in the same lane happen one after the other. So only one broker is down at a time."""
        if self.kind in BROKERS:
            return "brokers"
        return self.target or "network"

    def __str__(self) -> str:
        name = f"broker {self.target}" if self.target.isdigit() else self.target
        lasting = f" for {self.seconds:.0f} s" if self.seconds else ""
        return f"{self.kind}{f' ({name})' if name else ''}{lasting}"


BROKERS = frozenset({FaultKind.BROKER_KILLED, FaultKind.BROKER_PAUSED})
_FIRST, _LAST = 3.0, 5.0  # seconds without faults at the start and at the end
_GAP = (8.0, 17.0)  # seconds between two faults
_RECOVERY = 12.0  # seconds for a broker to catch up before the next one stops
_KILLED, _PAUSED = (2.0, 9.0), (2.0, 6.0)
_LONG = (1.1 * TRANSACTION_TIMEOUT_MS / 1000, 1.4 * TRANSACTION_TIMEOUT_MS / 1000)
_EVERY_LONG = 3  # one of this many pauses is longer than the transaction timeout


def schedule(seed: int, seconds: float, *, brokers: int) -> tuple[PlannedFault, ...]:
    """The faults of `seconds` seconds in order, on nodes 1 to `brokers` and ELSEWHERE. Each kind occurs once in seven
    faults.
    """
    chance = random.Random(seed)  # noqa: S311 - it chooses faults, not keys
    faults: list[PlannedFault] = []
    now, brokers_free = _FIRST, 0.0
    for kind in _kinds(chance):
        now += chance.uniform(*_GAP) if faults else chance.uniform(0, _GAP[0])
        if now > seconds - _LAST:
            break
        lasts = _seconds(kind, chance)
        at = max(now, brokers_free) if kind in BROKERS else now
        target = _target(kind, brokers, chance)
        if kind in BROKERS:
            brokers_free = at + lasts + _RECOVERY
        if at <= seconds - _LAST:
            faults.append(PlannedFault(at=round(at, 1), kind=kind, target=target, seconds=round(lasts, 1)))
    return tuple(sorted(faults, key=lambda fault: fault.at))


def _kinds(chance: random.Random) -> Iterator[FaultKind]:
    while True:
        yield from chance.sample(list(FaultKind), len(FaultKind))


def _target(kind: FaultKind, brokers: int, chance: random.Random) -> str:
    match kind:
        case FaultKind.BROKER_KILLED | FaultKind.BROKER_PAUSED:
            return chance.choice([*map(str, range(1, brokers + 1)), ELSEWHERE])
        case FaultKind.DRIVER_KILLED | FaultKind.DRIVER_PAUSED:
            return chance.choice([STATELESS, STATEFUL, MIRROR])
        case FaultKind.CHECKPOINT_LOST:
            return MIRROR  # the only query that continues where its sink's ledger ends
        case FaultKind.EXECUTOR_KILLED:
            return STATEFUL  # the only query that runs on a cluster
        case FaultKind.CONNECTIONS_CUT:
            return ""


def _seconds(kind: FaultKind, chance: random.Random) -> float:
    match kind:
        case FaultKind.BROKER_KILLED:
            return chance.uniform(*_KILLED)
        case FaultKind.BROKER_PAUSED | FaultKind.DRIVER_PAUSED:
            return chance.uniform(*(_PAUSED if chance.randrange(_EVERY_LONG) else _LONG))
        case _:
            return 0.0
