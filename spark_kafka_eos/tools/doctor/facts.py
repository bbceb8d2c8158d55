"""What was found on a machine, as values; `gather`, `executors` and `brokers` read them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spark_kafka_eos.appending.staging_space import Space

Version = tuple[int, ...]


def version_of(text: str) -> Version:
    """The numbers at the beginning of a version: (4, 3, 0) of `4.3.0.dev1`."""
    numbers = []
    for part in text.split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
        if digits != part:
            break
    return tuple(numbers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """An imported module: its version (empty if it has none), its file, whether that is in a ZIP, whether Python finds
    bytecode for it. `error` says why it could not be imported.
    """

    version: str = ""
    file: str = ""
    zipped: bool = False
    bytecode: bool = True
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """A Python that has answered. `modules` are by distribution; `optional` are distributions of extras that it has.

    `daemon` is the process that started it: on a cluster, each executor has one.
    """

    executable: str
    version: Version
    host: str
    daemon: int
    modules: Mapping[str, Imported]
    optional: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Silent:
    """A program that did not answer as Python does, and why."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaProgram:
    """The program, and the first number of its version (17; 8 of `1.8.0`)."""

    program: str
    release: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Spark:
    """A folder with Spark, what named it, and the version that its JARs have (empty if unknown)."""

    home: Path
    named_by: str
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """A folder of a query, as this user finds it. `existing` is the folder itself or the nearest one above it that
    exists; owner, mode, rights, file system and space are that one's. `space` is None if it is unknown.
    """

    path: Path
    existing: Path
    is_directory: bool
    owner: str
    mode: int
    usable: bool
    file_system: str
    space: Space | None

    @property
    def exists(self) -> bool:
        """Whether it is there already."""
        return self.path == self.existing


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """A location that is not mounted; `error` says why this Python cannot open it (empty if it can)."""

    location: str
    error: str = ""


def interpreter(answer: Mapping[str, Any]) -> Interpreter:
    """What `self_report` has printed."""
    return Interpreter(
        executable=answer["executable"],
        version=tuple(answer["version"]),
        host=answer["host"],
        daemon=answer["daemon"],
        modules={name: Imported(**module) for name, module in answer["modules"].items()},
        optional=frozenset(answer["optional"]),
    )
