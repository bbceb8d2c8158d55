"""Virtual environments with only what a test puts there, as the nodes of a cluster have them."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.pages import ROOT


def bare_environment(folder: Path, requirements: Iterable[str] = ()) -> Path:
    """Make a virtual environment with the named packages and what they need, and nothing else: not even pip, and not
    this package. They are links to the files of the tests' own environment, so that nothing is downloaded. Returns its
    folder for packages.
    """
    # Not `python -m venv`, whose base would be the tests' environment.
    base = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
    (folder / "bin").mkdir(parents=True)
    for name in ("python", "python3"):
        (folder / "bin" / name).symlink_to(base)
    (folder / "pyvenv.cfg").write_text(f"home = {base.parent}\ninclude-system-site-packages = false\n")
    packages = folder / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    packages.mkdir(parents=True)
    for found in _needed(requirements):
        for file in found.files or []:
            if not {"..", "tests"} & set(file.parts):  # scripts; half of NumPy and pandas
                _link(Path(str(found.locate_file(file))), packages / file)
    return packages


def install_package(packages: Path) -> None:
    """Install this package, as it is in the checkout, into an environment's folder for packages; with its script, if
    the folder is that of an environment.
    """
    for name in ("spark_kafka_eos", "pyspark_kafka_eos", "kafka_eos_python"):
        shutil.copytree(ROOT / name, packages / name, ignore=shutil.ignore_patterns("__pycache__"))
    if (commands := packages.parents[2] / "bin").is_dir():
        shutil.copy(ROOT / "kafka_eos_python" / "bin" / "kafka-eos-python", commands)


def _needed(requirements: Iterable[str]) -> list[Distribution]:
    """The installed distributions of these requirements and of what they require in turn, without extras."""
    found: dict[str, Distribution] = {}
    left = list(requirements)
    while left:
        requirement = Requirement(left.pop())
        name = canonicalize_name(requirement.name)
        if name in found or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        found[name] = distribution(name)
        left += found[name].requires or []
    return list(found.values())


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:  # on another file system
        shutil.copy2(source, target)
