"""What a query's source tells its sink: which end each batch has in Spark's memory.

The sink finds a batch's plan in the checkpoint. In a store that does not create files atomically, another driver may
have replaced it there, before any of this driver's processes looked. The tasks then work for the plan in memory, which
Spark shows to the source alone. So the source's process notes the last range that it planned tasks for, in a folder
that Spark makes for one driver's process and removes with it, and the sink commits no other plan that begins there.

A range without a note says nothing: other sources leave none, nor does a source that the optimizer left out, nor one
whose processes share no disk with the sink's.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from spark_kafka_eos.source_offset import SourceOffset
from spark_kafka_eos.spark.offset_log import ReadFile, planned_batch

_FOLDER = "kafka-eos-planned"
_OF_SPARK = "blockmgr-"  # how the name of a block manager's folder begins; others are shared by drivers


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Digests of where a source's batch begins and ends."""

    start: str
    end: str


def digest_of(start: object, end: Mapping[str, object]) -> Note:
    """The note of a range of our source, as it is in the checkpoint. A query's first batch begins at offsets that are
    in no file; its topics stand for them.
    """
    source_offset = SourceOffset.of(end)
    is_first = source_offset is not None and source_offset.start is not None
    return Note(start=_digest([name for name in sorted(end) if end[name]] if is_first else start), end=_digest(end))


def is_replaced(plan: Note, notes: Collection[Note]) -> bool:
    """Whether this driver has planned another end from the same start, and not this one."""
    return plan not in notes and any(plan.start == note.start for note in notes)


def conflicts(read: ReadFile, batch_id: int) -> bool:
    """Whether the checkpoint has another plan of this batch than the one that this driver's tasks worked for. Raises
    CheckpointUnusable.
    """
    notes = published()
    if not notes:
        return False
    ends = planned_batch(read, batch_id).ends
    starts = planned_batch(read, batch_id - 1).ends if batch_id else {}
    ranges = ((starts.get(name), end) for name, end in ends.items())
    # Spark plans no tasks for a source without anything new.
    return any(
        is_replaced(digest_of(start, end), notes) for start, end in ranges if isinstance(end, dict) and start != end
    )


def publish(note: Note) -> None:
    """Let the sink see it, instead of this process's last one."""
    if (folder := _folder()) is None:
        return
    with suppress(OSError):  # as if there were no folder
        folder.mkdir(mode=0o700, exist_ok=True)
        partial = folder / f"{os.getpid()}.partial"
        partial.write_text(f"{note.start} {note.end}")
        partial.replace(folder / str(os.getpid()))


def published() -> list[Note]:
    """The last note of each process of this driver."""
    folder = _folder()
    if folder is None or not folder.is_dir():
        return []
    texts = (file.read_text() for file in folder.iterdir() if file.name.isdigit())
    return [Note(start=start, end=end) for start, end in map(str.split, texts)]


def _folder() -> Path | None:
    first = Path(os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0])
    return first / _FOLDER if first.name.startswith(_OF_SPARK) else None


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]
