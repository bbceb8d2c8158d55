"""Spark's offset log: `offsets/<batch>` in a checkpoint, what a micro-batch was planned to read. Both formats.

    v1                               v2
    {"batchTimestampMs":…,…}         {"batchTimestampMs":…,…}
    {"orders":{"0":23}}              files:{"logOffset":7}
    {"logOffset":7}                  orders:{"orders":{"0":23}}
    -

Below the format and a line of metadata stand the sources' end offsets. In v1 each source has a line, in the order of
the plan, `-` without an offset. In v2 the lines have the sources' names (`.name(…)`; without source evolution numbers)
and come in the order of a hash that is another one in each run; a source without an offset has no line.

A query gets v2 at its first start, from `spark.sql.streaming.offsetLog.formatVersion=2` or
`spark.sql.streaming.queryEvolution.enableSourceEvolution`. Spark 4.3 leaves existing checkpoints in their format; an
upgrade (SPARK-55795 proposes one) makes a log whose files differ in format. Source: Spark's OffsetSeqLog, OffsetSeq,
StreamProgress, CheckpointVersionManager.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from spark_kafka_eos.errors import CheckpointUnusable

# Reads a file of the checkpoint by its path inside it; None if there is none.
ReadFile = Callable[[str], str | None]

RESTORE = "Restore the checkpoint, or start with a new checkpointLocation and startingOffsets=committed."


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedBatch:
    """One file. `ends` has each source's end offset (see `parsed`) under its name, in v2 (`named`) ordered by it; in v1
    the names are the positions "0", "1", …, in this order."""

    batch_id: int
    named: bool
    ends: Mapping[str, object]
    metadata: str

    @property
    def planned_at(self) -> int:
        """When the batch was planned, in milliseconds since 1970. CheckpointUnusable if the file does not tell."""
        try:
            return int(json.loads(self.metadata)["batchTimestampMs"])
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointUnusable(
                f"the checkpoint's file 'offsets/{self.batch_id}' does not tell when the batch was planned (its "
                f"metadata is {self.metadata!r})",
                action=RESTORE,
            ) from error


def planned_batch(read: ReadFile, batch_id: int) -> PlannedBatch:
    """The plan of `batch_id`. Raises CheckpointUnusable where there is none, or in a format that this release cannot
    read."""
    text = read(f"offsets/{batch_id}")
    version, *lines = (text or "").split("\n")
    if text is None or not lines:
        raise CheckpointUnusable(
            f"the checkpoint has no usable file 'offsets/{batch_id}', so the batch's range is not known", action=RESTORE
        )
    metadata, sources = lines[0], [line for line in lines[1:] if line]
    if version == "v1":
        named = [(str(number), end) for number, end in enumerate(sources)]
    elif version == "v2":
        named = sorted(_named(line, batch_id) for line in sources)
    else:
        raise CheckpointUnusable(
            f"the checkpoint's file 'offsets/{batch_id}' has format {version!r}; this release reads 'v1' and 'v2'",
            action="Run the query with a release that reads it, or give a new query "
            "spark.sql.streaming.offsetLog.formatVersion=1 before its first start.",
        )
    ends = {name: parsed(end) for name, end in named}
    return PlannedBatch(batch_id=batch_id, named=version == "v2", ends=ends, metadata=metadata)


def parsed(offset: str) -> object:
    """The JSON of a source's offset; the text itself where it is none, as `-`."""
    try:
        return json.loads(offset)
    except ValueError:
        return offset


def _named(line: str, batch_id: int) -> tuple[str, str]:
    name, colon, end = line.partition(":")  # names are letters, digits and underscores
    if not (name and colon and end):
        raise CheckpointUnusable(
            f"the checkpoint's file 'offsets/{batch_id}' has a line that names no source: {line!r}", action=RESTORE
        )
    return name, end
