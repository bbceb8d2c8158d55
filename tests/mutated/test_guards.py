"""Each guard of tests/guards.py, taken out of the code: the test that it names fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.mutants import changed, copy_package
from lab.warm_tests import first_failure
from tests.guards import GUARDS
from tests.matrix import Cell

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_200)]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package."""
    return copy_package(tmp_path_factory.mktemp("guard"))


def test_with_all_guards_their_tests_pass(package):
    assert first_failure(package, sorted({test for _, test in GUARDS.values()}), 600) is None


@pytest.mark.parametrize("guard", GUARDS)
def test_without_the_guard_its_test_fails(guard, package, cell: Cell):
    mutant, test = GUARDS[guard]
    file = package / mutant.file
    with changed(file, mutant.of(file.read_text(encoding="utf-8"))):
        failed = first_failure(package, [test], 300)
    assert failed is not None and failed.startswith(test), failed
    cell("Guards taken out of the code", guard, "what fails", failed.removeprefix("tests/unit/"))
