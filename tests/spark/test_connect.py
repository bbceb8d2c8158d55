"""The foreachBatch writer on Spark Connect, where the driver's JVM is out of reach."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from spark_kafka_eos.tools.driver import python_environment
from spark_kafka_eos.tools.embedded import EmbeddedKafka
from spark_kafka_eos.tools.read_topic import read_topic

pytestmark = [pytest.mark.spark, pytest.mark.broker]

JOB = Path(__file__).parent / "jobs" / "connect_stream.py"


def test_the_driver_appends_and_the_executors_mode_is_refused(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    topic = kafka.create_topic("connect", 2)
    testing = {"SPARK_TESTING": "1"}  # a free port for the server instead of the one that everybody's has
    done = subprocess.run(
        [sys.executable, JOB, kafka.bootstrap, topic, str(tmp_path)],
        env={**os.environ, **python_environment(), **testing},
        stdout=subprocess.PIPE,
        check=True,
        timeout=200,
    )
    errors = json.loads(done.stdout.splitlines()[-1])
    assert errors["driver"] is None
    assert "appendMode=executors needs a classic Spark session" in errors["executors"]
    assert "Use appendMode=driver (or auto)" in errors["executors"]
    values = sorted(int(m.value() or b"") for m in read_topic(kafka.bootstrap, topic, "read_committed"))
    assert values == list(range(100))
