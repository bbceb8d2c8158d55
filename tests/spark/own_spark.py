"""Runs tests on a release of Spark of their own, in a process of its own: what a table's format has no release for
the PySpark of the other tests.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.testing.jars import Bundle, Module, files
from tests.pages import ROOT

PYSPARK = "4.1.4"


def installed(bundle: Bundle, *alone: str) -> list[Path]:
    """Folders with this PySpark, which `make build/spark-…` makes as well, and with packages (`name==version`) without
    what they ask for. The bundle's jars are downloaded, too. Skips the test if something cannot be.
    """
    wanted = {f"spark-{PYSPARK}": [f"pyspark=={PYSPARK}"]}
    wanted |= {each.replace("==", "-"): ["--no-deps", each] for each in alone}
    folders = [ROOT / "build" / name for name in wanted]
    try:
        for folder, packages in zip(folders, wanted.values(), strict=True):
            if not folder.exists():
                partial = folder.with_name(f"{folder.name}.partial")
                install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile"]
                subprocess.run([*install, "--target", partial, *packages], check=True)
                partial.rename(folder)
        files(bundle)
    except (subprocess.CalledProcessError, ToolFailed) as error:
        pytest.skip(f"{bundle} or PySpark {PYSPARK} cannot be downloaded: {error}")
    return folders


def passes(tests: Sequence[str], *, packages: Sequence[Path], plugin: str | None = None) -> None:
    """Run these files of tests/spark, with a plugin from there."""
    path = os.pathsep.join([*map(str, packages), str(ROOT)])
    command = [sys.executable, "-m", "pytest", "-m", "", "-p", "no:cacheprovider"]
    command += ["-p", f"tests.spark.{plugin}"] if plugin else []
    ended = subprocess.run(
        [*command, *(str(Path(__file__).with_name(name)) for name in tests)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": path},
        text=True,
        stdout=subprocess.PIPE,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout


def delta_lake(spark: str, version: str = "4.4.0") -> Bundle:
    """Delta Lake of this version for this release of Spark (its version number, 4.1 or later)."""
    of_spark = ".".join(spark.split(".")[:2])
    kernel = ("delta-kernel-api", "delta-kernel-defaults", "delta-kernel-unitycatalog")
    names = (f"delta-spark_{of_spark}_2.13", "delta-storage", *kernel)
    modules = (Module(organisation="io.delta", name=name, revision=version, alone=True) for name in names)
    return Bundle(name="delta", version=f"{version}-spark-{of_spark}", modules=tuple(modules))


def iceberg(spark: str, version: str = "1.12.0") -> Bundle:
    """Apache Iceberg of this version for this release of Spark (its version number, 4.1 or later), and SQLite for its
    JDBC catalog.
    """
    of_spark = ".".join(spark.split(".")[:2])
    modules = (
        Module(
            organisation="org.apache.iceberg",
            name=f"iceberg-spark-runtime-{of_spark}_2.13",
            revision=version,
            alone=True,
        ),
        Module(organisation="org.xerial", name="sqlite-jdbc", revision="3.53.1.0", alone=True),
    )
    return Bundle(name="iceberg", version=f"{version}-spark-{of_spark}", modules=modules)
