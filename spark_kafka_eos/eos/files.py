"""Files wherever the checkpoint lives: a plain path, `file:`, or any URI that pyarrow.fs or fsspec opens."""

from __future__ import annotations

from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import fs

from spark_kafka_eos.errors import ConfigurationError


def open_filesystem(location: str, option: str) -> tuple[fs.FileSystem, str]:
    """The file system of `location` and the path inside it; `option` names it in the ConfigurationError for an unknown
    scheme."""
    scheme = urlsplit(location).scheme
    if scheme in ("", "file"):
        return fs.LocalFileSystem(), urlsplit(location).path if scheme else location
    try:
        return fs.FileSystem.from_uri(location)  # type: ignore[no-any-return]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as native:
        try:
            import fsspec

            return fs.PyFileSystem(fs.FSSpecHandler(fsspec.filesystem(scheme))), location
        except (ImportError, ValueError) as error:
            raise ConfigurationError(
                option,
                f"cannot open {location!r}: neither pyarrow.fs ({native}) nor fsspec ({error}) knows '{scheme}:'",
                action=f"Install the fsspec package for '{scheme}:', or choose another location.",
            ) from error


def read_text(filesystem: fs.FileSystem, path: str) -> str | None:
    """The whole of a small UTF-8 file, or None if there is none."""
    if filesystem.get_file_info(path).type != fs.FileType.File:
        return None
    with filesystem.open_input_stream(path) as stream:
        return bytes(stream.read()).decode()
