"""The page about the simulation: its example runs."""

from __future__ import annotations

import re
from pathlib import Path

_PAGE = Path(__file__).parents[4] / "docs" / "simulation.md"


def test_the_example_of_the_page_runs(capsys):
    (example,) = re.findall(r"^```python\n(.*?)^```$", _PAGE.read_text(), re.MULTILINE | re.DOTALL)
    exec(compile(example, str(_PAGE), "exec"), {})
    shown = capsys.readouterr().out
    assert "seed 7: transaction.version" in shown
    assert "EndTxn v" in shown
