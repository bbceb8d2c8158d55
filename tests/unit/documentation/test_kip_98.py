"""The page on KIP-98 names code and tests that there are."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from tests.pages import ROOT, named

TABLE = (ROOT / "docs/kip-98.md").read_text().partition("## The requirements")[2]
ROWS = [line.strip("|").split("|") for line in TABLE.splitlines() if line.startswith("| ")][1:]


def quoted(column: int) -> list[str]:
    return sorted({name for row in ROWS for name in re.findall(r"`([^`]+)`", row[column])})


@cache
def functions_of(file: str) -> set[str]:
    tree = ast.parse((ROOT / "tests" / file).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_requirement_names_code_and_a_test():
    assert len(ROWS) > 20
    for requirement, code, tests in ROWS:
        assert "`" in code and "::" in tests, requirement


@pytest.mark.parametrize("name", quoted(1))
def test_the_code_exists(name):
    assert callable(named(name))


@pytest.mark.parametrize("name", quoted(2))
def test_the_test_exists(name):
    file, _, test = name.partition("::")
    assert test in functions_of(file)
