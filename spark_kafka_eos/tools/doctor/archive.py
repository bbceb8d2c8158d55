"""Unpacks Spark's pyspark.zip with bytecode, and takes that back.

The ZIP has no bytecode, so each Python process of Spark compiles PySpark. In its place there is then a link to a folder
beside it, with what the ZIP has, its bytecode, and the ZIP itself. A file cannot be replaced by a folder in one step,
but by a link, and the link by a file: at any time, also after a crash, there is either the ZIP or all of the folder.

One process at a time works there. What one that was killed has left is removed by the next.

A process that has the ZIP open cannot import more from it afterwards. And YARN uploads this file: it needs the ZIP.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from stat import S_IMODE

from spark_kafka_eos.errors import ToolFailed

_PREFIX, _PACKED = "pyspark-unpacked-", "packed.zip"
_SECONDS = 600


def archive_of(home: Path) -> Path:
    """Where Spark in `home` has its PySpark."""
    return home / "python" / "lib" / "pyspark.zip"


def can_be_unpacked(archive: Path) -> bool:
    """Whether it is a ZIP without bytecode."""
    if archive.is_symlink() or not zipfile.is_zipfile(archive):
        return False
    with zipfile.ZipFile(archive) as opened:
        return not any(name.endswith(".pyc") for name in opened.namelist())


def unpack(archive: Path, python: str) -> Path:
    """Replace the ZIP by a link to a folder with bytecode of `python`; returns that folder.

    Raises ToolFailed, and everything is as it was.
    """
    with _alone(archive):
        if not can_be_unpacked(archive):
            raise ToolFailed(f"{archive} is not a ZIP without bytecode: there is nothing to unpack")
        return _unpack(archive, python)


@contextlib.contextmanager
def _alone(archive: Path) -> Iterator[None]:
    """Only one process at a time; it removes first what one before has left. The lock ends with the process."""
    try:
        opened = os.open(archive.parent, os.O_RDONLY)
    except OSError as error:
        raise _failed(archive, error) from error
    try:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ToolFailed(
                f"another 'kafka-eos doctor' works on {archive}; nothing was changed", action="Wait until it has ended."
            ) from error
        # Without the archive, the ZIP in such a folder may be the only one.
        for unpacked in archive.parent.glob(f"{_PREFIX}*") if archive.exists() else ():
            if unpacked.is_symlink():
                unpacked.unlink(missing_ok=True)
            elif not _leads_to(archive, unpacked):
                shutil.rmtree(unpacked, ignore_errors=True)
        yield
    finally:
        os.close(opened)


def _unpack(archive: Path, python: str) -> Path:
    try:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=archive.parent))
    except OSError as error:
        raise _failed(archive, error) from error
    try:
        _fill(folder, archive, python)
        _link(archive, folder.name)
    except BaseException as error:
        if not _leads_to(archive, folder):
            shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, (OSError, zipfile.BadZipFile)):
            raise _failed(archive, error) from error
        raise
    return folder


def _fill(folder: Path, archive: Path, python: str) -> None:
    shutil.copy2(archive, folder / _PACKED)
    with zipfile.ZipFile(folder / _PACKED) as opened:
        opened.extractall(folder)
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONPYCACHEPREFIX")}
    try:
        done = subprocess.run(
            [python, "-m", "compileall", "-q", str(folder)],
            env=kept,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise ToolFailed(f"{python} needed more than {_SECONDS} s to compile PySpark; nothing was changed") from error
    if done.returncode:
        output = (done.stdout + done.stderr).strip().splitlines()
        raise ToolFailed(
            f"{python} cannot compile PySpark: {output[-1] if output else done.returncode}; nothing was changed"
        )
    _share(folder, archive)
    os.sync()  # the link must not outlast what it leads to if the machine fails


def _share(folder: Path, archive: Path) -> None:
    """Let everybody read the folder who can read the ZIP: a temporary folder is private, and a umask may be."""
    directories, files = (S_IMODE(path.stat().st_mode) for path in (archive.parent, archive))
    for path in (folder, *folder.rglob("*")):
        path.chmod(directories if path.is_dir() else files)


def _link(archive: Path, target: str) -> None:
    link = archive.with_name(f"{target}.link")
    link.symlink_to(target)
    try:
        link.replace(archive)
    finally:
        link.unlink(missing_ok=True)


def _leads_to(archive: Path, folder: Path) -> bool:
    return archive.is_symlink() and archive.readlink() == Path(folder.name)


def unpacked(archive: Path) -> Path | None:
    """The folder that `unpack` has made, None if it has not."""
    if not archive.is_symlink():
        return None
    target = archive.readlink()
    folder = archive.with_name(target.name)
    ours = target == Path(target.name) and target.name.startswith(_PREFIX) and (folder / _PACKED).is_file()
    return folder if ours else None


def pack(archive: Path) -> None:
    """Put the ZIP back, and remove the folder. Raises ToolFailed if `unpack` did not make it."""
    with _alone(archive):
        folder = unpacked(archive)
        if folder is None:
            raise ToolFailed(f"{archive} was not unpacked by 'kafka-eos doctor --fix'; nothing was changed")
        try:
            (folder / _PACKED).replace(archive)
        except OSError as error:
            raise _failed(archive, error) from error
        shutil.rmtree(folder, ignore_errors=True)  # nothing leads to it any more


def _failed(archive: Path, error: Exception) -> ToolFailed:
    what = getattr(error, "strerror", None) or error
    return ToolFailed(
        f"cannot replace {archive}: {what}; nothing was changed",
        action="Run it as a user who may write there, or use kafka-eos-python, which changes nothing.",
    )
