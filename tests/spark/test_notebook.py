"""The notebook runs from its first cell to its plot, and is kept with the outputs of such a run.

`python -m tests.spark.test_notebook` renews them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "quickstart.ipynb"


def outputs(notebook: nbformat.NotebookNode) -> Iterator[nbformat.NotebookNode]:
    return (output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs)


def plots(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [output for output in outputs(notebook) if "image/png" in output.get("data", {})]


def executed(folder: Path) -> nbformat.NotebookNode:
    notebook: nbformat.NotebookNode = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(notebook, timeout=240, resources={"metadata": {"path": str(folder)}}).execute()
    return notebook


def test_the_notebook_ends_with_a_plot_of_what_was_written(tmp_path: Path) -> None:
    assert len(plots(executed(tmp_path))) == 1


def test_the_notebook_is_kept_with_its_plot_and_without_traces_of_a_machine() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert len(plots(notebook)) == 1
    assert [output for output in outputs(notebook) if output.output_type in ("stream", "error")] == []
    shown = "\n".join(str(output.get("data", {}).get("text/plain", "")) for output in outputs(notebook))
    assert "'at-least-once': {1: " in shown
    assert re.findall(r"(?<![\w.])/(?:tmp|home|root|Users|work|var)\b\S*|127\.0\.0\.1", shown) == []
    assert {tuple(cell.metadata) for cell in notebook.cells} == {()}


if __name__ == "__main__":
    renewed = executed(NOTEBOOK.parent)
    for cell in renewed.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            # What Spark writes to stderr names paths and hosts.
            cell.outputs = [output for output in cell.outputs if output.output_type != "stream"]
    nbformat.write(renewed, NOTEBOOK)
