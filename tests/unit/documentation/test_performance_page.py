"""The tables of measurements in our pages, but for that of targets, are those of the files in docs/performance."""

from __future__ import annotations

import re

import pytest

from lab.bench import job_time, show, store
from lab.bench.figures import Sweep
from lab.bench.steady_figures import TABLES
from tests.pages import ROOT

STORED = {path.stem: store.read(path) for path in (ROOT / "docs" / "performance").glob("*.json")}


@pytest.mark.parametrize("name", ["PERFORMANCE.md", "docs/scaling.md"])
def test_each_table_is_that_of_its_files(name):
    # If not: python -m lab bench tables docs/performance --into PERFORMANCE.md --into docs/scaling.md
    page = (ROOT / name).read_text()
    assert show.insert_grids(show.insert_sweeps(page, STORED), STORED) == page
    marked = set(re.findall(r"<!-- (.+): begin -->", page)) - {"targets"}
    assert marked
    sweeps = {name for name, (measured, _) in STORED.items() if isinstance(measured, Sweep)}
    assert marked <= sweeps | {*TABLES, job_time.NAME, job_time.COSTS}
