"""The doctor asks real executors, also those whose Python is another one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv

import pyspark
import pytest
from pyspark.sql import SparkSession

from spark_kafka_eos.preflight.findings import Severity
from spark_kafka_eos.tools.doctor import executors
from spark_kafka_eos.tools.doctor.pythons import CONNECTOR, PYSPARK, findings, together
from tests.pages import ROOT
from tests.terminal import KAFKA_EOS

pytestmark = pytest.mark.spark

COMMAND = [*KAFKA_EOS, "doctor", "--json"]


def test_the_executor_of_a_local_session_has_what_the_tests_have(spark: SparkSession) -> None:
    answers = executors.answers_of(spark)
    assert (answers.answered, answers.registered, answers.failure) == (1, 1, "")
    ((who, python),) = answers.pythons.items()
    assert who.startswith("executors on ")
    assert python.version == sys.version_info[:3]
    assert python.modules[PYSPARK].version == pyspark.__version__
    assert not python.modules[PYSPARK].zipped, "the ZIP is the first in Spark's path"
    assert python.modules[CONNECTOR].error == ""
    assert [each for each in findings(who, python, cure="") if each.severity is not Severity.OK] == []
    assert {each.severity for each in together({"driver": python, who: python})} == {Severity.OK}


@pytest.mark.slow
def test_a_bare_python_of_the_executors_is_told_by_the_shell_and_by_the_executors(tmp_path) -> None:
    venv.create(tmp_path / "bare")
    bare = str(tmp_path / "bare" / "bin" / "python")
    environment = {**os.environ, "PYSPARK_PYTHON": bare, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    done = subprocess.run(
        [*COMMAND, "--cluster", "--master", "local[1]"],
        env=environment,
        stdout=subprocess.PIPE,
        check=False,
        timeout=250,
    )
    assert done.returncode == 1
    found = {each["subject"]: each for each in json.loads(done.stdout)["findings"]}
    assert found["executors"]["found"] == "1 of 1 answered"
    asked = [each for subject, each in found.items() if subject.startswith("packages of executors on ")]
    for each in (found[f"packages of {bare}"], *asked):
        assert each["severity"] == "error"
        assert each["found"].startswith("lacks google-crc32c (not installed), kafka-python (not installed), numpy")
    assert len(asked) == 1


@pytest.mark.slow
def test_a_program_that_the_executors_cannot_start_is_told(tmp_path) -> None:
    environment = {**os.environ, "PYSPARK_PYTHON": str(tmp_path / "nothing"), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*COMMAND, "--cluster", "--master", "local[1]"],
        env=environment,
        stdout=subprocess.PIPE,
        check=False,
        timeout=250,
    )
    assert done.returncode == 1
    found = {each["subject"]: each for each in json.loads(done.stdout)["findings"]}
    assert "Cannot run program" in found["executors"]["found"]
    assert found["executors"]["severity"] == "error"
