"""Reads Spark's offset log, `offsets/<batch>` in a checkpoint: the planned offsets of a micro-batch. Two formats:

    v1                               v2
    {"batchTimestampMs":…,…}         {"batchTimestampMs":…,…}
    {"orders":{"0":23}}              files:{"logOffset":7}
    {"logOffset":7}                  orders:{"orders":{"0":23}}
    -

The first line is the format, the second one metadata; the others are the sources' end offsets. In v1, each source has a
line, in the order of the plan, with `-` if it has no offset. In v2, lines start with the sources' names (`.name(…)`;
numbers without source evolution), in a hash order that differs between runs; a source without an offset has no line.

A query uses v2 if it was first started with `spark.sql.streaming.offsetLog.formatVersion=2` or
`spark.sql.streaming.queryEvolution.enableSourceEvolution`. Spark 4.3 does not convert existing checkpoints; an upgrade
(proposed in SPARK-55795) would create a log with files of both formats. Source: Spark's OffsetSeqLog, OffsetSeq,
StreamProgress, CheckpointVersionManager.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from spark_kafka_eos.errors import CheckpointUnusable

# Reads a file of the checkpoint by its relative path; None if it does not exist.
ReadFile = Callable[[str], str | None]

RESTORE = "Restore the checkpoint, or start with a new checkpointLocation and startingOffsets=committed."


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedBatch:
    """One file. `ends` maps each source's name to its end offset (see `parsed`). In v2 (`named`) it is sorted by name;
    in v1 the names are the positions "0", "1", … in the order of the plan.
    """

    batch_id: int
    named: bool
    ends: Mapping[str, object]
    metadata: str

    @property
    def planned_at(self) -> int:
        """When the batch was planned, in milliseconds since 1970. Raises CheckpointUnusable if the file lacks it."""
        try:
            return int(json.loads(self.metadata)["batchTimestampMs"])
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointUnusable(
                f"the checkpoint's file 'offsets/{self.batch_id}' does not contain the time of planning (its metadata "
                f"is {self.metadata!r})",
                action=RESTORE,
            ) from error


def planned_batch(read: ReadFile, batch_id: int) -> PlannedBatch:
    """The plan of `batch_id`. Raises CheckpointUnusable if there is none, or its format is unknown."""
    text = read(f"offsets/{batch_id}")
    version, *lines = (text or "").split("\n")
    if text is None or not lines:
        raise CheckpointUnusable(
            f"the checkpoint has no valid file 'offsets/{batch_id}', so the batch's offsets are unknown", action=RESTORE
        )
    metadata, sources = lines[0], [line for line in lines[1:] if line]
    if version == "v1":
        named = [(str(number), end) for number, end in enumerate(sources)]
    elif version == "v2":
        named = sorted(_named(line, batch_id) for line in sources)
    else:
        raise CheckpointUnusable(
            f"the checkpoint's file 'offsets/{batch_id}' has format {version!r}; this release supports 'v1' and 'v2'",
            action="Run the query with a release that supports it, or set "
            "spark.sql.streaming.offsetLog.formatVersion=1 for a new query before its first start.",
        )
    ends = {name: parsed(end) for name, end in named}
    if not ends:  # as a file that was cut off has: without sources, the batch would be one that reads nothing
        raise CheckpointUnusable(
            f"the checkpoint's file 'offsets/{batch_id}' has no source, so the batch's offsets are unknown",
            action=RESTORE,
        )
    return PlannedBatch(batch_id=batch_id, named=version == "v2", ends=ends, metadata=metadata)


def parsed(offset: str) -> object:
    """A source's offset as parsed JSON; the text itself if it is not JSON, such as `-`."""
    try:
        return json.loads(offset)
    except ValueError:
        return offset


def _named(line: str, batch_id: int) -> tuple[str, str]:
    name, colon, end = line.partition(":")  # names consist of letters, digits and underscores
    if not (name and colon and end):
        raise CheckpointUnusable(
            f"the checkpoint's file 'offsets/{batch_id}' has a line without a source name: {line!r}", action=RESTORE
        )
    return name, end
