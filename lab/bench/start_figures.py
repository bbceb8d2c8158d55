"""The tables of fresh sessions (start.py) and of the memory of all processes (footprint.py). Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from lab.bench.figures import Comparison
from lab.bench.places import Where
from lab.bench.steady_figures import BUILT_IN, OURS, Grid, Way, paired
from lab.bench.store import Measured

START, FOOTPRINT = "start", "footprint"  # of the markers in a page, and how the names of files begin
COMMIT, VISIBLE, PROGRAM = "session to first commit", "session to first record", "program to first record"
_MOMENTS = (COMMIT, VISIBLE, PROGRAM)
TOGETHER, NEW_PAGES = "together", "JVM's new pages"


def tables(results: Mapping[str, Measured]) -> Iterator[Grid]:
    """The tables for what was measured, by the names of its files."""
    for kind, table in ((START, starts), (FOOTPRINT, footprints)):
        named = (measured for key, measured in results.items() if key.startswith(f"{kind}-"))
        if comparisons := [measured for measured in named if isinstance(measured, Comparison)]:
            yield table(comparisons)


def starts(results: Collection[Comparison]) -> Grid:
    """A row for each way and place: seconds of both sides, and how many times the built-in one's ours takes."""
    rows: dict[str, list[str]] = {}
    for measured in sorted(results, key=_order_of_starts):
        ours, theirs = measured.named(OURS), measured.named(BUILT_IN)
        place = f"{Way(measured.settings['way']).words}: {Where(measured.settings['where']).words}"
        cells = [f"{theirs.median:.1f}", f"{ours.median:.1f}", str(paired(theirs, ours))]
        rows.setdefault(place, []).extend(cells)
    headings = ("s", *(heading for name in _MOMENTS for heading in (f"{name}, built-in", "ours", "ratio")))
    rounds = min((len(measured.series[0].seconds) for measured in results), default=0)
    table = tuple((place, *cells) for place, cells in rows.items())
    return Grid(name=START, files=START, headings=headings, rows=table, rounds=rounds)


def _order_of_starts(measured: Comparison) -> tuple[int, int, int]:
    where, way, moment = (measured.settings[name] for name in ("where", "way", "moment"))
    return list(Where).index(Where(where)), list(Way).index(Way(way)), _MOMENTS.index(moment)


def footprints(results: Collection[Comparison]) -> Grid:
    """A row for each side of each load: together, the ratio to the built-in connector, and by role."""
    results = sorted(results, key=lambda measured: (measured.settings["partitions"], measured.settings["value_bytes"]))
    roles = list(
        dict.fromkeys(
            name for measured in results for figures in measured.settings["peak_mb"].values() for name in figures
        )
    )
    roles = [name for name in roles if name not in (TOGETHER, NEW_PAGES)]
    rows = []
    for measured in results:
        peaks = measured.settings["peak_mb"]
        for name, figures in peaks.items():
            ratio = figures[TOGETHER] / peaks[BUILT_IN][TOGETHER]
            load = f"{measured.settings['records']:,} × {measured.settings['value_bytes']:,} bytes"
            if measured.settings["partitions"] > 4:
                load += f", {measured.settings['partitions']:,} partitions"
            cells = [f"{figures[role]:,.0f}" if role in figures else "" for role in (*roles, NEW_PAGES)]
            rows.append((f"{load}: {name}", f"{figures[TOGETHER]:,.0f}", f"{ratio:.2f} ×", *cells))
    headings = ("MB at the peak", TOGETHER, "of built-in's", *roles, NEW_PAGES)
    rounds = min((len(measured.series[0].seconds) for measured in results), default=0)
    return Grid(name=FOOTPRINT, files=FOOTPRINT, headings=headings, rows=tuple(rows), rounds=rounds)
