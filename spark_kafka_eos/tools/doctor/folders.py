"""Whether a query can use its checkpoint and its staging directory, and whether they last. Pure.

The names of file systems are Linux's, as /proc/mounts has them.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from enum import StrEnum

from spark_kafka_eos.appending.staging_space import allowance
from spark_kafka_eos.preflight.findings import Finding, Severity
from spark_kafka_eos.tools.doctor.facts import Folder, Remote

_SMALLEST = 1_000_000  # bytes of a small batch
_IN_MEMORY = frozenset({"tmpfs", "ramfs"})
_OF_A_CONTAINER = frozenset({"overlay", "aufs"})
_OF_A_MACHINE = frozenset({"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "xfs", "zfs", "apfs"})


class Kind(StrEnum):
    """What a query has the folder for: its option."""

    CHECKPOINT = "checkpointLocation"
    STAGING = "stagingDir"


def findings(kind: Kind, folder: Folder | Remote, *, user: str, is_local: bool) -> Iterator[Finding]:
    """`user` is who runs this command, as the driver will; `is_local` whether driver and executors share a machine."""
    subject = f"{kind} {folder.location if isinstance(folder, Remote) else folder.path}"
    if isinstance(folder, Remote):
        yield _remote(subject, folder)
        return
    results = [_rights(subject, folder, user)]
    if results[0].severity is not Severity.ERROR:
        results += [_space(subject, folder), _file_system(subject, kind, folder, is_local), *_others(subject, folder)]
    wrong = [finding for finding in results if finding.severity is not Severity.OK]
    observations = ", ".join(finding.found for finding in results)
    yield from wrong or [Finding(severity=Severity.OK, subject=subject, found=observations)]


def _remote(subject: str, folder: Remote) -> Finding:
    if not folder.error:
        return Finding(severity=Severity.OK, subject=subject, found="can be read by this Python")
    return Finding(
        severity=Severity.ERROR,
        subject=subject,
        found=f"cannot be read: {folder.error}",
        meaning="The sink would stop before its first batch; foreachBatch reads the checkpoint through Spark",
        action="Give Python the package and the credentials for that store, as docs/deploying.md describes",
    )


def _rights(subject: str, folder: Folder, user: str) -> Finding:
    seen = f"{folder.owner}'s, mode {stat.S_IMODE(folder.mode):04o}"
    if not folder.is_directory:
        return Finding(
            severity=Severity.ERROR,
            subject=subject,
            found=f"{folder.existing} is not a directory",
            action="Name a directory",
        )
    if not folder.usable:
        return Finding(
            severity=Severity.ERROR,
            subject=subject,
            found=f"{user} cannot read and write {folder.existing} ({seen})",
            meaning="No batch could start",
            action=f"Run as a user who may: chown {user} {folder.existing}",
        )
    observation = (
        f"can be written ({seen})" if folder.exists else f"does not exist; can be created in {folder.existing}"
    )
    return Finding(severity=Severity.OK, subject=subject, found=observation)


def _space(subject: str, folder: Folder) -> Finding:
    if folder.space is None:
        return Finding(severity=Severity.OK, subject=subject, found="unknown space")
    free, total = (f"{count / 1e9:,.1f} GB" for count in (folder.space.free, folder.space.total))
    observation = f"{free} of {total} free"
    if allowance(folder.space, _SMALLEST) is not None:
        return Finding(severity=Severity.OK, subject=subject, found=observation)
    return Finding(
        severity=Severity.ERROR,
        subject=subject,
        found=observation,
        meaning=f"{folder.space.reserve / 1e9:,.1f} GB stay free for other programs, so batches fail with StagingFull",
        action="Make room there, or name a directory on another disk",
    )


def _file_system(subject: str, kind: Kind, folder: Folder, is_local: bool) -> Finding:
    name = folder.file_system
    if kind is Kind.CHECKPOINT and name in _IN_MEMORY | _OF_A_CONTAINER:
        gone = "at the next boot" if name in _IN_MEMORY else "with the container"
        return Finding(
            severity=Severity.WARNING,
            subject=subject,
            found=f"is on {name}",
            meaning=f"It is gone {gone}, and the query refuses to go on without it",
            action="Name a directory on a disk that lasts, or let Kafka be the checkpoint (docs/kafka-checkpoint.md)",
        )
    if not is_local and name in _IN_MEMORY | _OF_A_CONTAINER | _OF_A_MACHINE:
        return Finding(
            severity=Severity.ERROR if kind is Kind.STAGING else Severity.WARNING,
            subject=subject,
            found=f"is on {name}, a file system of this machine",
            meaning="Executors on other machines do not see it",
            action="Name a directory on storage that the driver and all executors share",
        )
    return Finding(severity=Severity.OK, subject=subject, found=f"on {name or 'an unknown file system'}")


def _others(subject: str, folder: Folder) -> Iterator[Finding]:
    """A directory that others may write to; with the sticky bit, only what is theirs."""
    if folder.exists and folder.mode & stat.S_IWOTH and not folder.mode & stat.S_ISVTX:
        yield Finding(
            severity=Severity.WARNING,
            subject=subject,
            found=f"everybody can write to it (mode {stat.S_IMODE(folder.mode):04o})",
            meaning="Whoever changes its files changes what the query reads and writes",
            action=f"Run: chmod o-w {folder.path}",
        )
