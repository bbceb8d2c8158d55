"""Against Spark's own Kafka source: the same rows to the last bit, and checkpoints that either can go on from."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from spark_kafka_eos.testing.driver import python_environment
from tests.producing import KEEP, produce, transact

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.timeout(600)]

JOB = Path(__file__).parent / "jobs" / "both_sources.py"


@pytest.fixture(scope="module")
def found(bootstrap, topic, tmp_path_factory):
    """What the job found of a topic with every compression, nulls, headers, old times, aborted data."""
    name = topic("both", partitions=3, config=KEEP)
    for number, codec in enumerate(["none", "gzip", "snappy", "lz4", "zstd"]):
        produce(
            bootstrap,
            name,
            [*(b"%s-%d" % (codec.encode(), value) for value in range(50)), None, b""],
            partition=number % 3,
            key=None if number % 2 else b"key",
            timestamp=1_700_000_000_123 if number % 2 else 0,
            headers=[("a", b"1"), ("a", None)] if number % 2 else (),
            compression=codec,
        )
    transact(bootstrap, name, [b"aborted"] * 5, "abort", partition=1)
    transact(bootstrap, name, [b"committed"] * 5, "commit", partition=1)
    transact(bootstrap, name, [b"aborted"] * 5, "abort", partition=2)
    done = subprocess.run(
        [sys.executable, JOB, bootstrap, name, str(tmp_path_factory.mktemp("checkpoints"))],
        env={**os.environ, **python_environment()},
        stdout=subprocess.PIPE,
        check=True,
        timeout=500,
    )
    return json.loads(done.stdout.splitlines()[-1])


def test_columns_are_the_same(found):
    assert found["schemas"]["kafka-eos"] == found["schemas"]["kafka"]


def test_rows_are_the_same(found):
    assert found["rows"] == 5 * 52 + 5  # the job has compared them


def test_each_source_continues_from_the_others_checkpoint(found):
    for values in found["runs"]:
        assert values[-3:] == ["|", "later", "|"]
        assert values.count("|") == 3
        first, second = values.index("|"), len(values) - 3
        assert first > 5 * 52
        assert values[first + 1 : second] == []
