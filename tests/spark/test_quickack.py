"""The tasks of a real Spark: over TCP, those that acknowledge their input at once do not wait for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from spark_kafka_eos.testing.driver import python_environment

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(180)]

JOB = Path(__file__).parent / "jobs" / "wait_for_input.py"
CONF = ["--master", "local[1]", "--conf", "spark.ui.enabled=false", "--conf", "spark.driver.bindAddress=127.0.0.1"]


def test_a_task_does_not_wait_for_its_input_over_tcp(tmp_path: Path) -> None:
    environment = os.environ | python_environment()
    environment["PYSPARK_SUBMIT_ARGS"] = " ".join([*CONF, "pyspark-shell"])
    ran = subprocess.run([sys.executable, JOB], check=True, env=environment, stdout=subprocess.PIPE, cwd=tmp_path)
    told = json.loads(ran.stdout.splitlines()[-1])
    assert told["acknowledged"]
    assert told["plain"] > 30, "Spark's tasks do not wait any more: spark_kafka_eos/startup/quickack.py is not needed"
    assert told["prompt"] < 20
