"""The tables of measurements in our pages, but for that of targets, are those of the files in docs/performance."""

from __future__ import annotations

import re

import pytest

from lab.bench import job_time, show, store
from lab.bench.figures import Sweep
from lab.bench.real_time_figures import REAL_TIME
from lab.bench.start_figures import FOOTPRINT, START
from lab.bench.steady_figures import TABLES
from tests.pages import ROOT

STORED = {path.stem: store.read(path) for path in (ROOT / "docs" / "performance").glob("*.json")}


PAGES = [
    "PERFORMANCE.md",
    "docs/scaling.md",
    "docs/real-time.md",
    *(f"docs/{path.name}" for path in (ROOT / "docs").glob("performance-*.md")),
]


@pytest.mark.parametrize("name", PAGES)
def test_each_table_is_that_of_its_files(name):
    # If not: python -m lab bench tables docs/performance --into PERFORMANCE.md, and so on for each page
    page = (ROOT / name).read_text()
    assert show.insert_grids(show.insert_sweeps(page, STORED), STORED) == page
    marked = set(re.findall(r"<!-- (.+): begin -->", page))
    assert marked
    marked -= {"targets"}
    sweeps = {name for name, (measured, _) in STORED.items() if isinstance(measured, Sweep)}
    assert marked <= sweeps | {*TABLES, job_time.NAME, job_time.COSTS, START, FOOTPRINT, REAL_TIME}


def test_every_table_has_one_page_and_the_command_of_make_writes_it():
    marked = [marker for name in PAGES for marker in re.findall(r"<!-- (.+): begin -->", (ROOT / name).read_text())]
    assert len(marked) == len(set(marked))
    written = re.findall(r"--into (\S+)", (ROOT / "Makefile").read_text())
    assert sorted(written) == sorted(PAGES)


def test_each_ratio_of_whole_queries_is_in_the_table_of_targets():
    section = (ROOT / "PERFORMANCE.md").read_text().partition("## Whole queries")[2].partition("\n## ")[0]
    ratios = re.findall(r"\| (\d+\.\d+ × \(.+\)) \|", section)
    targets = (ROOT / "docs" / "performance-targets.md").read_text()
    assert len(ratios) >= 5
    assert [ratio for ratio in ratios if ratio not in targets] == []
