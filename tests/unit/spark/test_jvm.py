"""Which batch a query runs, where there is no JVM to ask (Spark Connect); with one it is tested on Spark
(tests/spark)."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from spark_kafka_eos.errors import ConfigurationError, IllegalTransactionState
from spark_kafka_eos.spark.jvm import RunningQuery

FRAME: Any = SimpleNamespace(sparkSession=SimpleNamespace())


@pytest.fixture
def query(tmp_path):
    """Of a checkpoint that is at batch 4."""
    (tmp_path / "offsets").mkdir()
    (tmp_path / "metadata").write_text(json.dumps({"id": "q"}))
    for number in (3, 4):
        (tmp_path / "offsets" / str(number)).write_text(f'v1\n{{}}\n{{"orders":{{"0":{number}}}}}')
    return RunningQuery(FRAME, str(tmp_path))


def test_the_last_batch_that_was_planned_is_the_one_that_runs(query):
    assert query.micro_batch(4).batch_id == 4
    assert query.run_id is None


def test_a_batch_id_before_it_is_refused(query):
    with pytest.raises(IllegalTransactionState, match="called with batch_id 3, but .* is at batch 4 or later"):
        query.micro_batch(3)


def test_a_batch_id_after_it_is_refused(query):
    with pytest.raises(IllegalTransactionState, match="called with batch_id 5, but .* has no file 'offsets/5'"):
        query.micro_batch(5)


def test_a_skipped_batch_is_computed_if_its_plan_cannot_be_inspected(query):
    assert query.needs_evaluation()


def test_without_a_checkpoint_location_it_is_asked_for():
    with pytest.raises(ConfigurationError, match="checkpointLocation"):
        RunningQuery(FRAME, None)
