"""Chooses what appends a micro-batch's blocks with `appendMode=auto`: the driver or the executors. A pure function.
Pure.

| session | batch | append mode | reason |
|---|---|---|---|
| one machine | any | driver | no shuffle, no second Python stage |
| Spark Connect | any | driver | it does not show whether an append task ran twice |
| speculation is on | any | driver | the barrier would abort because of every speculative copy |
| a cluster | without a Kafka source | executors | its size is unknown |
| a cluster | up to about `SMALL_BYTES` | driver | as fast as on one machine: task results contain the blocks |
| a cluster | larger | executors | the driver's network would be the bottleneck |

The size of a batch is estimated from its number of source offsets and the most bytes per offset of the last batches
with output. A wrong estimate only costs time: a task whose blocks exceed `SMALL_BYTES` reports this before anything is
appended, and the executors append the batch instead.

In a classic session, a batch up to about `SMALL_BYTES` needs no encode tasks either: the driver gets the rows and
encodes them. A wrong estimate then takes the driver's memory. So only what was measured counts, and the first batch of
a run has encode tasks: a driver that died of such a batch starts again with them. A batch without output measures
nothing: a filter or a window may let nothing out for long, and then all at once. Nor does the size of a batch without
new offsets, in which windows close, follow from their number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from spark_kafka_eos.micro_batch import MicroBatch

Mode = Literal["driver", "executors"]

# The append stage and its shuffle take about 0.2 s on two cores, in which a driver sends many times this size. The
# limit is the driver's heap: every task may return this much before the estimate turns out to be wrong.
SMALL_BYTES = 1_000_000
# For a query's first batch: a high estimate, so that it errs towards the executors.
FIRST_BYTES_PER_OFFSET = 1_000.0
# Above this number of offsets, encode tasks are worth their start, and an estimate from a filter's few rows is too
# risky for the driver's memory: 10 MB if the filter lets all of them pass, and they have 1,000 bytes.
FEW_OFFSETS = 10_000

# The bytes for which an append task is worth its start. A coordinator adds partitions to a transaction for one task
# after the other, 4 ms each with TV2 (docs/performance-scale.md), in which a task sends about half of this.
_BYTES_PER_TASK = 4_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionKind:
    """The kind of Spark session that runs the batch. It is `classic` if its JVM is accessible (not Spark Connect)."""

    classic: bool
    local: bool
    speculates: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The append mode and its reason. `small`: the blocks must fit into the tasks' results, and are expected to.
    `few`: the rows are expected to be too few for tasks that encode them. `tasks`: how many append tasks are worth
    their start, at most; None if that is not known.
    """

    mode: Mode
    reason: str = ""
    small: bool = False
    few: bool = False
    tasks: int | None = None


def offsets(batch: MicroBatch) -> int | None:
    """How many source offsets the batch spans; None if no source is Kafka, or its start is unknown."""
    start, end = batch.start, batch.end
    if start is None or not end:
        return None
    # A new partition is read from its beginning.
    return sum(max(0, offset - start.get(partition, 0)) for partition, offset in end.items())


def choose(
    asked: Literal["auto", "driver", "executors"],
    session: SessionKind,
    batch: MicroBatch,
    bytes_per_offset: float | None = None,
) -> Choice:
    """The append mode for `batch`. `bytes_per_offset` was measured in earlier batches of the query, and is more than 0;
    None before that.
    """
    count = offsets(batch)
    measured = None if count is None or bytes_per_offset is None else count * bytes_per_offset
    few = session.classic and measured is not None and 0 < measured <= SMALL_BYTES and (count or 0) <= FEW_OFFSETS
    if asked != "auto":
        return Choice(mode=asked, reason="as configured", few=few and asked == "driver")
    if not session.classic:
        return Choice(mode="driver", reason="Spark Connect does not show whether a task ran twice")
    if session.local:
        return Choice(mode="driver", reason="driver and executors are one process", few=few)
    if session.speculates:
        return Choice(mode="driver", reason="spark.speculation is on", few=few)
    if count is None:
        return Choice(mode="executors", reason="the batch's size is unknown without a Kafka source")
    expected = round(count * FIRST_BYTES_PER_OFFSET if measured is None else measured)
    size = f"{count:,} offsets result in about {expected:,} bytes"
    if expected <= SMALL_BYTES:
        return Choice(mode="driver", reason=f"{size}, at most {SMALL_BYTES:,}", small=True, few=few)
    tasks = math.ceil(expected / _BYTES_PER_TASK)
    return Choice(mode="executors", reason=f"{size}, more than {SMALL_BYTES:,}", tasks=tasks)


def append_tasks(cores: int, output_partitions: int, worth: int | None) -> int:
    """How many append tasks a batch has: each owns at least one output partition (if 0, their number is not known).
    `worth` is `Choice.tasks`.
    """
    return min(cores, output_partitions or cores, worth or cores)


def larger_than_expected() -> Choice:
    """The choice after a task of a small batch had more than `SMALL_BYTES` of blocks."""
    return Choice(mode="executors", reason=f"a task had more than {SMALL_BYTES:,} bytes, unexpectedly")
