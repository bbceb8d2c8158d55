"""Folders that only their owner may enter, for what records or batches leave on a disk."""

from __future__ import annotations

from pathlib import Path


def make(folder: Path) -> None:
    """Create `folder` and what it needs above it, each with mode 0700; `mkdir` gives its mode only to the last one.

    What exists stays as it is, and costs one call: each file of a batch asks. Raises OSError.
    """
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except FileNotFoundError:
        make(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
