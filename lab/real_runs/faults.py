"""What may happen to a driver, drawn by a seed. Pure."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from spark_kafka_eos.failpoints import POINTS

Kind = Literal[
    "killed at a failpoint",
    "killed at any time",
    "killed at a request",
    "request lost, late or refused",
    "held at a failpoint, and late",
    "paused at any time, and late",
    "timed out",
]
Until = Literal["planned", "noted", "stopped"]

# How often each kind happens, relative to the others. A timeout takes seconds.
KINDS: Mapping[Kind, int] = {
    "killed at a failpoint": 6,
    "killed at any time": 4,
    "killed at a request": 6,
    "request lost, late or refused": 6,
    "held at a failpoint, and late": 5,
    "paused at any time, and late": 3,
    "timed out": 1,
}
TIMEOUT_S = 3.0  # the transaction timeout of a driver that is to exceed it
REQUEST_TIMEOUT_S = 2.0

_OPEN = ("half appended", "all appended", "offsets committed")  # failpoints with an open transaction
_REQUESTS = ("DescribeTransactions", "InitProducerId", "Produce", "TxnOffsetCommit", "EndTxn", "OffsetFetch")
_OF_TV1 = ("AddPartitionsToTxn", "AddOffsetsToTxn")
_OFTEN = ("InitProducerId", "Produce", "TxnOffsetCommit", "EndTxn")
_LOST = ("drop-request", "drop-response", "delay=0.05", "delay=0.4")  # of a driver that dies
_LATER = REQUEST_TIMEOUT_S + 0.3  # after its sender has given it up
_ACTIONS = ("cut-request", "cut-response", "drop-request", "drop-response", f"delay={_LATER}", "error")
# Retriable, and the broker has not applied the request.
_PASSING: Mapping[str, Sequence[int]] = {"Produce": (6, 19), "OffsetFetch": (14, 16), "": (14, 15, 16)}
_LIFE_S = 0.5  # about as long as a driver needs for the whole query


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """`point` is a failpoint. `request` is a rule of the proxy, whose client is missing. `after_s` counts from the
    driver's start. A late driver goes on when its successor has planned or noted a batch, or stopped: `until`; or at
    the end, if no successor does.
    """

    kind: Kind
    point: str = ""
    request: tuple[str, int, str] = ("", 0, "")
    after_s: float = 0.0
    until: Until = "stopped"

    @property
    def kills(self) -> bool:
        return self.kind.startswith("killed")

    @property
    def is_late(self) -> bool:
        return self.kind.endswith("late")

    def rule(self, client: str) -> str | None:
        """The proxy's rule for this driver, None if its requests pass."""
        api, number, action = self.request
        return f"{api}@{client}:{number}:{action}" if api else None


def draw(chance: random.Random, transaction_version: int) -> Fault:
    """A fault for the next driver."""
    kind = chance.choices(list(KINDS), list(KINDS.values()))[0]
    match kind:
        case "killed at a failpoint":
            return Fault(kind=kind, point=chance.choice(POINTS))
        case "killed at any time":
            return Fault(kind=kind, after_s=chance.uniform(0.0, _LIFE_S))
        case "killed at a request":
            return Fault(kind=kind, request=(*_request(chance, transaction_version), chance.choice(_LOST)))
        case "request lost, late or refused":
            api, number = _request(chance, transaction_version)
            action = chance.choice(_ACTIONS)
            if action == "error":
                action = f"error={chance.choice(_PASSING.get(api, _PASSING['']))}"
            return Fault(kind=kind, request=(api, number, action))
        case "held at a failpoint, and late":
            return Fault(kind=kind, point=chance.choice(POINTS), until=_until(chance))
        case "paused at any time, and late":
            return Fault(kind=kind, after_s=chance.uniform(0.0, _LIFE_S), until=_until(chance))
        case "timed out":
            return Fault(kind=kind, point=chance.choice(_OPEN))


def _request(chance: random.Random, transaction_version: int) -> tuple[str, int]:
    """An API, and which one of the driver's requests to it."""
    apis = (*_REQUESTS, *_OFTEN, *(_OF_TV1 if transaction_version < 2 else ()))
    return chance.choice(apis), chance.choice((1, 1, 2, 3))


def _until(chance: random.Random) -> Until:
    moments: Sequence[Until] = ("planned", "noted", "stopped")
    return chance.choice(moments)
