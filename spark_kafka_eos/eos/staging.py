"""Blocks between the encode tasks and the driver: in files, or inline when they are few and small.

One file per task attempt, under `<staging directory>/<batch>/`. Task retries and speculative copies are harmless: each
writes a file of its own, and only the one whose report reached the driver is appended. Files are removed with every
older batch's once a batch is settled, so what a crash left behind goes with the next commit.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from spark_kafka_eos.eos.files import Files, files_at
from spark_kafka_eos.errors import KafkaEosError
from spark_kafka_eos.model import TopicPartition
from spark_kafka_eos.options import SinkOptions

if TYPE_CHECKING:
    from io import BufferedIOBase

    from spark_kafka_eos.eos.blocks import Block

# Below this a task's blocks travel in its report: a file costs more than these bytes do on the driver's heap.
INLINE_BYTES = 100_000


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
        self._directory = directory
        self._inline_bytes = inline_bytes

    def stage(self, batch: str, task: int, blocks: Iterable[Block]) -> StageReport:
        """Write one task's blocks down and say where; runs in the task."""
        held: list[Block] = []
        size = 0
        source = iter(blocks)
        for block in source:
            held.append(block)
            size += len(block.data)
            if size > self._inline_bytes:
                if self._directory is None:
                    return StageReport(task=task, path=None, blocks=(), too_large=True)
                return self._write(batch, task, held, source)
        return StageReport(task=task, path=None, blocks=tuple(_staged(block, 0, bytes(block.data)) for block in held))

    def _write(self, batch: str, task: int, held: list[Block], rest: Iterator[Block]) -> StageReport:
        path = f"{batch}/{task}-{uuid.uuid4().hex}"
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
                raise KafkaEosError(
                    f"the staging file {self._directory}/{report.path} of encode task {report.task} is not to be found "
                    "from the driver",
                    action="Set the option 'stagingDir' to a directory that the driver and all executors share.",
                ) from error
            with stream:
                for block in report.blocks:
                    data = bytearray(block.length)
                    stream.seek(block.offset)
                    if cast("BufferedIOBase", stream).readinto(data) != block.length:
                        raise KafkaEosError(
                            f"the staging file {self._directory}/{report.path} ends before its block at {block.offset}",
                            action="Check the disk of 'stagingDir'; a restarted query writes the batch again.",
                        )
                    yield block, data

    def clean(self, batch: str) -> None:
        """Remove the files of `batch` and, if batches are numbered, of all before it. A file that is gone already is
        fine."""
        if self._directory is None:
            return
        files = self._files()
        for name in files.directories():
            if name == batch or (batch.isdigit() and name.isdigit() and int(name) <= int(batch)):
                files.remove(name)

    def _files(self) -> Files:
        assert self._directory is not None
        return files_at(self._directory, "stagingDir")


def _staged(block: Block, offset: int, data: bytes | None) -> StagedBlock:
    return StagedBlock(
        partition=block.partition, records=block.records, offset=offset, length=len(block.data), data=data
    )


def staging_of(options: SinkOptions, default: str) -> Staging:
    """The staging directory that the options name, or one inside `default`; each transactional.id has its own."""
    return Staging(f"{options.staging_dir or default}/kafka-eos-staging/{options.transactional_id}")
