"""Who appends a micro-batch's blocks: the driver or the executors. What `appendMode=auto` weighs, as a pure function.

| session | batch | who | why |
|---|---|---|---|
| one machine | any | driver | no shuffle, no second Python stage |
| Spark Connect | any | driver | nothing tells whether an append task ran twice |
| speculation is on | any | driver | the barrier would take each second copy for a reason to begin anew |
| a cluster | without a Kafka source | executors | nobody knows how large it is |
| a cluster | some `SMALL_BYTES` at most | driver | as fast as on one machine: the blocks travel in the tasks' results |
| a cluster | larger | executors | the driver's network would be the limit |

How large a batch will be is reckoned from its source offsets, and from how many bytes one of them made in the batch
before. That is a guess, and nothing depends on it but time: a task whose blocks come out larger than `SMALL_BYTES` says
so instead, before anything is appended, and the batch goes by the executors after all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from spark_kafka_eos.model import MicroBatch

Mode = Literal["driver", "executors"]

# The append stage and its shuffle cost some 0.2 s on two cores, in which a driver sends many times this. What bounds it
# is the driver's heap: every task may hand it so much before it is told that the guess was wrong.
SMALL_BYTES = 1_000_000
# Of a query's first batch, by its source offset: generous, so that the guess errs towards the executors.
FIRST_BYTES_PER_OFFSET = 1_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionKind:
    """What kind of Spark session the batch runs in. Without a JVM in reach (Spark Connect) it is not `classic`."""

    classic: bool
    local: bool
    speculates: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Who appends, and why. `small`: the blocks are expected to fit into the tasks' results, and must."""

    mode: Mode
    reason: str
    small: bool = False


def offsets(batch: MicroBatch) -> int | None:
    """How many source offsets the batch spans; None where no source is Kafka, or its start is not known."""
    if batch.start is None or not batch.end:
        return None
    # A partition that was added since is read from its beginning.
    return sum(max(0, end - batch.start.get(partition, 0)) for partition, end in batch.end.items())


def choose(
    asked: Literal["auto", "driver", "executors"],
    session: SessionKind,
    batch: MicroBatch,
    bytes_per_offset: float = FIRST_BYTES_PER_OFFSET,
) -> Choice:
    """Who appends `batch`, of whose query one source offset made so many bytes in the batch before."""
    if asked != "auto":
        return Choice(mode=asked, reason="as asked for")
    if not session.classic:
        return Choice(mode="driver", reason="Spark Connect does not tell whether a task ran twice")
    if session.local:
        return Choice(mode="driver", reason="driver and executors are one process")
    if session.speculates:
        return Choice(mode="driver", reason="spark.speculation is on")
    count = offsets(batch)
    if count is None:
        return Choice(mode="executors", reason="without offsets of a Kafka source the batch's size is not known")
    expected = round(count * bytes_per_offset)
    size = f"{count:,} offsets make some {expected:,} bytes"
    if expected <= SMALL_BYTES:
        return Choice(mode="driver", reason=f"{size}, at most {SMALL_BYTES:,}", small=True)
    return Choice(mode="executors", reason=f"{size}, more than {SMALL_BYTES:,}")


def larger_than_expected() -> Choice:
    """The choice once a task of a small batch turned out to have more than `SMALL_BYTES` of blocks."""
    return Choice(mode="executors", reason=f"a task made more than {SMALL_BYTES:,} bytes, which was not expected")
