"""The protocol on Delta Lake, which supports older releases of Spark than these tests use: delta_protocol.py on one of
them, in a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.testing.jars import delta_lake, files
from tests.pages import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(3_600)]

PROTOCOL = Path(__file__).with_name("delta_protocol.py")
PYSPARK, DELTA = "4.1.4", "4.4.0"


@pytest.fixture(scope="module")
def packages() -> list[Path]:
    """Folders with this PySpark, which `make build/spark-…` makes as well, and with Delta's Python package."""
    wanted = {f"spark-{PYSPARK}": f"pyspark=={PYSPARK}", f"delta-{DELTA}": f"delta-spark=={DELTA}"}
    folders = [ROOT / "build" / name for name in wanted]
    try:
        for folder, package in zip(folders, wanted.values(), strict=True):
            if not folder.exists():
                partial = folder.with_name(f"{folder.name}.partial")
                # Delta's package asks for a PySpark of its own.
                alone = ["--no-deps"] if package.startswith("delta") else []
                install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", *alone]
                subprocess.run([*install, "--target", partial, package], check=True)
                partial.rename(folder)
        files(delta_lake(PYSPARK, DELTA))
    except (subprocess.CalledProcessError, ToolFailed) as error:
        pytest.skip(f"Delta {DELTA} or PySpark {PYSPARK} cannot be downloaded: {error}")
    return folders


def test_a_table_of_delta_lake_takes_part(packages: list[Path]) -> None:
    path = os.pathsep.join([*map(str, packages), str(ROOT)])
    command = [sys.executable, "-m", "pytest", "-m", "", "-p", "no:cacheprovider", str(PROTOCOL)]
    ended = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"PYTHONPATH": path}, text=True, stdout=subprocess.PIPE, check=False
    )
    assert ended.returncode == 0, ended.stdout
