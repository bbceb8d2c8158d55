"""The page on KIP-98 names code and tests that there are, for whatever it says."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from functools import cache

from tests.pages import ROOT, named

PAGE = (ROOT / "docs/kip-98.md").read_text()
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("| ")]
REASONS = [row for row in ROWS if len(row) == 4 and row[0] != "reason"]
REQUIREMENTS = [row for row in ROWS if len(row) == 3 and row[1] != "code"]


def quoted(cells: Iterable[str]) -> list[str]:
    return sorted({name for cell in cells for name in re.findall(r"`([^`]+)`", cell)})


@cache
def functions_of(file: str) -> set[str]:
    tree = ast.parse((ROOT / "tests" / file).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_reason_and_every_requirement_names_a_test():
    assert len(REASONS) == 6 and len(REQUIREMENTS) > 40
    for row in (*REASONS, *REQUIREMENTS):
        assert "::" in row[-1], row[0]
    for requirement, code, _ in REQUIREMENTS:
        assert "`" in code, requirement


def test_the_code_exists():
    assert [name for name in quoted(code for _, code, _ in REQUIREMENTS) if not callable(named(name))] == []


def test_the_tests_exist():
    tests = [name.partition("::") for name in quoted(row[-1] for row in (*REASONS, *REQUIREMENTS))]
    assert [(file, test) for file, _, test in tests if test not in functions_of(file)] == []
