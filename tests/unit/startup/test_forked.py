"""Who starts a fork server with nothing set: the worker in which Spark creates the data source, and nothing else."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from kafka_eos_python import plain
from spark_kafka_eos.spark.datasource import KafkaEosDataSource

CREATE = ["python3", "-m", "pyspark.daemon", "pyspark.sql.worker.create_data_source"]
TASK = ["python3", "-m", "pyspark.daemon", "pyspark.worker"]
JOB = ["python3", "job.py"]


def test_creating_the_data_source_begins_it_where_the_installed_pyspark_was_found(monkeypatch):
    begun: list[bool] = []
    module = SimpleNamespace(begin_server_in_worker=lambda: begun.append(True))
    monkeypatch.setitem(sys.modules, "kafka_eos_python.plain", module)
    KafkaEosDataSource({})
    assert begun == [True]


def test_elsewhere_creating_the_data_source_begins_nothing(monkeypatch):
    monkeypatch.delitem(sys.modules, "kafka_eos_python.plain")
    KafkaEosDataSource({})
    assert "kafka_eos_python.plain" not in sys.modules


@pytest.mark.parametrize(
    ("started_as", "begins"),
    [
        pytest.param(CREATE, True, id="planner"),
        pytest.param(TASK, False, id="task"),
        pytest.param(JOB, False, id="job"),
    ],
)
def test_only_a_planners_worker_begins_one_and_it_is_for_the_process_that_started_its_daemon(
    monkeypatch, started_as, begins
):
    owners: list[int] = []
    monkeypatch.setattr(sys, "orig_argv", started_as)
    monkeypatch.setattr(plain, "begin_server", owners.append)
    monkeypatch.setattr("os.getppid", lambda: 20)
    monkeypatch.setattr(plain, "started", {20: (1, 10)}.get)
    plain.begin_server_in_worker()
    assert owners == ([10] if begins else [])


@pytest.mark.parametrize("started_as", [CREATE, TASK])
def test_the_server_of_the_process_that_has_started_this_one_is_asked(monkeypatch, started_as):
    asked: list[tuple[int, list[str]]] = []
    monkeypatch.setattr(sys, "orig_argv", started_as)
    monkeypatch.setattr("os.getppid", lambda: 20)
    monkeypatch.setattr(plain, "fork_from", lambda driver, arguments: asked.append((driver, arguments)))
    plain.fork()
    assert asked == [(20, started_as[1:])]


def test_nobody_is_asked_where_it_is_turned_off_or_nothing_can_be_forked(monkeypatch):
    asked: list[int] = []
    monkeypatch.setattr(plain, "fork_from", lambda driver, _: asked.append(driver))
    monkeypatch.setattr(sys, "orig_argv", JOB)
    plain.fork()
    monkeypatch.setattr(sys, "orig_argv", TASK)
    monkeypatch.setenv("KAFKA_EOS_FORK_SERVER", "off")
    plain.fork()
    assert asked == []
