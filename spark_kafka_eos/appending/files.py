"""Files in the checkpoint's file system: a plain path, `file:`, `dbfs:`, or any URI that pyarrow.fs or fsspec supports.

Local files, the common case, do not need pyarrow: the first commit of a process would wait for its import.
"""

from __future__ import annotations

import os
import shutil
import time
import weakref
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from spark_kafka_eos.appending import private_folders
from spark_kafka_eos.appending.staging_space import Space
from spark_kafka_eos.errors import ConfigurationError

if TYPE_CHECKING:
    from pyarrow import fs


class Files(Protocol):
    """The files below one directory; paths are relative to it and separated by `/`."""

    def read_text(self, path: str) -> str | None:
        """The content of a small UTF-8 file; None if it does not exist."""

    def read_texts(self, paths: Collection[str]) -> dict[str, str | None]:
        """The same of several files; at the same time, where each takes a round trip."""

    def create(self, path: str) -> IO[bytes]:
        """A new file to write; creates its parent directories. Raises OSError.

        On a local file system, only the user may read the file and list its directory.
        """

    def open(self, path: str) -> IO[bytes]:
        """A file to read, with `seek` and `readinto`. Raises FileNotFoundError."""

    def directories(self) -> list[str]:
        """The names of the subdirectories; empty if the directory does not exist."""

    def names(self, directory: str) -> list[str]:
        """The names of the files in a subdirectory; empty if it does not exist."""

    def remove(self, directory: str) -> None:
        """Remove a subdirectory with its content. Does nothing if it does not exist."""

    def space(self) -> Space | None:
        """The space where the directory is or will be created; None if the file system does not report it."""


@dataclass(frozen=True, slots=True)
class LocalFiles:
    """`Files` on a local or mounted file system."""

    root: Path

    def read_text(self, path: str) -> str | None:
        try:
            return (self.root / path).read_text(encoding="utf-8")
        except (FileNotFoundError, IsADirectoryError):
            return None

    def read_texts(self, paths: Collection[str]) -> dict[str, str | None]:
        return {path: self.read_text(path) for path in paths}

    def create(self, path: str) -> IO[bytes]:
        private_folders.make((self.root / path).parent)
        new = os.open(self.root / path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        return open(new, "wb")  # noqa: PTH123 - a descriptor; buffered: a raw file may write only a part

    def open(self, path: str) -> IO[bytes]:
        descriptor = os.open(self.root / path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        return open(descriptor, "rb")  # noqa: PTH123 - a descriptor

    def directories(self) -> list[str]:
        return [child.name for child in self.root.iterdir() if child.is_dir()] if self.root.is_dir() else []

    def names(self, directory: str) -> list[str]:
        path = self.root / directory
        return [child.name for child in path.iterdir() if child.is_file()] if path.is_dir() else []

    def remove(self, directory: str) -> None:
        if (self.root / directory).is_dir():
            shutil.rmtree(self.root / directory)

    def space(self) -> Space | None:
        root = self.root.absolute()
        for directory in (root, *root.parents):
            try:
                statistics = os.statvfs(directory)
            except FileNotFoundError:
                continue
            except OSError:  # no access; who writes there gets the error
                return None
            space = Space(
                free=statistics.f_bavail * statistics.f_frsize, total=statistics.f_blocks * statistics.f_frsize
            )
            return space if space.total else None
        return None


@dataclass(frozen=True, slots=True)
class ArrowFiles:
    """`Files` on a file system of pyarrow or fsspec."""

    filesystem: fs.FileSystem
    root: str

    def read_text(self, path: str) -> str | None:
        for waited in _S3_WAITS:
            try:
                return self._read_text(path)
            except OSError as error:
                if _TOO_LONG_AN_ANSWER not in str(error):
                    raise
                time.sleep(waited)
        return self._read_text(path)

    def _read_text(self, path: str) -> str | None:
        try:
            with self.open(path) as stream:
                return stream.read().decode()
        except FileNotFoundError:
            return None

    def read_texts(self, paths: Collection[str]) -> dict[str, str | None]:
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(max_workers=len(paths)) as pool:
            return dict(zip(paths, pool.map(self.read_text, paths), strict=True))

    def create(self, path: str) -> IO[bytes]:
        self.filesystem.create_dir(f"{self.root}/{path}".rpartition("/")[0], recursive=True)
        return self._held(self.filesystem.open_output_stream(f"{self.root}/{path}", buffer_size=None))

    def open(self, path: str) -> IO[bytes]:
        return self._held(self.filesystem.open_input_file(f"{self.root}/{path}"))

    def _held(self, stream: Any) -> IO[bytes]:
        """The stream, which keeps its file system. A stream of pyarrow does not: HDFS's client closes all of its files
        when the file system is collected as garbage.
        """
        weakref.finalize(stream, _let_go, self.filesystem).atexit = False
        return stream  # type: ignore[no-any-return]

    def directories(self) -> list[str]:
        from pyarrow import fs

        return self._children(self.root, fs.FileType.Directory)

    def names(self, directory: str) -> list[str]:
        from pyarrow import fs

        return self._children(f"{self.root}/{directory}", fs.FileType.File)

    def _children(self, path: str, kind: fs.FileType) -> list[str]:
        from pyarrow import fs

        children = self.filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True))
        return [info.base_name for info in children if info.type == kind]

    def remove(self, directory: str) -> None:
        from pyarrow import fs

        path = f"{self.root}/{directory}"
        if self.filesystem.get_file_info(path).type == fs.FileType.Directory:
            self.filesystem.delete_dir(path)

    def space(self) -> Space | None:
        return None


def _let_go(filesystem: fs.FileSystem) -> None:
    """Nothing: who waits to call this keeps the file system."""


# Hadoop's name of a scheme: the one that pyarrow.fs knows.
_SCHEMES = {"s3a": "s3"}
_S3_ATTEMPTS = 5  # as Hadoop's fs.s3a.attempts.maximum; up to 15 s between them together
# What pyarrow says if an answer of S3 that tells of an error, such as 503, is longer than the file that it reads. AWS's
# client does not ask again then.
_TOO_LONG_AN_ANSWER = "AWS Error INTERNAL_FAILURE during GetObject"
_S3_WAITS = (0.2, 0.4, 0.8, 1.6)  # seconds


def files_at(location: str, option: str) -> Files:
    """The files below `location`. Raises ConfigurationError, with the name `option`, if this process cannot open it."""
    scheme = urlsplit(location).scheme
    if scheme in ("", "file"):
        return LocalFiles(Path(_local_path(location)))
    if scheme == "dbfs":
        return LocalFiles(_mounted(location, option))
    import pyarrow as pa
    from pyarrow import fs

    try:
        filesystem, root = fs.FileSystem.from_uri(_SCHEMES.get(scheme, scheme) + location[len(scheme) :])
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as native:
        try:
            from fsspec.core import url_to_fs

            theirs, root = url_to_fs(location)
            filesystem = fs.PyFileSystem(fs.FSSpecHandler(theirs))
        except Exception as error:  # each file system has its own errors
            raise ConfigurationError(
                option,
                f"cannot open {location!r}: neither pyarrow.fs ({_first_line(native)}) nor fsspec "
                f"({_first_line(error)}) supports '{scheme}:'",
                action=f"Install the fsspec package for '{scheme}:', or choose another location."
                + through_spark(option),
            ) from error
    return ArrowFiles(_patient(filesystem), root.rstrip("/"))


def _patient(filesystem: fs.FileSystem) -> fs.FileSystem:
    """The same file system. S3's asks again what failed for the moment, such as 503 (SlowDown): one that is made from a
    URI does not, and a micro-batch would fail with it.
    """
    if filesystem.type_name != "s3":
        return filesystem
    from pyarrow import fs

    _, (settings,) = filesystem.__reduce__()  # the arguments that make it, as pickle needs them
    return fs.S3FileSystem(**settings, retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=_S3_ATTEMPTS))


def fuse_path(location: str) -> Path:
    """Where Databricks mounts a `dbfs:` URI: Unity Catalog volumes at their own path, everything else below `/dbfs`."""
    path = _local_path(location)
    return Path(path if path.startswith("/Volumes/") else f"/dbfs{path}")


def _mounted(location: str, option: str) -> Path:
    path = fuse_path(location)
    mount = Path(*path.parts[:2])
    if not mount.is_dir():
        raise ConfigurationError(
            option,
            f"cannot open {location!r}: {mount} is not mounted in this process",
            action="Choose a Unity Catalog volume (/Volumes/<catalog>/<schema>/<volume>/…), on compute that mounts it."
            + through_spark(option),
        )
    return path


def through_spark(option: str) -> str:
    """The part of an error's action that applies to checkpoints only; empty for another option."""
    if option != "checkpointLocation":
        return ""
    return " With a classic Spark session, TransactionalWriter in foreachBatch reads the checkpoint through Spark."


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _local_path(location: str) -> str:
    """The path after `file:` and a host, without decoding: to Hadoop's Path, and so to Spark, `#` and `?` are parts of
    a name, and `%20` is three characters.
    """
    if not urlsplit(location).scheme:
        return location
    path = location.partition(":")[2]
    return f"/{path[2:].partition('/')[2]}" if path.startswith("//") else path
