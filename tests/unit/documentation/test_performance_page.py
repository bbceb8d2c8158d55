"""PERFORMANCE.md's tables, but for that of targets, are those of the files in docs/performance, and its plots exist."""

from __future__ import annotations

import re

from lab.bench import show, store
from lab.bench.figures import Sweep
from lab.bench.steady_figures import TABLES
from tests.pages import ROOT

PAGE = (ROOT / "PERFORMANCE.md").read_text()
STORED = {path.stem: store.read(path) for path in (ROOT / "docs" / "performance").glob("*.json")}


def test_each_table_is_that_of_its_files():
    # If not: python -m lab bench tables docs/performance --into PERFORMANCE.md
    assert show.insert_grids(show.insert_sweeps(PAGE, STORED), STORED) == PAGE
    marked = set(re.findall(r"<!-- (.+): begin -->", PAGE)) - {"targets"}
    sweeps = {name for name, (measured, _) in STORED.items() if isinstance(measured, Sweep)}
    assert marked <= sweeps | set(TABLES)
