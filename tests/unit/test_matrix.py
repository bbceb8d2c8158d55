from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

from tests.matrix import lay_out, pytest_terminal_summary


def test_a_table_shows_each_cell_s_outcome_and_how_many_tests_had_it():
    cells = {
        ("driver killed", "TV2"): Counter(ok=2, FAILED=1),
        ("driver killed", "TV1"): Counter(ok=1),
        ("cut", "TV1"): Counter(ERROR=1),
    }

    assert lay_out(cells) == [
        "               TV1    TV2",
        "cut            ERROR  -",
        "driver killed  ok     ok ×2, FAILED",
    ]


def test_a_cell_shows_the_text_that_its_test_gave_unless_it_failed():
    def report(*cell):
        return SimpleNamespace(user_properties=[("cell", cell), ("other", "x")])

    reports = {
        "passed": [report("rows", "assign", "ours", "5 rows"), report("rows", "assign", "theirs", "ok")],
        "failed": [report("rows", "pattern", "ours", "7 rows"), SimpleNamespace()],
    }
    lines: list[str] = []
    reporter: Any = SimpleNamespace(
        getreports=lambda outcome: reports.get(outcome, []), section=lines.append, write_line=lines.append
    )
    pytest_terminal_summary(reporter)
    assert lines == [
        "rows: 2 of 3 passed",
        "         ours    theirs",
        "assign   5 rows  ok",
        "pattern  FAILED  -",
    ]
