"""Named points at which a test can hold a process in order to kill it: deterministic, and one comparison if not used.

`KAFKA_EOS_FAILPOINT` is a point, optionally with the micro-batch (`half appended@3`), and `KAFKA_EOS_FAILPOINT_DIR` a
folder. The process that reaches the point writes its pid to the file `reached` there, and waits to be killed. Once that
file exists, the point is ignored, so that a restarted query continues.

`KAFKA_EOS_FAILPOINT_HOLDS=2` also holds the second process (`reached-2`). Writing to the pipe `release-<pid>` releases
a held process, which then is a straggler.
"""

from __future__ import annotations

import os
from pathlib import Path

# In the order in which a micro-batch reaches them.
POINTS = (
    "begun",  # nothing of the batch was sent; Spark has recorded the previous one
    "initialised",  # InitProducerId answered, ledger read
    "before append",  # nothing appended yet
    "partitions added",  # AddPartitionsToTxn answered (TV1; in TV2 the first append adds a partition), nothing appended
    "half appended",  # at least one record batch acknowledged, at least one not yet sent
    "all appended",  # every append acknowledged, no offsets committed
    "offsets committed",  # TxnOffsetCommit acknowledged, EndTxn not sent
    "ended",  # EndTxn acknowledged, Spark has not yet written its commit
)

# Those of a batch with a participant, before `initialised` and between `offsets committed` and `ended`.
WITH_TABLE = (
    "table fenced",  # the table's version is a new one, the transactional.id is not taken yet
    "table half committed",  # rows and token are in the open transaction of a SqlTable's database, or the rows on a
    # staging branch of an IcebergParticipant
    "table committed",  # the table has rows and token, EndTxn not sent
)

# Those of a bucket's transaction in real time.
IN_REAL_TIME = (
    "bucket appended",  # every append acknowledged, no offsets sent
    "bucket offsets sent",  # TxnOffsetCommit acknowledged, EndTxn not sent
    "bucket committed",  # EndTxn acknowledged
    "buckets taken",  # the driver has a new epoch for each bucket, and the ledger does not say so yet
)

_ARMED = os.environ.get("KAFKA_EOS_FAILPOINT")


def armed(name: str) -> bool:
    """Whether a test armed `name`, for a point that must first wait for the surrounding code."""
    return _ARMED is not None and _ARMED.partition("@")[0] == name


def failpoint(name: str, batch_id: int | None = None) -> None:
    """Hold this process at `name` if a test armed that point for this micro-batch; else do nothing."""
    if _ARMED is None:
        return
    point, _, batch = _ARMED.partition("@")
    names = (*POINTS, *WITH_TABLE, *IN_REAL_TIME)
    if point not in names or name not in names:
        raise ValueError(f"no failpoint {point!r} or {name!r}; there are: {', '.join(names)}")
    if point != name or (batch and batch_id is not None and int(batch) != batch_id):
        return
    folder = Path(os.environ["KAFKA_EOS_FAILPOINT_DIR"])
    for number in range(1, 1 + int(os.environ.get("KAFKA_EOS_FAILPOINT_HOLDS", "1"))):
        reached = folder / ("reached" if number == 1 else f"reached-{number}")
        if not reached.exists() and _held(folder, reached):
            return


def _held(folder: Path, reached: Path) -> bool:
    """Write `reached` and wait until released; False if another process, or another thread, was faster."""
    pid = os.getpid()
    partial, release = folder / f"partial-{pid}", folder / f"release-{pid}"
    try:
        os.mkfifo(release)
    except FileExistsError:
        return False
    partial.write_text(str(pid))
    try:
        os.link(partial, reached)  # for one process only, and never half written
        release.read_bytes()  # waits until someone has written to it
    except FileExistsError:
        return False
    finally:
        release.unlink()
        partial.unlink()
    return True
