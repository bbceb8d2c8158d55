"""The page on KIP-98 names code and tests that there are, for whatever it says; each requirement has its mutant."""

from __future__ import annotations

import pytest

from tests.mutants import MUTANTS
from tests.pages import ROOT, kip_98_rows, named, requirements

REASONS = [row for row in kip_98_rows(4) if row[0] != "reason"]
REQUIREMENTS = requirements()


def test_every_reason_and_every_requirement_names_a_test():
    assert len(REASONS) == 6 and len(REQUIREMENTS) > 60
    for row in REASONS:
        assert "::" in row[-1], row[0]
    for requirement in REQUIREMENTS:
        assert requirement.code and all("::" in test for test in requirement.tests), requirement.what


def test_the_code_exists():
    assert [name for row in REQUIREMENTS for name in row.code if not callable(named(name))] == []


def test_each_requirement_has_one_mutant_and_each_mutant_one_requirement():
    begins = [(row.what, [begin for begin in MUTANTS if row.what.startswith(begin)]) for row in REQUIREMENTS]
    assert [(what, found) for what, found in begins if len(found) != 1] == []
    assert sorted(begin for _, found in begins for begin in found) == sorted(MUTANTS)


@pytest.mark.parametrize("row", REQUIREMENTS, ids=lambda row: row.what[:40])
def test_the_mutant_changes_one_place_of_the_code_that_the_row_names(row):
    (mutant,) = (mutant for begin, mutant in MUTANTS.items() if row.what.startswith(begin))
    assert any(code.startswith(f"{mutant.module}.") for code in row.code)
    changed = mutant.of((ROOT / "spark_kafka_eos" / mutant.file).read_text())
    compile(changed, mutant.module, "exec")
