"""CI's own rules: what a report must prove, that nothing outside narrows a run."""

import functools
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[3]


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / ".ci" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


verdict = script("verdict")


@functools.cache
def _every_test() -> tuple[str, ...]:
    tests = ROOT / "tests"
    return tuple(
        f"{verdict.module(file, tests)}{name}"
        for file in verdict.expected(tests)
        for name in verdict.in_every_run(file) or ["test_it"]
    )


def whole_run() -> dict[str, str]:
    """A report's cases, as `module.name` to what is inside the element: as few as may pass, one of every test."""
    return dict.fromkeys(_every_test(), "")


def report(folder: Path, cases: dict[str, str]) -> Path:
    elements = (
        f'<testcase classname="{case.rpartition(".")[0]}" name="{case.rpartition(".")[2]}">{inside}</testcase>'
        for case, inside in cases.items()
    )
    file = folder / "tests.xml"
    file.write_text(f"<testsuites><testsuite>{''.join(elements)}</testsuite></testsuites>")
    return file


def faults(folder: Path, cases: dict[str, str]) -> list[str]:
    return list(verdict.faults(report(folder, cases), ROOT / "tests"))


def test_a_whole_run_proves_something(tmp_path):
    assert faults(tmp_path, whole_run()) == []


def test_only_what_needs_more_than_the_prerequisites_may_be_skipped_and_that_is_said(tmp_path, capsys):
    kfake = next(case for case in whole_run() if case.startswith("tests.broker.test_kfake."))
    cases = whole_run() | {kfake: '<skipped message="Go, which builds kfake, is not installed"/>'}
    assert faults(tmp_path, cases) == []
    verdict.main(report(tmp_path, cases))
    assert "left out: tests.broker.test_kfake: Go, which builds kfake, is not installed" in capsys.readouterr().out
    assert faults(tmp_path, whole_run() | {kfake: "<failure/>"}) != []


BARRIER = ROOT / "tests" / "unit" / "appending" / "test_barrier.py"
ONE = verdict.module(BARRIER, ROOT / "tests") + verdict.in_every_run(BARRIER)[0]


@pytest.mark.parametrize("inside", ["<skipped/>", '<skipped type="pytest.xfail"/>', "<failure/>", "<error/>"])
def test_a_case_that_did_not_pass_proves_nothing(tmp_path, inside):
    assert len(faults(tmp_path, whole_run() | {ONE: inside})) == 1


def test_a_test_without_a_case_is_named_and_a_file_without_any_is_named_once(tmp_path):
    file, place = ROOT / "tests/unit/appending/test_barrier.py", f"{ONE.rpartition('.')[0]}."
    without = {case: inside for case, inside in whole_run().items() if case != ONE}
    assert faults(tmp_path, without) == [f"nothing ran of {file}::{ONE.removeprefix(place)}"]
    without = {case: inside for case, inside in without.items() if not case.startswith(place)}
    more = {f"tests.unit.test_more.more_{n}": "" for n in range(100)}
    assert faults(tmp_path, without | more) == [f"nothing ran of {file}"]


def test_of_every_run_are_tests_without_a_condition_and_without_a_slow_case(tmp_path):
    file = tmp_path / "test_some.py"
    file.write_text(
        "def test_always(): ...\n"
        "@pytest.mark.parametrize('n', [1, 2])\ndef test_cases(n): ...\n"
        "@pytest.mark.slow\ndef test_slow(): ...\n"
        "@pytest.mark.parametrize('n', [pytest.param(1, marks=SLOW)])\ndef test_slow_cases(n): ...\n"
        "if NEW:\n    def test_sometimes(): ...\n"
        "def helper(): ...\n"
    )
    assert verdict.in_every_run(file) == ["test_always", "test_cases"]


def test_a_file_of_slow_tests_is_not_expected_and_one_with_others_beside_them_is():
    expected = {str(file.relative_to(ROOT)) for file in verdict.expected(ROOT / "tests")}
    assert "tests/faults/test_three_brokers.py" not in expected
    assert {"tests/faults/test_matrix.py", "tests/broker/test_random_workload.py"} <= expected


def test_the_slowest_files_come_first_with_the_time_of_all_their_cases(tmp_path):
    file = report(tmp_path, {})
    times = [("broker.test_a", 2), ("broker.test_a", 3), ("spark.test_b", 4), ("unit.wire.test_c", 0.5)]
    cases = [f'<testcase classname="tests.{name}" name="test_it" time="{time}"/>' for name, time in times]
    file.write_text(f"<testsuite>{''.join(cases)}</testsuite>")
    assert verdict.slowest(file, most=2) == [("broker.test_a", 5.0), ("spark.test_b", 4.0)]


@pytest.fixture
def ci(tmp_path: Path) -> Path:
    """A checkout whose `make` notes the environment it is called with and leaves the reports in build/ as they are."""
    checkout, tools = tmp_path / "checkout", tmp_path / "tools"
    for folder in (checkout / ".ci", checkout / ".venv" / "bin", checkout / "build", tools):
        folder.mkdir(parents=True)
    for name in ("run", "verdict.py", "tested.py", "tested.json", "slow_run.py"):
        (checkout / ".ci" / name).write_text((ROOT / ".ci" / name).read_text())
    (checkout / "tests").symlink_to(ROOT / "tests")
    python = checkout / ".venv" / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    (tools / "make").write_text('#!/bin/sh\nenv > "build/env-$1"\necho "== 2 passed in 1s =="\n')
    (tools / "make").chmod(0o755)
    report(checkout / "build", {}).rename(checkout / "build" / "spark-4.0.5.xml")
    report(checkout / "build", whole_run())
    return checkout


def run(checkout: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    path = f"{checkout.parent / 'tools'}:{os.environ['PATH']}"
    return subprocess.run(
        ["bash", checkout / ".ci" / "run"],
        env={**os.environ, "PATH": path} | environment, check=False, capture_output=True, text=True, timeout=60,
    )  # fmt: skip


def test_nothing_in_the_environment_narrows_ci(ci):
    narrowing = {
        "TESTS": "tests/unit", "KAFKA": "3.9.1", "JOBS": "9", "VENV": "/elsewhere", "MAKEFLAGS": "n",
        "PYTEST_ADDOPTS": "-k nothing", "PYTEST_PLUGINS": "x", "PYTHONPATH": "/elsewhere",
    }  # fmt: skip
    done = run(ci, **narrowing)
    assert done.returncode == 0, done.stdout + done.stderr
    seen = {line.partition("=")[0] for line in (ci / "build" / "env-test").read_text().splitlines()}
    assert not seen & set(narrowing)


def test_ci_fails_on_a_report_that_proves_nothing(ci):
    report(ci / "build", {"tests.broker.test_acls.test_it": "", "tests.spark.test_session.test_it": ""})
    done = run(ci)
    assert done.returncode == 1
    assert "nothing is proven" in done.stderr


@pytest.mark.parametrize("failing", ["test", "test-releases"])
def test_ci_fails_where_the_tests_or_an_older_release_fail_and_prints_what_both_said(ci, failing):
    (ci.parent / "tools" / "make").write_text(f'#!/bin/sh\necho "$1 was run"\n[ "$1" != {failing} ] || exit 3\n')
    done = run(ci)
    assert done.returncode == 3
    assert "test was run" in done.stdout.splitlines()
    assert "test-releases was run" in done.stdout.splitlines()
    assert "== verdict" not in done.stdout


def test_ci_says_when_the_slow_tests_last_passed(ci):
    assert re.search("histories-0 +│ never run to the end", run(ci).stdout)
