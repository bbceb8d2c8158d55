"""Which plan a batch has: a file of the checkpoint, `offsets/<batch>`, which each of the sink's processes may look at.

What is in the file is the subject of `offset_log`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from spark_kafka_eos.appending.files import Files


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanDigest:
    """A batch's file in the checkpoint, as exact as its `digest`."""

    batch_id: int
    digest: str


def newest_plan(files: Files, earlier: int | None = None) -> PlanDigest | None:
    """The newest plan of the checkpoint; None if it has none. `earlier` is the number of an earlier plan: the numbers
    have no gap, so the next ones are tried, which saves listing the folder.
    """
    number, newest = earlier, None
    while number is not None and (text := files.read_text(f"offsets/{number + 1}")) is not None:
        number += 1
        newest = plan_of(number, text)
    if newest is not None:
        return newest
    numbers = [int(name) for name in files.names("offsets") if name.isdigit()]
    text = files.read_text(f"offsets/{max(numbers)}") if numbers else None
    return None if text is None else plan_of(max(numbers), text)


def may_run(files: Files, newest: PlanDigest, earlier: int | None = None) -> bool:
    """Whether the newest plan can be of a micro-batch that is about to run: Spark writes the plan before that, and
    `commits/<batch>` after it. `earlier` is as in `newest_plan`; a plan that follows it is new, and needs no look.
    """
    return newest.batch_id - 1 == earlier or files.read_text(f"commits/{newest.batch_id}") is None


def plan_of(batch_id: int, text: str) -> PlanDigest:
    """The plan with this text."""
    return PlanDigest(batch_id=batch_id, digest=hashlib.sha256(text.encode()).hexdigest()[:16])
