"""Files wherever the checkpoint lives: a plain path, `file:`, or any URI that pyarrow.fs or fsspec opens.

Local files, which are the common case, do without pyarrow: loading it would cost each commit of the sink, a process of
its own, more than all else it does.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from spark_kafka_eos.errors import ConfigurationError

if TYPE_CHECKING:
    from pyarrow import fs


class Files(Protocol):
    """The files below one directory; paths are relative to it and separated by `/`."""

    def read_text(self, path: str) -> str | None:
        """The whole of a small UTF-8 file, or None if there is none."""

    def create(self, path: str) -> IO[bytes]:
        """A new file to write, with the directories above it."""

    def open(self, path: str) -> IO[bytes]:
        """A file to read, with `seek` and `readinto`. Raises FileNotFoundError."""

    def directories(self) -> list[str]:
        """The names of the directories right below; none if there is nothing."""

    def remove(self, directory: str) -> None:
        """Remove a directory right below, with all in it; one that is gone already is fine."""


@dataclass(frozen=True, slots=True)
class LocalFiles:
    """`Files` of this machine, or of what is mounted on it."""

    root: Path

    def read_text(self, path: str) -> str | None:
        try:
            return (self.root / path).read_text(encoding="utf-8")
        except (FileNotFoundError, IsADirectoryError):
            return None

    def create(self, path: str) -> IO[bytes]:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        return (self.root / path).open("wb")  # buffered: a raw file may take a part of what it is given

    def open(self, path: str) -> IO[bytes]:
        return (self.root / path).open("rb")

    def directories(self) -> list[str]:
        return [found.name for found in self.root.iterdir() if found.is_dir()] if self.root.is_dir() else []

    def remove(self, directory: str) -> None:
        if (self.root / directory).is_dir():
            shutil.rmtree(self.root / directory)


@dataclass(frozen=True, slots=True)
class ArrowFiles:
    """`Files` of a file system that pyarrow or fsspec opens."""

    filesystem: fs.FileSystem
    root: str

    def read_text(self, path: str) -> str | None:
        try:
            with self.open(path) as stream:
                return stream.read().decode()
        except FileNotFoundError:
            return None

    def create(self, path: str) -> IO[bytes]:
        self.filesystem.create_dir(f"{self.root}/{path}".rpartition("/")[0], recursive=True)
        stream: Any = self.filesystem.open_output_stream(f"{self.root}/{path}", buffer_size=None)
        return stream  # type: ignore[no-any-return]

    def open(self, path: str) -> IO[bytes]:
        stream: Any = self.filesystem.open_input_file(f"{self.root}/{path}")
        return stream  # type: ignore[no-any-return]

    def directories(self) -> list[str]:
        from pyarrow import fs

        found = self.filesystem.get_file_info(fs.FileSelector(self.root, allow_not_found=True))
        return [info.base_name for info in found if info.type == fs.FileType.Directory]

    def remove(self, directory: str) -> None:
        from pyarrow import fs

        path = f"{self.root}/{directory}"
        if self.filesystem.get_file_info(path).type == fs.FileType.Directory:
            self.filesystem.delete_dir(path)


def files_at(location: str, option: str) -> Files:
    """The files below `location`; `option` names it in the ConfigurationError for an unknown scheme."""
    scheme = urlsplit(location).scheme
    if scheme in ("", "file"):
        return LocalFiles(Path(_local_path(location)))
    import pyarrow as pa
    from pyarrow import fs

    try:
        filesystem, root = fs.FileSystem.from_uri(location)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as native:
        try:
            import fsspec

            filesystem, root = fs.PyFileSystem(fs.FSSpecHandler(fsspec.filesystem(scheme))), location
        except (ImportError, ValueError) as error:
            raise ConfigurationError(
                option,
                f"cannot open {location!r}: neither pyarrow.fs ({native}) nor fsspec ({error}) knows '{scheme}:'",
                action=f"Install the fsspec package for '{scheme}:', or choose another location.",
            ) from error
    return ArrowFiles(filesystem, root.rstrip("/"))


def _local_path(location: str) -> str:
    """What follows `file:` and a host is the path, letter by letter: Hadoop's Path, and so Spark, takes `#` and `?` for
    parts of a name, and `%20` for those three characters."""
    if not urlsplit(location).scheme:
        return location
    path = location.partition(":")[2]
    return f"/{path[2:].partition('/')[2]}" if path.startswith("//") else path
