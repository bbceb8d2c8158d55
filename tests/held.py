"""A process that a failpoint holds: `testing.driver.Kill` arms one, with a folder."""

from __future__ import annotations

from pathlib import Path

# Where neither side has a batch to which a table belongs: the steps before the table's commit.
UNDECIDED = (
    "begun",
    "table fenced",
    "initialised",
    "before append",
    "half appended",
    "all appended",
    "offsets committed",
)


def reached(folder: Path) -> bool:
    """Whether a process is, or was, held at the failpoint with this folder."""
    return (folder / "reached").exists()


def release(folder: Path) -> None:
    """Let the process that is held there go on."""
    (folder / f"release-{(folder / 'reached').read_text()}").write_bytes(b"go on")
