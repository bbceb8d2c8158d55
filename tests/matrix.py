"""Tables of what was tried: a test says which cell it fills, the end of the run prints every table whole.

Cells travel as the reports' user properties, so they arrive from parallel workers too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

Cell = Callable[..., None]
_PROPERTY = "cell"
_PASSED = "ok"
_OUTCOMES = {"passed": _PASSED, "failed": "FAILED", "error": "ERROR"}


@pytest.fixture
def cell(request: pytest.FixtureRequest) -> Cell:
    """`cell(table, row, column, shown="ok")`: this test's outcome belongs there, `shown` if it passes. Several
    tests may fill one cell."""

    def fill(table: str, row: str, column: str, shown: str = _PASSED) -> None:
        # Plain text: workers hand over nothing else.
        request.node.user_properties.append((_PROPERTY, tuple(map(str, (table, row, column, shown)))))

    return fill


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One section per table: rows and columns sorted, in each cell the outcome, and how many tests had it."""
    tables: dict[str, dict[tuple[str, str], Counter[str]]] = {}
    for outcome, failed in _OUTCOMES.items():
        for report in terminalreporter.getreports(outcome):
            # A file that could not be collected is reported too, and has no properties.
            for name, value in getattr(report, "user_properties", ()):
                if name == _PROPERTY:
                    table, row, column, shown = value
                    shown = shown if outcome == "passed" else failed
                    tables.setdefault(table, {}).setdefault((row, column), Counter())[shown] += 1
    for table, cells in sorted(tables.items()):
        outcomes = sum(cells.values(), Counter[str]())
        good = outcomes.total() - sum(outcomes[name] for name in ("FAILED", "ERROR"))
        terminalreporter.section(f"{table}: {good} of {outcomes.total()} passed")
        for line in lay_out(cells):
            terminalreporter.write_line(line)


def lay_out(cells: dict[tuple[str, str], Counter[str]]) -> list[str]:
    """The lines of a table: a head, then a row's name and its cells, aligned; `-` where no test ran."""
    rows, columns = (sorted({names[side] for names in cells}) for side in (0, 1))
    lines = [["", *columns]] + [
        [row, *(_shown(cells.get((row, column), Counter())) for column in columns)] for row in rows
    ]
    widths = [max(map(len, texts)) for texts in zip(*lines, strict=True)]
    return ["  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() for line in lines]


def _shown(outcomes: Counter[str]) -> str:
    return ", ".join(name if count == 1 else f"{name} ×{count}" for name, count in outcomes.items()) or "-"
