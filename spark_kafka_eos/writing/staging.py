"""Blocks between the encode tasks and the driver: in files, or inline when they are few and small.

One file per task attempt, under `<staging directory>/<batch>-<call>/`. Task retries and speculative copies are
harmless: each writes a file of its own, and only the one whose report reached the driver is appended.

Each call for a batch has a folder that no other call uses, and removes it whatever became of the batch. What a crash
left behind goes when a later batch is settled. So nobody removes what another one still needs: not a driver that was
overtaken, which settles nothing, and not its successor, whose batches are never lower. And since all of it is about
disk space only, cleaning never fails: it logs what stays behind.
"""

from __future__ import annotations

import hashlib
import logging
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast
from urllib.parse import quote

from spark_kafka_eos.errors import KafkaEosError, StagingLost
from spark_kafka_eos.model import TopicPartition
from spark_kafka_eos.options import SinkOptions
from spark_kafka_eos.writing.files import Files, files_at

if TYPE_CHECKING:
    from io import BufferedIOBase

    from spark_kafka_eos.writing.blocks import Block

_log = logging.getLogger(__name__)

# Below this a task's blocks travel in its report: a file costs more than these bytes do on the driver's heap.
INLINE_BYTES = 100_000
_LONGEST_NAME = 200  # of a directory; file systems take 255 bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedBlock:
    """A block's place: `length` bytes at `offset` of the report's file, or `data` itself."""

    partition: TopicPartition
    records: int
    offset: int
    length: int
    data: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StageReport:
    """What one encode task made, in order; `path` is below the staging directory.

    `error` says why it stopped: then nothing of the batch may be appended, nor where its blocks were `too_large` to
    travel inline and had no other place.
    """

    task: int
    path: str | None
    blocks: tuple[StagedBlock, ...]
    error: KafkaEosError | None = None
    too_large: bool = False
    milliseconds: float = 0.0

    @property
    def bytes(self) -> int:
        return sum(block.length for block in self.blocks)


class TooLargeToTravel(Exception):
    """Blocks that were to travel in the tasks' reports did not fit; nothing of them was kept."""


class Staging:
    """The staging directory of one transactional.id; opens nothing until it is used (picklable).

    What a task makes beyond `inline_bytes` goes into a file; without a directory it is dropped, and the report says so.
    """

    def __init__(self, directory: str | None, inline_bytes: int = INLINE_BYTES) -> None:
        self.directory = directory
        self._inline_bytes = inline_bytes

    def stage(self, folder: str, task: int, blocks: Iterable[Block]) -> StageReport:
        """Write one task's blocks down, in this folder of the directory, and say where; runs in the task."""
        held: list[Block] = []
        size = 0
        source = iter(blocks)
        for block in source:
            held.append(block)
            size += len(block.data)
            if size > self._inline_bytes:
                if self.directory is None:
                    return StageReport(task=task, path=None, blocks=(), too_large=True)
                return self._write(folder, task, held, source)
        return StageReport(task=task, path=None, blocks=tuple(_staged(block, 0, bytes(block.data)) for block in held))

    def _write(self, folder: str, task: int, held: list[Block], rest: Iterator[Block]) -> StageReport:
        path = f"{folder}/{task}-{uuid.uuid4().hex}"
        staged, offset = [], 0
        with self._files().create(path) as stream:
            while held:
                block = held.pop(0)
                stream.write(block.data)
                staged.append(_staged(block, offset, None))
                offset += len(block.data)
                if not held and (following := next(rest, None)) is not None:
                    held.append(following)
        return StageReport(task=task, path=path, blocks=tuple(staged))

    def read(self, reports: Sequence[StageReport]) -> Iterator[tuple[StagedBlock, bytearray]]:
        """Every block of the reports, in the tasks' order, one in memory at a time."""
        for report in sorted(reports, key=lambda report: report.task):
            if report.path is None:
                yield from ((block, bytearray(block.data or b"")) for block in report.blocks)
                continue
            try:
                stream = self._files().open(report.path)
            except FileNotFoundError as error:
                raise StagingLost(
                    f"the staging file {self.directory}/{report.path} of encode task {report.task} is not to be found "
                    "from the driver",
                    action="Set the option 'stagingDir' to a directory that the driver and all executors share.",
                ) from error
            with stream:
                for block in report.blocks:
                    data = bytearray(block.length)
                    stream.seek(block.offset)
                    if cast("BufferedIOBase", stream).readinto(data) != block.length:
                        raise StagingLost(
                            f"the staging file {self.directory}/{report.path} ends before its block at {block.offset}",
                            action="Check the disk of 'stagingDir'; a restarted query writes the batch again.",
                        )
                    yield block, data

    def clean(self, folder: str) -> None:
        """Remove a folder that is the caller's own; one that was never made is fine."""
        with self._left_behind(folder):
            if self.directory is not None:
                self._files().remove(folder)

    def clean_before(self, batch_id: int) -> None:
        """Remove every folder of a batch before this one. For whoever has just settled `batch_id`."""
        if self.directory is None:
            return
        earlier: list[str] = []
        with self._left_behind(f"<a batch before {batch_id}>"):
            earlier += [name for name in self._files().directories() if _batch_of(name, batch_id) < batch_id]
        for folder in earlier:
            self.clean(folder)

    @contextmanager
    def _left_behind(self, what: str) -> Iterator[None]:
        """Log what could not be removed, whatever the file system raises: the batch is settled without it."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - each file system has errors of its own
            _log.warning(
                "staging files stay behind in %s/%s (remove them by hand if they do not go with a later batch): %s",
                self.directory,
                what,
                error,
            )

    def _files(self) -> Files:
        assert self.directory is not None
        return files_at(self.directory, "stagingDir")


def _staged(block: Block, offset: int, data: bytes | None) -> StagedBlock:
    return StagedBlock(
        partition=block.partition, records=block.records, offset=offset, length=len(block.data), data=data
    )


def folder_of(batch_id: int | str) -> str:
    """A new folder's name, for one call's files of this batch."""
    return f"{batch_id}-{uuid.uuid4().hex}"


def _batch_of(folder: str, otherwise: int) -> int:
    """The batch a folder belongs to; `otherwise` if its name tells none."""
    number = folder.partition("-")[0]
    return int(number) if number.isdecimal() else otherwise


def staging_of(options: SinkOptions, default: str) -> Staging:
    """The staging directory that the options name, or one inside `default`; each transactional.id has its own, and so
    has each `default` (the checkpoint) without one."""
    name = _component(options.transactional_id or default)
    return Staging(f"{options.staging_dir or default}/kafka-eos-staging/{name}")


def _component(name: str) -> str:
    """`name` as one component of a path, no two names as the same: `orders/7` must not lie within `orders`.

    As URLs are quoted, but by `~`: where the directory is an URI, `%2F` is read as a slash.
    """
    quoted = quote(name, safe="").replace("~", "%7E").replace("%", "~")
    if len(quoted) > _LONGEST_NAME:
        return f"{quoted[:100]}~~{hashlib.sha256(name.encode()).hexdigest()}"  # nothing is quoted as ~~
    return quoted if quoted.strip(".") else quoted.replace(".", "~2E")
