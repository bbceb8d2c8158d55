"""`kafka-eos doctor`: its table, JSON and exit codes; the page's example."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from spark_kafka_eos.appending.staging_space import Space
from spark_kafka_eos.errors import BrokerUnreachable
from spark_kafka_eos.preflight.findings import Finding, Severity
from spark_kafka_eos.tools.cli import doctor
from spark_kafka_eos.tools.cli.main import app
from spark_kafka_eos.tools.doctor import brokers, executors, gather
from spark_kafka_eos.tools.doctor.executors import Answers
from spark_kafka_eos.tools.doctor.facts import Folder, Imported, JavaProgram, Silent, Spark
from tests.pages import ROOT
from tests.unit.tools.doctor.test_pythons import FIT

LAUNCHER = "/opt/spark-kafka-eos/bin/kafka-eos-python"
PYSPARK = Imported(
    version="4.3.0", file="/opt/spark/python/lib/pyspark.zip/pyspark/__init__.py", zipped=True, bytecode=False
)
BARE = replace(
    FIT,
    executable="/usr/bin/python3",
    modules={
        **FIT.modules,
        "pyarrow": Imported(error="not installed"),
        "kafka-python": Imported(error="not installed"),
        "pyspark": PYSPARK,
    },
)


class Recorder:
    """A function that returns the same every time; `calls` are the arguments of each."""

    def __init__(self, result: object) -> None:
        self.calls: list[Any] = []
        self._result = result

    def __call__(self, *given: object, **named: object) -> object:
        self.calls.append((*given, *named.values()))
        return self._result


@pytest.fixture(autouse=True)
def machine(monkeypatch, tmp_path) -> dict[str, Any]:
    """A machine on which each Python is fit, unless a test puts another answer here, by the command that starts it."""
    answers: dict[str, Any] = {}
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYSPARK_DRIVER_PYTHON_OPTS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    monkeypatch.setattr(doctor, "beside", lambda _: LAUNCHER)
    monkeypatch.setattr(
        gather, "spark_of", lambda _: Spark(home=Path("/opt/spark"), named_by="SPARK_HOME", version="4.3.0")
    )
    monkeypatch.setattr(gather, "settings_of", lambda *_: {})
    monkeypatch.setattr(gather, "java_of", lambda _: JavaProgram(program="/opt/java/bin/java", release=17))
    monkeypatch.setattr(gather, "installed_pyspark", lambda: None)
    monkeypatch.setattr(gather, "ask", lambda python, *_: answers.get(python, FIT))
    return answers


def run(*arguments: str, answer: str = "", columns: int = 200) -> Any:
    return CliRunner(env={"COLUMNS": str(columns)}).invoke(app, ["doctor", *arguments], input=answer)


def found(*arguments: str) -> dict[str, str]:
    """The severity of each finding, by its subject."""
    return {each["subject"]: each["severity"] for each in json.loads(run("--json", *arguments).stdout)["findings"]}


def test_a_fit_machine_is_ready_also_with_a_warning(monkeypatch):
    done = run()
    assert done.exit_code == 0, done.output
    assert done.stdout.endswith("0 errors, 0 warnings: ready.\n")
    monkeypatch.delenv("OPENBLAS_NUM_THREADS")
    done = run()
    assert (done.exit_code, done.stdout.endswith("0 errors, 1 warning: ready.\n")) == (0, True), done.output


def test_an_error_is_exit_code_1_and_not_ready_also_as_json(machine):
    machine["python3"] = BARE
    done = run()
    assert done.exit_code == 1
    assert done.stdout.endswith("1 error, 1 warning: not ready.\n")
    done = run("--json")
    assert done.exit_code == 1
    shown = json.loads(done.stdout)
    assert shown["verdict"] == "not ready"
    (error,) = (each for each in shown["findings"] if each["severity"] == "error")
    assert error == {
        "severity": "error",
        "subject": "packages of python3",
        "found": "lacks kafka-python (not installed), pyarrow (not installed)",
        "meaning": "Spark answers DATA_SOURCE_NOT_FOUND, or tasks fail with ModuleNotFoundError",
        "action": f"Run: export PYSPARK_PYTHON={LAUNCHER}",
    }


def test_what_to_do_is_below_the_table_once_and_in_one_line(machine, monkeypatch):
    machine["python3"] = machine["/b"] = replace(BARE, version=(3, 10, 1))
    done = run("--conf", "spark.pyspark.driver.python=/b", columns=80)
    (line,) = (line for line in done.stdout.splitlines() if line.endswith(f"Run: export PYSPARK_PYTHON={LAUNCHER}"))
    assert line.startswith("- /b, packages of /b, python3, packages of python3, start of Python: PySpark: Run: ")


def test_each_python_that_spark_would_start_is_asked_once(machine, monkeypatch):
    ask = Recorder(FIT)
    monkeypatch.setattr(gather, "ask", ask)
    monkeypatch.setenv("PYSPARK_PYTHON", "/a")
    run("--conf", "spark.pyspark.driver.python=/b")
    assert sorted(python for python, *_ in ask.calls) == ["/a", "/b"]


def test_jupyter_as_the_drivers_python_is_an_error_with_the_variables_to_unset(machine, monkeypatch):
    machine["jupyter"] = Silent(reason="is not Python: exit code 2")
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "jupyter")
    shown = json.loads(run("--json").stdout)["findings"]
    (error,) = (each for each in shown if each["severity"] == "error")
    assert error["subject"] == "jupyter"
    assert error["action"] == f"Run: unset PYSPARK_DRIVER_PYTHON; export PYSPARK_PYTHON={LAUNCHER}"


def test_a_package_that_this_python_lacks_is_to_be_installed_for_it(machine):
    machine["python3"] = replace(BARE, executable=sys.executable)
    (error,) = (each for each in json.loads(run("--json").stdout)["findings"] if each["severity"] == "error")
    assert error["action"] == f"Run: {sys.executable} -m pip install spark-kafka-eos"


def test_folders_are_looked_at_only_if_they_are_given(tmp_path):
    assert not any(subject.startswith(("checkpoint", "staging")) for subject in found())
    shown = found("--checkpoint-location", str(tmp_path / "c"), "--staging-dir", str(tmp_path / "s"))
    assert shown[f"checkpointLocation {tmp_path}/c"] == "ok"
    assert shown[f"stagingDir {tmp_path}/s"] == "ok"


def test_a_staging_directory_of_this_machine_is_an_error_with_a_master_of_a_cluster(tmp_path, monkeypatch):
    monkeypatch.setattr(gather, "_file_system", lambda *_: "ext4")
    given = ("--staging-dir", str(tmp_path))
    assert found(*given)[f"stagingDir {tmp_path}"] == "ok"
    assert found(*given, "--master", "spark://m:7077")[f"stagingDir {tmp_path}"] == "error"
    assert found(*given, "--conf", "spark.master=yarn")[f"stagingDir {tmp_path}"] == "error"


def test_with_cluster_the_executors_are_asked_and_compared_with_the_drivers_python(monkeypatch):
    pythons = {"executors on there": replace(BARE, version=(3, 12, 1))}
    ask = Recorder(Answers(pythons=pythons, answered=1, registered=1))
    monkeypatch.setattr(executors, "ask", ask)
    shown = found("--cluster", "--master", "spark://m:7077", "--conf", "spark.cores.max=2")
    assert ask.calls == [("spark://m:7077", {"spark.cores.max": "2"})]
    assert shown["executors"] == "ok"
    assert shown["packages of executors on there"] == "error"
    assert shown["versions of Python"] == "error"


def test_brokers_are_asked_only_if_they_are_given_and_their_errors_are_not_findings(monkeypatch):
    finding = Finding(severity=Severity.OK, subject="cluster", found="reachable")
    ask = Recorder([finding])
    monkeypatch.setattr(brokers, "findings", ask)
    assert "cluster" not in found()
    assert found("--bootstrap-servers", "b:1")["cluster"] == "ok"
    assert found("--bootstrap-servers", "b:1", "--transactional-id", "t", "--topic", "out")["cluster"] == "ok"
    assert found("--bootstrap-servers", "b:1", "--transactional-id", "t", "--real-time")["cluster"] == "ok"
    (first, nothing), (second, query, no_buckets), (_, _, in_real_time) = ask.calls
    assert (no_buckets, in_real_time) == (False, True)
    assert first.bootstrap_servers == second.bootstrap_servers == (("b", 1),)
    assert nothing is None
    assert (query.transactional_id, query.topic) == ("t", "out")

    def unreachable(*_: object, **__: object) -> None:
        raise BrokerUnreachable("no broker answers")

    monkeypatch.setattr(brokers, "findings", unreachable)
    assert run("--bootstrap-servers", "b:1").exit_code == 3
    assert run("--topic", "out").exit_code == 2
    assert run("--conf", "spark.master").exit_code == 2


# -- the command itself


def test_it_changes_nothing(tmp_path, monkeypatch):
    (tmp_path / "spark" / "python" / "lib").mkdir(parents=True)
    zipped = tmp_path / "spark" / "python" / "lib" / "pyspark.zip"
    zipped.write_bytes(b"ZIP")
    monkeypatch.setattr(
        gather, "spark_of", lambda _: Spark(home=tmp_path / "spark", named_by="SPARK_HOME", version="4.3.0")
    )
    before = sorted((path, path.lstat().st_mtime_ns) for path in tmp_path.rglob("*"))
    assert run("--checkpoint-location", str(tmp_path / "new"), "--staging-dir", str(tmp_path)).exit_code == 0
    assert sorted((path, path.lstat().st_mtime_ns) for path in tmp_path.rglob("*")) == before


def test_it_starts_without_the_packages_that_it_looks_for():
    lacking = ("confluent_kafka", "google_crc32c", "kafka", "numpy", "pandas", "psutil", "pyarrow", "py4j", "pyspark")
    code = f"""
import sys
class Lacking:
    def find_spec(name, *_):
        if name.partition(".")[0] in {lacking!r}:
            raise ModuleNotFoundError(name=name)
sys.meta_path.insert(0, Lacking)
import spark_kafka_eos.tools.cli.doctor
"""
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ, timeout=60)


def test_the_example_of_the_page_shows_what_it_says(machine, monkeypatch):
    machine["python3"] = BARE
    folder = Folder(
        path=Path("/checkpoints/orders-copy"),
        existing=Path("/checkpoints"),
        is_directory=True,
        owner="spark",
        mode=0o040700,
        usable=True,
        file_system="nfs4",
        space=Space(free=412 * 10**9, total=800 * 10**9),
    )
    monkeypatch.setattr(gather, "folder_at", lambda location: {str(folder.path): folder}[location])
    section = re.search(r"^## doctor\n(.*?)(?=^## )", (ROOT / "docs" / "cli.md").read_text(), re.MULTILINE | re.DOTALL)
    assert section is not None
    [command, shown] = re.search(r"```sh\n(.*?)\n```\n\n```text\n(.*?)```", section[1], re.DOTALL).groups()  # type: ignore[union-attr]
    program, name, *arguments = shlex.split(command)
    assert (program, name) == ("kafka-eos", "doctor")
    done = run(*arguments, columns=110)
    assert done.stdout == shown
