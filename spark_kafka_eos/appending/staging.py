"""Passes blocks from the encode tasks to the driver: in files, or inline if they are small.

Each task attempt writes one file, in `<staging directory>/<batch>-<call>/`. Later attempts and speculative copies are
harmless: each writes its own file, and only the one whose report reaches the driver is appended.

Files are private: only their user may read them. Each block's CRC is verified when it is appended (wire.record_batch).
Others may be able to write to `stagingDir` itself. So what is there under the names that are given here must be this
user's, and no link (appending.private_folders), and only what has such a name is removed.

The disk never becomes full because of them: each task refuses to write what would leave too little free
(appending.staging_space).

Each call for a batch has its own folder, and removes it whatever the outcome. Folders left behind by a crash are
removed when a later batch is committed: those that were there before that commit. So no driver removes files that
another one still needs. A late driver commits nothing, so it removes nothing but its own folder. And the successor's
batch ids are never lower, unless a lost checkpoint lets them begin at 0 again. Then its folders are either later than
the commit, and stay, or its batch was planned before the commit, and is refused: it does not start where the committed
batch ended. What attempts at the same batch left behind may be removed by the transactional id's owner, if it was there
before the owner's InitProducerId, which fenced them. Cleaning only saves disk space, so it never fails: it logs what it
could not remove.
"""

from __future__ import annotations

import errno
import hashlib
import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Literal, cast
from urllib.parse import quote

from spark_kafka_eos.appending import private_folders
from spark_kafka_eos.appending.files import Files, LocalFiles, files_at
from spark_kafka_eos.appending.private_folders import Others, UnsafeFolder
from spark_kafka_eos.appending.report import EncodedBlock, EncodeReport, encoded
from spark_kafka_eos.appending.staging_space import allowance
from spark_kafka_eos.errors import StagingFull, StagingLost
from spark_kafka_eos.kafka.logs import logger
from spark_kafka_eos.options import SinkOptions

if TYPE_CHECKING:
    from io import BufferedIOBase

    from spark_kafka_eos.appending.blocks import Block

_log = logger(__name__)

# Up to this size, a task's blocks are part of its report: a file costs more than these bytes on the driver's heap.
INLINE_BYTES = 100_000
# How long a batch write may take. Afterwards, the next one removes its files: nobody else knows that it was killed.
KEPT_SECONDS = 7 * 86_400
_FOLDER, _RUN = re.compile(r"(\d{1,19})-[0-9a-f]{32}"), re.compile(r"run-(\d{1,15})-[0-9a-f]{32}")
_OWN = "kafka-eos-staging"  # within stagingDir
_SERVERS_DIGITS = 8
_LONGEST_NAME = 200  # of a directory; file systems allow 255 bytes
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_MAKE_ROOM = (
    "Make room there, or set stagingDir to a directory on a larger disk; or make batches smaller "
    "(maxOffsetsPerTrigger, maxBytesPerTrigger); or use TransactionalWriter with appendMode=executors, which stages "
    "nothing. Files left behind by crashed drivers can be deleted if no other driver of this query is running."
)


class TooLargeToTravel(Exception):
    """Blocks were too large to be sent in the tasks' reports; none of them were kept."""


class Staging:
    """The staging directory of one transactional.id. Opens nothing until it is used; can be pickled.

    If a task's blocks exceed `inline_bytes`, they are written to a file. Without a directory they are dropped, and the
    report says so.
    """

    def __init__(self, directory: str | None, inline_bytes: int = INLINE_BYTES) -> None:
        self.directory = directory
        self._inline_bytes = inline_bytes

    def probe(self) -> None:
        """Write and remove a file. Raises StagingFull, ConfigurationError for an unknown scheme, and what a file system
        raises.
        """
        self._admit(self._files(), self._inline_bytes, "a task with the smallest staging file")
        folder = folder_of("probe")
        with self._files(making=True).create(f"{folder}/file") as stream:
            stream.write(b"kafka-eos")
        self._files().remove(folder)

    def _admit(self, files: Files, needed: int, what: str) -> int:
        """How many bytes `what`, which needs this many, may write before it asks again. Raises StagingFull."""
        space = files.space()
        allowed = allowance(space, needed)
        if allowed is not None:
            return allowed
        assert space is not None
        raise StagingFull(
            f"{what} needs {_megabytes(needed)} in the staging directory {self.directory}, whose file system has "
            f"{_megabytes(space.free)} of {_megabytes(space.total)} free; {_megabytes(space.reserve)} stay free for "
            "other programs",
            action=_MAKE_ROOM,
        )

    def stage(self, folder: str, task: int, blocks: Iterable[Block]) -> EncodeReport:
        """Store one task's blocks, in this folder of the directory if needed; runs in the task."""
        buffered: list[Block] = []
        size = 0
        source = iter(blocks)
        for block in source:
            buffered.append(block)
            size += len(block.data)
            if size > self._inline_bytes:
                if self.directory is None:
                    return EncodeReport(task=task, too_large=True)
                return self._write(folder, task, buffered, source)
        return EncodeReport(task=task, blocks=tuple(encoded(block, data=bytes(block.data)) for block in buffered))

    def _write(self, folder: str, task: int, buffered: list[Block], rest: Iterator[Block]) -> EncodeReport:
        path = f"{folder}/{task}-{uuid.uuid4().hex}"
        staged, offset, allowed = [], 0, 0
        with self._stored("write", path, task):
            files = self._files(making=True)
            stream = files.create(path)
        try:
            while buffered:
                block = buffered.pop(0)
                with self._stored("write", path, task):
                    if len(block.data) > allowed:
                        allowed = self._admit(files, len(block.data), f"a block of encode task {task}")
                    stream.write(block.data)
                allowed -= len(block.data)
                staged.append(encoded(block, offset=offset))
                offset += len(block.data)
                if not buffered and (following := next(rest, None)) is not None:
                    buffered.append(following)
            with self._stored("write", path, task):
                stream.close()
        except BaseException:
            with suppress(OSError):  # of the same disk, for the same reason
                stream.close()
            raise
        return EncodeReport(task=task, path=path, blocks=tuple(staged))

    def read(self, reports: Sequence[EncodeReport]) -> Iterator[tuple[EncodedBlock, bytearray]]:
        """Every block of the reports, in the tasks' order. Only one of them is in memory at a time."""
        for report in sorted(reports, key=lambda report: report.task):
            if report.path is None:
                yield from ((block, bytearray(block.data or b"")) for block in report.blocks)
                continue
            with self._stored("read", report.path, report.task):
                stream = self._files().open(report.path)
            with stream:
                for block in report.blocks:
                    data = bytearray(block.length)
                    with self._stored("read", report.path, report.task):
                        stream.seek(block.offset)
                        length = cast("BufferedIOBase", stream).readinto(data)
                    if length != block.length:
                        raise StagingLost(
                            f"the staging file {self.directory}/{report.path} is truncated: it has no block at "
                            f"{block.offset}",
                            action="Check the disk of stagingDir and restart the query; it writes the batch again.",
                        )
                    yield block, data

    @contextmanager
    def _stored(self, what: Literal["read", "write"], path: str, task: int) -> Iterator[None]:
        """Raise StagingLost instead of a file system's error."""
        file = f"the staging file {self.directory}/{path} of encode task {task}"
        try:
            yield
        except FileNotFoundError as error:
            raise StagingLost(
                f"the driver cannot find {file}",
                action="Set the option stagingDir to a directory that the driver and all executors share.",
            ) from error
        except OSError as error:
            if error.errno in _FULL:
                raise StagingFull(f"cannot {what} {file}: {error.strerror}", action=_MAKE_ROOM) from error
            raise StagingLost(
                f"cannot {what} {file}: {error.strerror or error}",
                action="Check its disk, and that driver and executors run as a user who may use it, or set the option "
                "stagingDir to another directory.",
            ) from error

    def clean(self, folder: str) -> None:
        """Remove the caller's own folder. Does nothing if it does not exist."""
        with self._left_behind(folder):
            if self.directory is not None:
                self._files().remove(folder)

    def clean_all(self, folders: Iterable[str]) -> None:
        """Remove what `folders_before` returned before `batch_id` was committed. Call it after that commit."""
        for folder in folders:
            self.clean(folder)

    def folders_before(self, batch_id: int) -> list[str]:
        """The folders of all batches before this one; those that can be found."""
        earlier: list[str] = []
        if self.directory is not None:
            with self._left_behind(f"<a batch before {batch_id}>"):
                earlier += [name for name in self._files().directories() if _batch_of(name, batch_id) < batch_id]
        return earlier

    def clean_old(self, now: float) -> None:
        """Remove the folders of runs that began more than a week before `now` (seconds since 1970)."""
        old: list[str] = []
        with self._left_behind("<an earlier run>"):
            old += [name for name in self._files().directories() if now - _began(name, now) > KEPT_SECONDS]
        for folder in old:
            self.clean(folder)

    @contextmanager
    def _left_behind(self, what: str) -> Iterator[None]:
        """Log files that could not be removed, whatever the file system raises: the batch is settled anyway."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - each file system has its own errors
            _log.warning(
                "cannot remove staging files in %s/%s (remove them manually if a later batch does not): %s",
                self.directory,
                what,
                error,
            )

    def _files(self, *, making: bool = False) -> Files:
        """The directory's files; `making` if the directory is to be created."""
        assert self.directory is not None
        files = files_at(self.directory, "stagingDir")
        if isinstance(files, LocalFiles):
            if making:
                private_folders.make(files.root)
            try:
                if files.root.parent.name == _OWN:  # other users may have theirs beside
                    private_folders.look(files.root.parent, Others.ADD)
                private_folders.look(files.root, Others.NOTHING)
            except UnsafeFolder as error:
                raise StagingLost(
                    f"the staging directory {error}",
                    action="Find out who may write to stagingDir, or set the option to a directory of your own.",
                ) from None
        return files


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"


def folder_of(batch_id: int | str) -> str:
    """A new folder name, for the files of one call for this batch."""
    return f"{batch_id}-{uuid.uuid4().hex}"


def folder_of_run(now: float) -> str:
    """A new folder name, for the files of one batch write that begins `now` (seconds since 1970)."""
    return f"run-{int(now)}-{uuid.uuid4().hex}"


def _began(folder: str, otherwise: float) -> float:
    """When the run that a folder belongs to began; `otherwise` if its name does not say so."""
    match = _RUN.fullmatch(folder)
    return int(match[1]) if match else otherwise


def _batch_of(folder: str, otherwise: int) -> int:
    """The batch that a folder belongs to; `otherwise` if it has no name of `folder_of`."""
    match = _FOLDER.fullmatch(folder)
    return int(match[1]) if match else otherwise


def staging_of(options: SinkOptions, default: str) -> Staging:
    """The staging directory from the options, or inside `default`. Each transactional.id of each cluster has its own;
    without one, each `default` (the checkpoint) has.
    """
    name = options.transactional_id or default
    if options.transactional_id and options.staging_dir:  # another cluster's query of this id may share it
        servers = ",".join(f"{host}:{port}" for host, port in sorted(options.client.bootstrap_servers))
        name += f"-{hashlib.sha256(servers.encode()).hexdigest()[:_SERVERS_DIGITS]}"
    return Staging(f"{options.staging_dir or default}/{_OWN}/{_component(name)}")


def _component(name: str) -> str:
    """`name` as one path component, different for every name: `orders/7` must not be inside `orders`.

    Quoted like a URL, but with `~`: if the directory is a URI, `%2F` would be read as a slash.
    """
    quoted = quote(name, safe="").replace("~", "%7E").replace("%", "~")
    if len(quoted) > _LONGEST_NAME:
        return f"{quoted[:100]}~~{hashlib.sha256(name.encode()).hexdigest()}"  # quoting never produces ~~
    return quoted if quoted.strip(".") else quoted.replace(".", "~2E")
