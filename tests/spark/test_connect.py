"""The foreachBatch writer on Spark Connect, where the driver's JVM is out of reach."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from spark_kafka_eos.testing.driver import python_environment
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from tests.reading import read_committed

pytestmark = [pytest.mark.spark, pytest.mark.broker]

JOB = Path(__file__).parent / "jobs" / "connect_stream.py"


@pytest.fixture(scope="module")
def topic(kafka: EmbeddedKafka) -> str:
    return kafka.create_topic("connect", 2)


@pytest.fixture(scope="module")
def errors(kafka: EmbeddedKafka, topic: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | None]:
    """Each query's error, all of them run in one session."""
    testing = {"SPARK_TESTING": "1"}  # a free port for the server instead of the one that everybody's has
    done = subprocess.run(
        [sys.executable, JOB, kafka.bootstrap, topic, str(tmp_path_factory.mktemp("connect"))],
        env={**os.environ, **python_environment(), **testing},
        stdout=subprocess.PIPE,
        check=True,
        timeout=280,
    )
    found: dict[str, str | None] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_the_driver_appends_and_the_executors_mode_is_refused(errors: dict[str, str | None]) -> None:
    assert errors["driver"] is None
    assert "'appendMode': executors requires a classic Spark session" in str(errors["executors"])
    assert "Set appendMode=driver or appendMode=auto" in str(errors["executors"])


def test_a_second_call_for_a_batch_is_refused(errors: dict[str, str | None]) -> None:
    assert "a second call for batch 0" in str(errors["twice"])


def test_a_constant_batch_id_is_refused(errors: dict[str, str | None]) -> None:
    assert "called with batch_id 0, but the checkpoint" in str(errors["constant"])
    assert "is at batch 1 or later" in str(errors["constant"])


def test_a_stateful_batch_that_is_skipped_writes_its_state(errors: dict[str, str | None]) -> None:
    assert (errors["counts"], errors["replay"]) == (None, None)


def test_each_record_is_there_once(kafka: EmbeddedKafka, topic: str, errors: dict[str, str | None]) -> None:
    values = sorted(int(m.value() or b"") for m in read_committed(kafka.bootstrap, topic))
    assert values == [-50, -50, -25, -25, *range(100)]
