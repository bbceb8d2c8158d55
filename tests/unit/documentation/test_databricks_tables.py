"""The notebook on a Delta table says that it was not run on Databricks; what can be checked without it is checked."""

from __future__ import annotations

import ast
import importlib
import inspect
import re

from tests.pages import ROOT

NOTEBOOK = ROOT / "notebooks" / "databricks_tables.py"
FIRST_LINE = "# Databricks notebook source\n"


def code() -> list[ast.Module]:
    """Its Python cells."""
    text = NOTEBOOK.read_text()
    assert text.startswith(FIRST_LINE)
    cells = text.removeprefix(FIRST_LINE).split("# COMMAND ----------\n")
    return [ast.parse(cell) for cell in cells if not cell.strip().startswith("# MAGIC")]


def test_it_says_that_it_was_not_run_on_databricks():
    assert "**This notebook was not run on Databricks.**" in NOTEBOOK.read_text()
    magics = re.findall(r"^# MAGIC (%\w+.*)$", NOTEBOOK.read_text(), re.MULTILINE)
    assert set(magics) == {"%md", "%pip install spark-kafka-eos"}


def test_what_it_imports_exists_and_takes_the_arguments_that_it_gives():
    names: dict[str, object] = {}
    for cell in code():
        for node in ast.walk(cell):
            if isinstance(node, ast.ImportFrom):
                module = importlib.import_module(node.module or "")
                names |= {each.asname or each.name: getattr(module, each.name) for each in node.names}
    checked = set()
    for cell in code():
        for node in ast.walk(cell):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id not in names:
                continue
            keywords = {each.arg: None for each in node.keywords if each.arg is not None}
            called = names[node.func.id]
            assert callable(called)
            inspect.signature(called).bind(*node.args, **keywords)
            checked.add(node.func.id)
    assert checked == {"DeltaParticipant", "TransactionalWriter"}
