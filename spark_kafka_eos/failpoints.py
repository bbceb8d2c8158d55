"""Named points at which a test can hold a process to kill it there: no luck, no sleeps, one comparison when off.

`KAFKA_EOS_FAILPOINT` names one point, optionally with the micro-batch (`half appended@3`), and
`KAFKA_EOS_FAILPOINT_DIR` a folder. The process that reaches the point writes `reached` there, holding its pid, and
waits to be killed. Once that file exists the point is passed by: a restarted query goes on.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

# In the order in which a micro-batch meets them.
POINTS = (
    "initialised",  # InitProducerId answered, ledger read
    "before append",  # nothing appended yet
    "half appended",  # at least one record batch acknowledged, at least one not yet sent
    "all appended",  # every append acknowledged, no offsets committed
    "offsets committed",  # TxnOffsetCommit acknowledged, EndTxn not sent
    "ended",  # EndTxn acknowledged, Spark has not yet written its commit
)

_ARMED = os.environ.get("KAFKA_EOS_FAILPOINT")


def armed(name: str) -> bool:
    """Whether a test armed `name`: for the point that needs the code around it to stand still first."""
    return _ARMED is not None and _ARMED.partition("@")[0] == name


def failpoint(name: str, batch_id: int | None = None) -> None:
    """Hold this process at `name`, if a test armed that point for this micro-batch; else do nothing."""
    if _ARMED is None:
        return
    point, _, batch = _ARMED.partition("@")
    if point not in POINTS or name not in POINTS:
        raise ValueError(f"no failpoint {point!r} or {name!r}; there are: {', '.join(POINTS)}")
    if point != name or (batch and batch_id is not None and int(batch) != batch_id):
        return
    reached = Path(os.environ["KAFKA_EOS_FAILPOINT_DIR"]) / "reached"
    if reached.exists():
        return
    partial = reached.with_suffix(f".{os.getpid()}")
    partial.write_text(str(os.getpid()))
    partial.rename(reached)
    while True:
        signal.pause()
