"""Which processes a server may fork, and for whom one is started: each case."""

from __future__ import annotations

import pytest

from kafka_eos_python.launcher import owner_to_serve
from kafka_eos_python.request import can_be_forked, described, differences, for_a_server, is_planner

DAEMON = ["-m", "pyspark.daemon"]
SOURCE = ["-m", "pyspark.sql.streaming.python_streaming_source_runner"]
OWN, PARENT = 11, 10


@pytest.mark.parametrize(
    ("arguments", "forked", "planner"),
    [
        ([*DAEMON, "pyspark.sql.worker.create_data_source"], True, True),
        (SOURCE, True, True),
        ([*DAEMON, "pyspark.worker"], True, False),
        (["-m", "pyspark.sql.connect.streaming.worker.foreach_batch_worker"], False, False),
        (["-m", "pyspark.worker"], False, False),
        (["-c", "print(1)"], False, False),
        (["job.py", "-m", "pyspark.daemon"], False, False),
        (["-m"], False, False),
        ([], False, False),
    ],
)
def test_sparks_own_modules_are_forked_and_planners_are_only_a_drivers(arguments, forked, planner):
    assert (can_be_forked(arguments), is_planner(arguments)) == (forked, planner)


@pytest.mark.parametrize(
    ("arguments", "environment", "owner"),
    [
        (SOURCE, {}, PARENT),
        (["job.py", "--to", "orders"], {}, OWN),
        (["job.py"], {"PYSPARK_GATEWAY_PORT": "1"}, PARENT),
        (["/env/bin/find_spark_home.py"], {}, None),
        ([*DAEMON, "pyspark.worker"], {}, None),
        (["-c", "import sys; print('%d.%d' % sys.version_info[:2])"], {}, None),
        (["-m", "pip"], {}, None),
        ([], {}, None),
    ],
)
def test_a_server_is_for_the_process_whose_children_it_will_fork(arguments, environment, owner):
    assert owner_to_serve(arguments, environment, OWN, PARENT) == owner


def test_names_of_what_differs_say_nothing_of_values(monkeypatch):
    own = described([])
    own["environment"] = for_a_server({"A": "1", "SECRET": "hidden"})
    asked = described(SOURCE)
    asked["environment"] = {"A": "1", "SECRET": "other", "PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "YES"}
    assert differences(asked, own) == ["SECRET"]


def test_hard_limits_cannot_be_raised_so_they_must_be_the_same():
    own, asked = described([]), described(SOURCE)
    number, (soft, hard) = next(iter(asked["limits"].items()))
    own["environment"] = asked["environment"] = for_a_server({})
    asked["limits"] = asked["limits"] | {number: (1, hard)}
    assert differences(asked, own) == []
    asked["limits"] = asked["limits"] | {number: (soft, hard + 1)}
    assert differences(asked, own) == [f"limit {number}"]
