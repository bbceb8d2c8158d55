"""Who starts a fork server with nothing set: the worker in which Spark creates the data source, and nothing else."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace

import pytest

from kafka_eos_python import launcher, plain
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


def test_a_process_that_plans_or_commits_asks_the_server_of_the_process_that_has_started_it(monkeypatch):
    asked: list[tuple[int, list[str]]] = []
    monkeypatch.setattr(sys, "orig_argv", CREATE)
    monkeypatch.setattr("os.getppid", lambda: 20)
    monkeypatch.setattr(plain, "fork_from", lambda driver, arguments: asked.append((driver, arguments)))
    plain.fork()
    assert asked == [(20, CREATE[1:])]


@pytest.mark.parametrize("started_as", [TASK, JOB], ids=["task", "job"])
def test_no_other_process_asks_so_functions_of_a_query_run_in_plain_ones(monkeypatch, started_as):
    asked: list[int] = []
    monkeypatch.setattr(plain, "fork_from", lambda driver, _: asked.append(driver))
    monkeypatch.setattr(sys, "orig_argv", started_as)
    plain.fork()
    assert asked == []


@pytest.mark.parametrize("variables", [{"KAFKA_EOS_FORK_SERVER": "off"}, {"PYSPARK_PLANNER_MEMORY_MB": "100"}], ids=str)
def test_nobody_asks_where_it_is_turned_off_or_memory_is_limited(monkeypatch, variables):
    asked: list[int] = []
    monkeypatch.setattr(plain, "fork_from", lambda driver, _: asked.append(driver))
    monkeypatch.setattr(sys, "orig_argv", CREATE)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    plain.fork()
    assert asked == []


def test_where_no_process_more_may_be_started_the_data_source_is_created_all_the_same(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(sys, "orig_argv", CREATE)
    tried: list[bool] = []

    def fork() -> int:
        tried.append(True)
        raise BlockingIOError("no process more")

    monkeypatch.setattr("os.fork", fork)
    monkeypatch.setattr(plain, "started", lambda _: (1, os.getpid()))
    KafkaEosDataSource({})
    assert tried == [True]


def test_a_process_whose_folder_was_removed_is_a_plain_one(monkeypatch, tmp_path):
    asked: list[object] = []
    monkeypatch.setattr("kafka_eos_python.forked.find", lambda *_: object())
    monkeypatch.setattr("kafka_eos_python.forked.stand_in", lambda *_: asked.append(_))
    monkeypatch.setattr("os.isatty", lambda _: False)
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    launcher.fork_from(20, CREATE[1:])
    assert asked == []
