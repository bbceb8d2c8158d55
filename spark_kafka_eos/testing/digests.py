"""The SHA-256 of jars: pinned in `jars.sha256` for the releases that this package's own commands and tests use.

The file is what `sha256sum` writes in the cache's directory: `<digest>  <name>/<version>/<jar>`. To pin another
release, fetch it, compare its jars with those of a second source, and append the lines.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from pathlib import Path

Digests = Mapping[str, str]
"""From a jar's file name to its SHA-256 in hexadecimal."""

PINS = Path(__file__).with_name("jars.sha256")


@functools.cache
def pinned(name: str, version: str, pins: Path = PINS) -> Digests:
    """Every jar of a bundle; empty if the bundle is not pinned."""
    lines = (line.split("  ") for line in pins.read_text().splitlines())
    return {jar.rpartition("/")[2]: digest for digest, jar in lines if jar.startswith(f"{name}/{version}/")}


def downloaded(directory: Path) -> list[Path]:
    """The jars and archives in a directory, sorted."""
    return sorted([*directory.glob("*.jar"), *directory.glob("*.tar.gz")])


def digests(directory: Path) -> Digests:
    """Those of all jars in a directory; a jar that has not changed since this process read it is not read again."""
    return {jar.name: _digest(jar, (at := jar.stat()).st_size, at.st_mtime_ns) for jar in downloaded(directory)}


@functools.cache
def _digest(jar: Path, _size: int, _modified_ns: int) -> str:
    with jar.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def differences(actual: Digests, expected: Digests) -> list[str]:
    """What is wrong with the jars that were found, a phrase for each; empty if they are the expected ones."""
    return [
        *(f"{jar} is missing" for jar in sorted(expected.keys() - actual.keys())),
        *(f"{jar} is not part of it" for jar in sorted(actual.keys() - expected.keys())),
        *(
            f"{jar} has the SHA-256 {actual[jar]}, not {expected[jar]}"
            for jar in sorted(actual.keys() & expected.keys())
            if actual[jar] != expected[jar]
        ),
    ]
