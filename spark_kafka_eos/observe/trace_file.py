"""The option `traceDir`: a file of JSON lines for each transactional.id, which is bounded and private to its owner.

A line is a batch's report (`CommitReport.to_json`). When a file reaches half of its limit, it replaces its predecessor
(`NAME.jsonl.1`) and a new one begins, so the last batches are always there. A line is appended with one write, so that
processes do not mix theirs.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
from collections.abc import Iterator, Mapping
from datetime import datetime
from io import FileIO
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from spark_kafka_eos.appending import private_folders
from spark_kafka_eos.appending.private_folders import Others, UnsafeFolder

_HALF = 4 << 20
_SPARK = "spark"  # the folder of the triggers, by query id


def append(folder: Path, name: str, line: Mapping[str, Any]) -> None:
    """Append `line` to the file of `name`. Raises OSError, also if the folder or the file is somebody else's."""
    private_folders.make(folder)
    private_folders.look(private_folders.followed(folder), Others.ADD)
    path = file_of(folder, name)
    text = json.dumps(line, separators=(",", ":")).encode() + b"\n"
    with _opened(path) as file:
        if os.fstat(file.fileno()).st_size < _HALF:
            file.write(text)
            return
        fcntl.flock(file, fcntl.LOCK_EX)
        if _is_at(path, file):  # else another process has just done it: a second time would drop what was kept
            path.replace(_before(path))
    with _opened(path) as file:
        file.write(text)


def _is_at(path: Path, file: FileIO) -> bool:
    """Whether the open file still has this path."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _opened(path: Path) -> FileIO:
    """The file to append to, without a buffer. It is neither a link nor a queue, and nobody else can have made it."""
    opened = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    status = os.fstat(opened)
    foreign = status.st_uid != os.geteuid() and private_folders.keeps_owners(path.parent)
    if foreign or not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
        os.close(opened)
        raise UnsafeFolder(f"{path} is not a file of this user alone (of user {status.st_uid}): find out who made it")
    return FileIO(opened, "ab")


def read(folder: Path, name: str) -> Iterator[dict[str, Any]]:
    """The lines of `name`, the oldest first, without those that are damaged. Raises OSError, if there is a file."""
    path = file_of(folder, name)
    for part in (_before(path), path):
        if part.exists():
            with part.open(encoding="utf-8") as lines:
                for line in lines:
                    try:
                        yield json.loads(line)
                    except ValueError:  # the disk was full
                        continue


def append_trigger(folder: Path, query_id: str, batch_id: int, timestamp: str, durations: Mapping[str, float]) -> None:
    """Append the phases of a batch's trigger, which began at `timestamp`, as Spark reports them. Raises OSError."""
    began_ms = datetime.fromisoformat(timestamp).timestamp() * 1e3
    append(folder / _SPARK, query_id, {"batch_id": batch_id, "began_ms": began_ms, "durations": dict(durations)})


def read_trigger(folder: Path, query_id: str, batch_id: int) -> tuple[float, dict[str, float]] | None:
    """When the trigger of a batch began (milliseconds since 1970) and its phases; None if that is not known."""
    triggers = [line for line in read(folder / _SPARK, query_id) if line["batch_id"] == batch_id]
    return (triggers[-1]["began_ms"], triggers[-1]["durations"]) if triggers else None


def names(folder: Path) -> list[str]:
    """The names that have a file, sorted, without the escapes of characters that a file's name cannot have."""
    return sorted(unquote(path.name.removesuffix(".jsonl")) for path in folder.glob("*.jsonl"))


def file_of(folder: Path, name: str) -> Path:
    """The file of `name`."""
    return folder / f"{quote(name, safe='')}.jsonl"


def _before(path: Path) -> Path:
    return path.with_name(f"{path.name}.1")
