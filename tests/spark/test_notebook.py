"""The notebooks run from the first cell to the plot, and are kept with the outputs of such a run.

`python -m tests.spark.test_notebook` renews them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

FOLDER = Path(__file__).parents[2] / "notebooks"
SHOWN = {
    "quickstart": "'at-least-once': {1: ",
    "topic_and_table": "(True, 10000)",
    "dead_letters": "{'orders': 20000, 'orders-clean': 19800, 'orders-dead': 200}",
}


def outputs(notebook: nbformat.NotebookNode) -> Iterator[nbformat.NotebookNode]:
    return (output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs)


def plots(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [output for output in outputs(notebook) if "image/png" in output.get("data", {})]


def kept(name: str) -> nbformat.NotebookNode:
    notebook: nbformat.NotebookNode = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    return notebook


def executed(name: str, folder: Path) -> nbformat.NotebookNode:
    notebook = kept(name)
    NotebookClient(notebook, timeout=240, resources={"metadata": {"path": str(folder)}}).execute()
    return notebook


# Their paths through Spark are those of test_crashes, test_decode_orders and test_topic_and_table.
@pytest.mark.slow
@pytest.mark.parametrize("name", SHOWN)
def test_a_notebook_ends_with_a_plot_of_what_was_written(tmp_path: Path, name: str) -> None:
    assert len(plots(executed(name, tmp_path))) == 1


@pytest.mark.parametrize("name", SHOWN)
def test_a_notebook_is_kept_with_its_plot_and_without_traces_of_a_machine(name: str) -> None:
    notebook = kept(name)
    assert len(plots(notebook)) == 1
    assert [output for output in outputs(notebook) if output.output_type in ("stream", "error")] == []
    shown = "\n".join(str(output.get("data", {}).get("text/plain", "")) for output in outputs(notebook))
    assert SHOWN[name] in shown
    assert re.findall(r"(?<![\w.])/(?:tmp|home|root|Users|work|var)\b\S*|127\.0\.0\.1", shown) == []
    assert {tuple(cell.metadata) for cell in notebook.cells} == {()}


if __name__ == "__main__":
    for each in sys.argv[1:] or SHOWN:
        renewed = executed(each, FOLDER)
        for cell in renewed.cells:
            cell.metadata = {}
            if cell.cell_type == "code":
                # What Spark writes to stderr names paths and hosts.
                cell.outputs = [output for output in cell.outputs if output.output_type != "stream"]
        nbformat.write(renewed, FOLDER / f"{each}.ipynb")
