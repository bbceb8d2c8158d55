"""Each requirement of docs/kip-98.md, taken out of the code: one of the tests that its row names fails.

A test that needs no broker comes first, and the first failure is enough, so most rows take seconds.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lab.mutants import changed, copy_package, run_tests
from tests.matrix import Cell
from tests.mutants import MUTANTS
from tests.pages import requirements

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_200)]

_FAILED = re.compile(r"^FAILED (tests/\S+::\w+)", re.MULTILINE)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package."""
    return copy_package(tmp_path_factory.mktemp("mutant"))


def named_by(row: str) -> list[str]:
    """Those that the row names, without a broker first."""
    (requirement,) = [each for each in requirements() if each.what.startswith(row)]
    return sorted((f"tests/{test}" for test in requirement.tests), key=lambda test: not test.startswith("tests/unit"))


def test_without_a_mutant_the_tests_without_a_broker_pass(package):
    tests = sorted({test for row in MUTANTS for test in named_by(row) if test.startswith("tests/unit")})
    done = run_tests(package, tests)
    assert done.returncode == 0, done.stdout[-3_000:] + done.stderr[-3_000:]


@pytest.mark.parametrize("row", MUTANTS)
def test_without_what_the_row_requires_one_of_its_tests_fails(row, package, cell: Cell):
    mutant = MUTANTS[row]
    file = package / mutant.file
    with changed(file, mutant.of(file.read_text())):
        done = run_tests(package, named_by(row))
    failed = _FAILED.findall(done.stdout)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED and failed, done.stdout[-3_000:] + done.stderr[-3_000:]
    cell("Requirements taken out of the code", row, "what fails", failed[0].removeprefix("tests/"))
