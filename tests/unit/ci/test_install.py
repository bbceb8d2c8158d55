"""The install commands of README and documentation run as they are written."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import spark_kafka_eos
from tests.pages import ROOT


def commands(page: str) -> str:
    """The block of the page that installs the package."""
    blocks = re.findall(r"^```sh\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    block: str = next(text for text in blocks if "pip" in text)
    return block


def test_the_version_says_whether_this_is_a_release():
    """The first heading of the changelog with changes is that of this version."""
    heading = re.compile(r"^## \[([^]]+)\][^\n]*\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
    sections = heading.findall((ROOT / "CHANGELOG.md").read_text())
    first = next(name for name, changes in sections if changes.strip())
    released = [name for name, _ in sections if name != "Unreleased"]
    if first == "Unreleased":
        number = spark_kafka_eos.__version__.removesuffix(".dev0")
        assert spark_kafka_eos.__version__ == f"{number}.dev0"
        assert tuple(map(int, number.split("."))) > tuple(map(int, released[0].split(".")))
    else:
        assert spark_kafka_eos.__version__ == first


def test_every_page_builds_and_finds_the_package_in_the_same_way():
    first = {commands(page).splitlines()[0] for page in ("README.md", "docs/index.md")}
    assert len(first) == 1


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_the_commands_install_the_package_from_a_checkout(page, tmp_path):
    """pip gets its options from the environment: here no network, a checkout that is not written to, and a folder
    in place of the environment."""
    pip = f'#!/bin/sh\nexec "{sys.executable}" -m pip "$@"\n'
    checkout, installed = tmp_path / "checkout", tmp_path / "installed"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "pip").write_text(pip)
    (tmp_path / "bin" / "pip").chmod(0o755)
    subprocess.run(["git", "clone", "--quiet", ROOT, checkout], check=True, capture_output=True)
    options = {"NO_INDEX": "1", "TARGET": str(installed), "NO_BUILD_ISOLATION": "0", "ROOT_USER_ACTION": "ignore"}
    environment = os.environ | {f"PIP_{name}": value for name, value in options.items()}
    environment |= {"PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    environment.pop("PYTHONPATH", None)
    # What the package needs is in the tests' own environment.
    text = commands(page).replace("pip install ", "pip install --no-deps --upgrade ")
    subprocess.run(["bash", "-ec", text], cwd=checkout, env=environment, check=True, timeout=120)
    found = "import spark_kafka_eos; print(spark_kafka_eos.__file__)"
    shown = subprocess.run(
        [sys.executable, "-c", found],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(installed)}, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    assert Path(shown.strip()) == installed / "spark_kafka_eos" / "__init__.py"
