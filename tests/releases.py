"""Older releases of this package, from their commits, each in processes of its own.

Their code is taken out of the repository's history and comes first on the path. The rest of the environment is shared:
`unmet` says whether it is what the release depends on.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, Any

from packaging.requirements import Requirement

from kafka_eos_python import beside

ROOT = Path(__file__).parents[1]
_SCRIPT = Path(__file__).with_name("older_release.py")
_SECONDS = 120

Step = Mapping[str, Any]
Outcome = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A release, at `commit`, "" for this one; `form` is that of its ledger entries."""

    name: str
    commit: str
    form: int

    def folder(self) -> Path:
        """Its packages and pyproject.toml. Raises RuntimeError if this clone does not have the commit."""
        if not self.commit:
            return ROOT
        folder = ROOT / "build" / "releases" / self.commit
        if not folder.exists():
            self._extract(folder)
        return folder

    def run(self, *steps: Step) -> list[Outcome]:
        """Run the steps of `older_release` one after the other in one process of this release; their outcomes."""
        done = subprocess.run(
            [sys.executable, "-P", _SCRIPT],
            input=json.dumps(steps),
            capture_output=True,
            text=True,
            check=False,
            timeout=_SECONDS,
            env={**os.environ, **self.variables()},
        )
        assert done.returncode == 0, f"release {self.name}: {done.stderr[-4_000:]}"
        answered: dict[str, Any] = json.loads(done.stdout)
        assert Path(answered["package"]).is_relative_to(self.folder()), answered["package"]
        return list(answered["outcomes"])

    def variables(self) -> dict[str, str]:
        """The environment variables with which this Python, and Spark's driver and workers, run the release."""
        return {
            "PYTHONPATH": str(self.folder()),
            "PYTHONSAFEPATH": "1",  # else Spark's workers find the package of the current folder first
            "PYSPARK_PYTHON": beside(sys.executable),
            "PYSPARK_DRIVER_PYTHON": beside(sys.executable),
        }

    def unmet(self) -> list[str]:
        """What the release depends on and this environment does not have."""
        project = tomllib.loads((self.folder() / "pyproject.toml").read_text())["project"]
        wanted = [*project["dependencies"], *project["optional-dependencies"]["spark"]]
        return [each for each in wanted if not _met(Requirement(each))]

    def _extract(self, folder: Path) -> None:
        folder.parent.mkdir(parents=True, exist_ok=True)
        command = ["git", "archive", self.commit, "spark_kafka_eos", "pyspark_kafka_eos", "pyproject.toml"]
        temporary = Path(tempfile.mkdtemp(dir=folder.parent))
        try:
            with tempfile.TemporaryFile() as archive:
                _archive(command, archive, self)
                with tarfile.open(fileobj=archive) as files:
                    files.extractall(temporary, filter="data")
            if not folder.exists():  # else another process was faster
                temporary.rename(folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


# The last one with the ledger in the group only, at the output topic; the first with the ledger topic; the last one
# before entries said who wrote them.
OLDER = (
    Release(name="0.1.0", commit="8f6be5cf11cc7d8421da0ae38b7d73304fa91a1b", form=1),
    Release(name="0.2.0", commit="e37b1fe0febbed228d0c21f347828520b54a871a", form=2),
    Release(name="0.2.0+", commit="33a1157ed6a1bbfa4d1930b6664429b5005dd93a", form=2),
)

THIS = Release(name="this", commit="", form=3)


def _archive(command: Sequence[str], into: IO[bytes], release: Release) -> None:
    done = subprocess.run(command, cwd=ROOT, stdout=into, stderr=subprocess.PIPE, check=False)
    if done.returncode:
        raise RuntimeError(
            f"release {release.name} is commit {release.commit}, and this clone does not have it: these tests need the "
            f"repository's whole history (git fetch --unshallow). git says: {done.stderr.decode().strip()}"
        )
    into.seek(0)


def _met(wanted: Requirement) -> bool:
    try:
        return wanted.specifier.contains(version(wanted.name), prereleases=True)
    except PackageNotFoundError:
        return False


def word(outcome: Outcome, way: str) -> str:
    """The value of `resolve` that a refusal offers for going on in this way."""
    (found,) = set(re.findall(rf"resolve='({way}:[^']+)'", outcome["refused"]))
    return str(found)
