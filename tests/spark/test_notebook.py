"""The notebook runs from its first cell to its plot, and is kept without outputs."""

from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "quickstart.ipynb"


def outputs(notebook: nbformat.NotebookNode) -> Iterator[nbformat.NotebookNode]:
    return (output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs)


def test_the_notebook_ends_with_a_plot_of_what_was_written(tmp_path: Path) -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(notebook, timeout=240, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert [output for output in outputs(notebook) if "image/png" in output.get("data", {})]


def test_the_notebook_is_kept_without_outputs() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert list(outputs(notebook)) == []
    assert {cell.execution_count for cell in notebook.cells if cell.cell_type == "code"} == {None}
