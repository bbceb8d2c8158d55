"""Folders for what records or batches leave on a disk, and for programs that are run: who else may do what in them.

A folder is refused if it belongs to somebody else, or is a link: who made it could replace what is in it. One of this
user's is mended if others may do more than they should, because storage does that by itself: Kubernetes gives every
folder of a volume to the pod's `fsGroup`, to write. Only a file system that keeps owners and modes can be judged. On
others (object stores mounted as folders, SMB, NFS that maps all users to one) the store's own rights decide; they are
recognised by a new folder that is not as it was made.
"""

from __future__ import annotations

import os
import stat
import uuid
from contextlib import suppress
from enum import Enum
from pathlib import Path


class Others(Enum):
    """What other users may do in a folder; the value has the bits of its mode that they must not have."""

    NOTHING = 0o077
    READ = 0o022
    ADD = 0o022 | stat.S_ISVTX
    """Make something of their own beside what is there, as in /tmp, whose sticky bit protects the rest."""


class UnsafeFolder(OSError):
    """Somebody else's folder, or one in which others may do what they must not. The text says what to do."""


def make(folder: Path) -> None:
    """Create `folder` and what it needs above it, each with mode 0700; `mkdir` gives its mode only to the last one.

    What exists stays as it is, and costs one call: each file of a batch asks. Raises OSError.
    """
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except FileNotFoundError:
        make(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def this_user() -> int:
    return os.geteuid()


def look(folder: Path, others: Others) -> None:
    """Raise UnsafeFolder if somebody else than this user and root may do more than `others` in `folder`. A folder of
    this user is mended instead. Does nothing if it does not exist.
    """
    user = this_user()
    try:
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    except OSError:
        status = os.lstat(folder)
        if stat.S_ISLNK(status.st_mode):
            raise UnsafeFolder(
                f"{folder} is a link: nothing is read, written or removed where it leads. Remove the link, "
                "and find out who made it"
            ) from None
        if wrong := why_unsafe(status, others, user):
            raise UnsafeFolder(f"{folder} {wrong}") from None
        raise
    try:
        status = os.fstat(opened)
        if status.st_uid == user and is_open(status.st_mode, others):
            with suppress(OSError):  # of a file system that keeps no modes
                os.fchmod(opened, mended(status.st_mode, others))
            status = os.fstat(opened)
    finally:
        os.close(opened)
    wrong = why_unsafe(status, others, user)
    if wrong is not None and keeps_owners(folder.parent):
        raise UnsafeFolder(f"{folder} {wrong}")


def followed(folder: Path) -> Path:
    """Where a link leads that this user or root made in the place of a folder that a user names; else `folder`."""
    with suppress(FileNotFoundError):
        status = folder.lstat()
        if stat.S_ISLNK(status.st_mode) and status.st_uid in (this_user(), 0):
            return folder.resolve()
    return folder


def why_unsafe(status: os.stat_result, others: Others, user: int) -> str | None:
    """What is wrong with a folder, and what to do; None if nothing is."""
    mode = stat.S_IMODE(status.st_mode)
    if status.st_uid not in (user, 0):
        return (
            f"belongs to user {status.st_uid} (mode {mode:04o}), and this process is user {user}'s. If it is a "
            "leftover of yours under another user, remove it or give it to this one (chown); else name another folder"
        )
    if is_open(mode, others):
        fix = "chmod +t" if others is Others.ADD else "chmod go-w" if others is Others.READ else "chmod go="
        return f"lets other users change what is in it (mode {mode:04o} of user {status.st_uid}). Run: {fix}"
    return None


def is_open(mode: int, others: Others) -> bool:
    """Whether other users may do more than `others`."""
    return bool(mode & others.value & 0o077) and not (others is Others.ADD and mode & stat.S_ISVTX)


def mended(mode: int, others: Others) -> int:
    """The mode with which they may not."""
    mode = stat.S_IMODE(mode)
    return mode | stat.S_ISVTX if others is Others.ADD else mode & ~others.value


def keeps_owners(folder: Path) -> bool:
    """Whether a new folder in this one is its maker's, with the mode that it was made with; true if none can be made:
    what cannot be looked at is not trusted.
    """
    probe = folder / f".kafka-eos-{uuid.uuid4().hex}"
    try:
        probe.mkdir(mode=0o700)
    except OSError:
        return True
    try:
        status = probe.lstat()
    finally:
        probe.rmdir()
    return status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) & 0o777 == 0o700
