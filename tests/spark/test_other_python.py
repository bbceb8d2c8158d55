"""What happens if the environment names another Python for data sources than the program's; docs/troubleshooting.md."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pyspark
import pytest

from spark_kafka_eos.testing.embedded import EmbeddedKafka
from tests.pages import ROOT
from tests.producing import produce

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow]

JOB = Path(__file__).parent / "jobs" / "other_python.py"


def no_python(folder: Path) -> Path:
    """As `jupyter`, a program that does not run Python's modules."""
    program = folder / "jupyter"
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    return program


def bare_python(folder: Path) -> Path:
    """Without this package's dependencies, as `python3` often is."""
    venv.create(folder / "bare")
    return folder / "bare" / "bin" / "python"


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (no_python, "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: kafka-eos"),
        (bare_python, "bare/bin/python, which lacks pyarrow, numpy, kafka-python, google-crc32c: install"),
    ],
)
def test_another_python_is_told_and_registering_the_format_helps(kafka: EmbeddedKafka, tmp_path, other, told) -> None:
    topic = kafka.create_topic(f"other-{other.__name__}", 1)
    produce(kafka.bootstrap, topic, [b"1", b"2"])
    spark_home = Path(pyspark.__file__).parents[1]
    path = [str(ROOT), *([str(spark_home)] if spark_home != Path(sysconfig.get_path("purelib")) else [])]
    done = subprocess.run(
        [sys.executable, JOB, kafka.bootstrap, topic],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": str(other(tmp_path)),
        },
        stdout=subprocess.PIPE,
        check=True,
        timeout=180,
    )
    first, rows = json.loads(done.stdout.splitlines()[-1])
    assert told in first
    assert rows == 2
