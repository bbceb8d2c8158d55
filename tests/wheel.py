"""An environment that has the wheel and what it needs, and nothing of the checkout: where users run commands."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

from tests.pages import ROOT


def wheel_environment(folder: Path) -> dict[str, str]:
    """Make an environment in `folder`, with the wheel of this checkout; the variables to run programs in it.

    Its dependencies are those of the tests' environment, whose own links to the checkout do not count there: Python
    reads `.pth` files only of an environment's own folder.
    """
    venv.create(folder, with_pip=False, symlinks=True)
    (packages,) = (folder / "lib").glob("python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    building = ["--no-deps", "--no-build-isolation", "--no-index"]
    environment = {name: value for name, value in os.environ.items() if name not in _OF_THE_TESTS}
    dist = folder / "dist"
    subprocess.run([*pip, "wheel", *building, "--wheel-dir", dist, ROOT], check=True, env=environment, timeout=300)
    (wheel,) = dist.glob("*.whl")
    into = ["--python", str(folder / "bin" / "python")]
    subprocess.run([*pip, *into, "install", "--no-deps", "--no-index", wheel], check=True, env=environment, timeout=300)
    tests = Path(sys.executable).parent  # Spark's own commands are there
    return environment | {"PATH": os.pathsep.join([str(folder / "bin"), str(tests), os.environ["PATH"]])}


_OF_THE_TESTS = {"PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_HOME", "VIRTUAL_ENV", "PIP_FIND_LINKS"}
