"""Which batch a query runs, where there is no JVM to ask (Spark Connect); with one it is tested on Spark
(tests/spark)."""

from __future__ import annotations

import json
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark.sql.streaming.listener import QueryProgressEvent

from spark_kafka_eos.errors import ConfigurationError, IllegalTransactionState
from spark_kafka_eos.spark.jvm import QuickListener, RunningQuery, _memory_reader

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


def test_on_spark_connect_the_process_is_the_run(query, tmp_path):
    assert query.run_id
    assert query.run_id == RunningQuery(FRAME, str(tmp_path)).run_id


def test_all_writers_of_a_process_are_of_one_query_whatever_they_call_its_checkpoint(query, tmp_path):
    for name in (f"file:{tmp_path}", f"{tmp_path}/", None):
        other = RunningQuery(FRAME, name)
        assert (other.key, other.run_id) == (query.key, query.run_id)


def test_a_batch_id_before_it_is_refused(query):
    with pytest.raises(IllegalTransactionState, match="called with batch_id 3, but .* is at batch 4 or later"):
        query.micro_batch(3)


def test_a_batch_id_after_it_is_refused(query):
    with pytest.raises(IllegalTransactionState, match="called with batch_id 5, but .* has no file 'offsets/5'"):
        query.micro_batch(5)


def test_a_skipped_batch_is_computed_if_its_plan_cannot_be_inspected(query):
    assert query.needs_evaluation()


def test_so_it_is_before_spark_4_2_whose_plans_do_not_tell(query, monkeypatch):
    class Plan:
        def containsStatefulOperator(self):
            raise Py4JError("Method containsStatefulOperator([]) does not exist")

    execution = SimpleNamespace(lastExecution=lambda: SimpleNamespace(logical=Plan))
    monkeypatch.setattr(query, "_execution", execution)
    assert query.needs_evaluation()


def test_without_a_checkpoint_location_it_is_asked_for():
    with pytest.raises(ConfigurationError, match="checkpointLocation"):
        RunningQuery(FRAME, None).micro_batch(0)


@pytest.mark.parametrize("name", ["metadata", "offsets/3"])
def test_where_a_query_does_not_show_its_plans_the_checkpoint_is_read(name):
    def lacking() -> None:
        raise Py4JError("Method id([]) does not exist")

    read = _memory_reader(FRAME.sparkSession, SimpleNamespace(id=lacking, offsetLog=lacking), str.upper)
    assert read(name) == name.upper()


# -- a listener's events


class Heard:
    """A listener, and an event of the JVM whose progress is this JSON."""

    def __init__(self, progress: dict[str, Any]) -> None:
        self.events: list[QueryProgressEvent] = []
        self.listener: Any = SimpleNamespace(onQueryProgress=self.events.append)
        self.event: Any = SimpleNamespace(progress=lambda: SimpleNamespace(json=lambda: json.dumps(progress)))


PROGRESS: dict[str, Any] = {
    "id": "00000000-0000-0000-0000-000000000001",
    "runId": "00000000-0000-0000-0000-000000000002",
    "name": None,
    "timestamp": "2026-01-01T00:00:00.000Z",
    "batchId": 7,
    "batchDuration": 10,
    "durationMs": {"triggerExecution": 10},
    "numInputRows": 3,
    "inputRowsPerSecond": 1.0,
    "processedRowsPerSecond": 1.0,
    "stateOperators": [],
    "sources": [],
    "sink": {"description": "noop", "numOutputRows": -1},
}


def test_a_listener_gets_a_batch_as_its_json_says():
    heard = Heard(PROGRESS)
    QuickListener(heard.listener).onQueryProgress(heard.event)
    (event,) = heard.events
    assert (event.progress.batchId, event.progress.durationMs) == (7, {"triggerExecution": 10})
    assert json.loads(event.progress.json) == PROGRESS


def test_a_listener_gets_a_batch_whose_json_lacks_a_field_as_pyspark_reads_it(monkeypatch):
    heard = Heard({name: value for name, value in PROGRESS.items() if name != "sink"})
    read = QueryProgressEvent.fromJson({"progress": PROGRESS})
    monkeypatch.setattr(QueryProgressEvent, "fromJObject", lambda _: read)
    QuickListener(heard.listener).onQueryProgress(heard.event)
    assert heard.events == [read]


def test_everything_for_users_is_there_with_a_pyspark_that_only_has_spark_connect():
    """As the package pyspark-client, which has neither py4j nor PySpark's core."""
    program = (
        "import sys\n"
        "sys.modules |= {'py4j': None, 'pyspark.core': None}\n"
        "import spark_kafka_eos\n"
        "for name in spark_kafka_eos.__all__:\n"
        "    getattr(spark_kafka_eos, name)\n"
        "from spark_kafka_eos.spark.jvm import comes_from_spark\n"
        "from pyspark.errors import PySparkException\n"
        "assert comes_from_spark(PySparkException('stopped')) and not comes_from_spark(ValueError())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
