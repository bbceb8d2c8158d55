"""The table of latencies in real time (real_time.py). Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lab.bench.figures import Point, Sweep, with_spread
from lab.bench.steady_figures import Grid
from lab.bench.store import Measured

REAL_TIME = "real-time"  # of the markers in a page, and how the names of files begin


def tables(results: Mapping[str, Measured]) -> Iterator[Grid]:
    """The table of what was measured, by the names of its files."""
    for key, measured in results.items():
        if key.startswith(f"{REAL_TIME}-") and isinstance(measured, Sweep):
            yield latencies(measured)


def latencies(measured: Sweep) -> Grid:
    """A row for each quantile of each copy: at each rate its milliseconds, and how many times these are ours."""
    rates = sorted({point.at for point in measured.points})
    rows = []
    for panel in measured.panels:
        first, *_ = lines = measured.lines_of(panel)
        ours = {point.at: point.value for point in measured.line(first)}
        for line in lines:
            points = {point.at: point for point in measured.line(line)}
            row = [line.replace(", ", ": ", 1)]
            for rate in rates:
                point = points.get(rate)
                ratio = "" if point is None or line == first else f"{ours[rate] / point.value:.2f} ×"
                row += ["" if point is None else _cell(point), ratio]
            rows.append(tuple(row))
    headings = ("ms", *(heading for rate in rates for heading in (f"{rate:,.0f} records/s", "ours to it")))
    return Grid(
        name=REAL_TIME, files=REAL_TIME, headings=headings, rows=tuple(rows), rounds=measured.settings["rounds"]
    )


def _cell(point: Point) -> str:
    return with_spread(point.value, *((min(point.runs), max(point.runs)) if len(point.runs) > 1 else ()))
