"""What is found to delay the start of Python processes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_kafka_eos.preflight.findings import Finding, Severity
from spark_kafka_eos.tools.doctor.facts import Imported, Interpreter
from spark_kafka_eos.tools.doctor.pythons import PYSPARK
from spark_kafka_eos.tools.doctor.start import findings
from tests.unit.tools.doctor.test_pythons import FIT

LAUNCHER = "/env/bin/kafka-eos-python"
ZIPPED = Imported(version="4.3.0", file="/spark/pyspark.zip/pyspark/__init__.py", zipped=True, bytecode=False)
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1"}


def with_pyspark(module: Imported) -> Interpreter:
    return replace(FIT, modules={**FIT.modules, PYSPARK: module})


def found(answers: dict[str, Interpreter], environment: dict[str, str], launcher: str | None) -> list[Finding]:
    return list(findings(answers, environment, launcher=launcher))


def test_bytecode_everywhere_and_one_thread_are_right():
    shown = found({"python3": FIT}, ONE_THREAD, None)
    assert {each.severity for each in shown} == {Severity.OK}
    assert len(shown) == 4


@pytest.mark.parametrize(
    ("who", "hindrance", "said"),
    [
        ("python3", None, "in a driver's first processes; the others are forked"),
        ("python3 with the ZIP", None, "in each process; kafka-eos-python has them once"),
        (LAUNCHER, None, "once: a driver's processes are forked"),
        (LAUNCHER, "it needs Linux 5.3 or later", "in each process: it needs Linux 5.3 or later"),
        ("python3", "it needs Linux 5.3 or later", "in each process: it needs Linux 5.3 or later"),
    ],
)
def test_it_says_whether_processes_are_forked(who, hindrance, said):
    answers = {who: with_pyspark(ZIPPED) if "ZIP" in who else FIT}
    assert next(findings(answers, ONE_THREAD, launcher=LAUNCHER, hindrance=hindrance)).found == said


def test_a_pyspark_that_is_compiled_at_each_start_is_a_warning_that_names_the_launcher():
    warning = found({"python3": with_pyspark(ZIPPED), "/other": FIT}, ONE_THREAD, LAUNCHER)[1]
    assert warning.severity is Severity.WARNING
    assert warning.found == "compiled from pyspark.zip at each start, by python3"
    assert warning.action == f"Run: export PYSPARK_PYTHON={LAUNCHER}"


def test_the_same_pyspark_beside_the_package_helps_where_the_launcher_is_used_already_or_is_not_there():
    for who, launcher in ((LAUNCHER, LAUNCHER), ("python3", None)):
        warning = found({who: with_pyspark(ZIPPED)}, ONE_THREAD, launcher)[1]
        assert warning.action.startswith("Install PySpark of Spark's release with pip")


def test_a_zip_that_a_variable_keeps_in_the_path_is_told_by_that_variable():
    environment = {**ONE_THREAD, "KAFKA_EOS_PYSPARK": "zip"}
    warning = found({"python3": with_pyspark(ZIPPED)}, environment, LAUNCHER)[1]
    assert warning.action == "Unset KAFKA_EOS_PYSPARK"


def test_a_zip_with_bytecode_and_a_folder_are_right():
    for module in (replace(ZIPPED, bytecode=True), replace(ZIPPED, zipped=False), Imported(error="not installed")):
        assert found({"python3": with_pyspark(module)}, ONE_THREAD, LAUNCHER)[1].severity is Severity.OK


def test_packages_without_bytecode_are_named_with_the_command_that_compiles_them():
    numpy = Imported(version="2.4.6", file="/site/numpy/__init__.py", bytecode=False)
    pandas = Imported(version="2.3.3", file="/site/pandas/__init__.py", bytecode=False)
    python = replace(FIT, modules={**FIT.modules, "numpy": numpy, "pandas": pandas})
    second = found({"python3": python, "executors on here": python}, ONE_THREAD, None)[2]
    assert second.severity is Severity.WARNING
    assert second.found == "without bytecode: numpy, pandas in /env/bin/python"
    assert second.action == "Run: /env/bin/python -m compileall -q /site/numpy /site/pandas"


def test_a_package_that_is_missing_is_not_one_without_bytecode():
    python = replace(FIT, modules={**FIT.modules, "numpy": Imported(bytecode=False, error="not installed")})
    assert found({"python3": python}, ONE_THREAD, None)[2].severity is Severity.OK


def test_threads_that_nobody_uses_are_a_warning():
    for environment, shown in (({}, "not set"), ({"OPENBLAS_NUM_THREADS": "8"}, "8")):
        last = found({"python3": FIT}, environment, None)[3]
        assert (last.severity, last.found) == (Severity.WARNING, shown)
