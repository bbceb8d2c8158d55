"""What `bench all` has measured so far, so that a run that was stopped goes on where it was.

The rows of one table are of one release and one machine: what another one measured counts as not measured.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Self

from lab.bench.machine import Machine

FILE = "progress"  # without a suffix, because *.json are measurements


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The measurements that `machine` has finished, in seconds by their names. `code`: `code_digest` of then."""

    machine: Machine
    code: str
    finished: Mapping[str, float]

    @classmethod
    def of(cls, directory: Path, here: Machine, code: str) -> Self:
        """What is on record in `directory`; nothing if that is of another machine, another release or other code."""
        new = cls(machine=here, code=code, finished={})
        path = directory / FILE
        if not path.exists():
            return new
        stored = json.loads(path.read_text())
        stored_progress = cls(machine=Machine(**stored["machine"]), code=stored["code"], finished=stored["finished"])
        return stored_progress if stored_progress._is_of(here, code) else new

    def _is_of(self, here: Machine, code: str) -> bool:
        return replace(self.machine, load=here.load) == here and self.code == code

    def remaining(self, names: Sequence[str]) -> list[str]:
        """Those of `names` that are not finished, in their order."""
        return [name for name in names if name not in self.finished]

    def without(self, names: Collection[str]) -> Self:
        """With these still to be measured."""
        return replace(self, finished={name: took for name, took in self.finished.items() if name not in names})

    def with_finished(self, name: str, seconds: float) -> Self:
        """With a measurement that took so long."""
        return replace(self, finished={**self.finished, name: round(seconds)})

    def write(self, directory: Path) -> None:
        """Put it on record."""
        (directory / FILE).write_text(json.dumps(asdict(self), indent=1) + "\n")


def code_digest(root: Path) -> str:
    """The SHA-256 of what is measured and what measures: the Python files of the packages and the laboratory."""
    digest = hashlib.sha256()
    for package in ("kafka_eos_python", "spark_kafka_eos", "lab"):
        for file in sorted((root / package).rglob("*.py")):
            digest.update(f"{file.relative_to(root)}\n".encode() + file.read_bytes())
    return digest.hexdigest()


def forget(directory: Path) -> None:
    """The next run measures everything anew."""
    (directory / FILE).unlink(missing_ok=True)
