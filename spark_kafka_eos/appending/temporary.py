"""Staging of a batch write without `stagingDir`: in a new private directory of the driver, or in the tasks' messages.

Only the driver's own disk is known to exist. A task that sees the directory runs on the same disk, or shares it, and
writes its blocks there. Other tasks, on a cluster, send larger blocks inline, which needs no shared disk; if a task has
too many, the write fails before anything is sent to Kafka.

The directory has a random name, belongs to the user, and nobody else may enter it, so nobody can put links or files of
their own into it. The commit removes it. If the driver was killed, the user's next batch write on that machine removes
it a week later.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from spark_kafka_eos.appending.files import Files
from spark_kafka_eos.appending.report import EncodeReport
from spark_kafka_eos.appending.staging import KEPT_SECONDS, Staging
from spark_kafka_eos.errors import ConfigurationError, StagingLost
from spark_kafka_eos.kafka.logs import logger

if TYPE_CHECKING:
    from spark_kafka_eos.appending.blocks import Block

_log = logger(__name__)

PREFIX = "kafka-eos-batch-write-"
# What a task may send inline. Spark limits all tasks together (spark.driver.maxResultSize, 1 GiB).
CARRIED_BYTES = 16 << 20


class TemporaryStaging(Staging):
    """A new private directory in `root`, by default the temporary directory of the driver, where it must be created.
    Tasks and the commit get it pickled. `now` is in seconds since 1970.

    Raises ConfigurationError if there is no writable temporary directory.
    """

    def __init__(self, now: float, root: str | None = None) -> None:
        try:
            root = root or tempfile.gettempdir()
            directory = tempfile.mkdtemp(prefix=PREFIX, dir=root)  # mode 0700
        except OSError as error:
            raise ConfigurationError(
                "stagingDir", f"is required, because the driver cannot create a temporary directory: {error}"
            ) from error
        super().__init__(directory)
        _sweep(Path(root), now)

    def stage(self, folder: str, task: int, blocks: Iterable[Block]) -> EncodeReport:
        if is_private(self.directory):
            return super().stage(folder, task, blocks)
        report = Staging(None, inline_bytes=CARRIED_BYTES).stage(folder, task, blocks)
        if report.too_large:
            raise StagingLost(
                f"encode task {task} has more than {CARRIED_BYTES >> 20} MiB of record batches, which is too much to "
                f"send to the driver, and cannot write them to {self.directory}, which is on the driver's disk",
                action="Set the option stagingDir to a directory that the driver and all executors share, or "
                "repartition the DataFrame into more tasks.",
            )
        return report

    def clean(self, folder: str) -> None:
        with self._left_behind(folder):
            if is_private(self.directory):
                shutil.rmtree(str(self.directory))

    def clean_old(self, now: float) -> None:
        """Does nothing: the constructor has done it."""

    def _files(self, *, making: bool = False) -> Files:
        if not is_private(self.directory):
            raise StagingLost(
                f"the temporary directory {self.directory} of this batch write was removed or replaced",
                action="Run the job again; if something cleans up that directory, set the option stagingDir.",
            )
        return super()._files(making=making)


def is_private(directory: str | Path | None, user: int | None = None) -> bool:
    """Whether this directory exists here, is no link, and only `user` may enter it, by default this process's."""
    user = os.geteuid() if user is None else user
    try:
        status = os.lstat(str(directory))
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == user and not status.st_mode & 0o077


def _sweep(root: Path, now: float) -> None:
    """Remove the user's directories that nothing was written to for a week."""
    try:
        for path in root.glob(f"{PREFIX}*"):
            if is_private(path) and now - _last_written(path) > KEPT_SECONDS:
                shutil.rmtree(path)
                _log.info("removed %s, which a batch write left behind", path)
    except OSError as error:
        _log.warning("cannot remove what earlier batch writes left behind in %s: %s", root, error)


def _last_written(directory: Path) -> float:
    return max(path.lstat().st_mtime for path in (directory, *directory.rglob("*")))
