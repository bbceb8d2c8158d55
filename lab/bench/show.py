"""Shows benchmarks on a terminal and in Markdown."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from lab.bench.alternating import Show
from lab.bench.figures import Comparison, Point, Sweep, with_spread
from lab.bench.job_time import job_times
from lab.bench.machine import Machine
from lab.bench.real_time_figures import tables as real_time_tables
from lab.bench.start_figures import tables as start_tables
from lab.bench.steady_figures import Grid, grids
from lab.bench.targets import TargetRow

_WIDTH = 140


def console() -> Console:
    """Standard output, wide enough for the tables if it is not a terminal."""
    return Console(width=None if sys.stdout.isatty() else _WIDTH)


@contextmanager
def bars() -> Iterator[Show]:
    """A progress bar, on a terminal."""
    console = Console(stderr=True)
    with Progress(
        TextColumn("{task.description:<40}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        bar = progress.add_task("", total=None)

        def show(what: str, done: int, total: int) -> None:
            progress.update(bar, description=what, completed=done, total=total)

        yield show


def comparison(result: Comparison) -> Table:
    """A row per side, with the ratio of its median to that of the first side, which is ours."""
    table = Table(title=result.title, title_justify="left")
    table.add_column("")
    for heading in ("median s", "min s", "max s", "spread", "records/s", "time / ours"):
        table.add_column(heading, justify="right")
    first = result.series[0].name
    for series in result.series:
        table.add_row(
            series.name,
            f"{series.median:.3f}",
            f"{min(series.seconds):.3f}",
            f"{max(series.seconds):.3f}",
            f"{series.spread:.0%}",
            f"{series.rate:,.0f}",
            f"{result.ratio(first, series.name):.2f} ×",
        )
    return table


def sweep(result: Sweep) -> Table:
    """A row per line of the plot, a column per point."""
    places = sorted({point.at for point in result.points})
    table = Table(title=f"{result.title} ({result.y})", title_justify="left")
    table.add_column(result.x)
    for place in places:
        table.add_column(f"{place:,.0f}", justify="right")
    for name in result.lines:
        points = {point.at: point for point in result.line(name)}
        table.add_row(name, *(_with_spread(points[place]) if place in points else "" for place in places))
    return table


def _with_spread(point: Point) -> str:
    return with_spread(point.value, point.low, point.high)


def sweep_markdown(result: Sweep, machine: Machine) -> str:
    """A sweep as a table for PERFORMANCE.md, with the number of runs and the machine."""
    places = sorted({point.at for point in result.points})
    rows = [[f"{result.y}, by {result.x}", *(f"{place:,.0f}" for place in places)], ["---", *("---:" for _ in places)]]
    for name in result.lines:
        points = {point.at: point for point in result.line(name)}
        baseline = {point.at: point for point in result.line(result.baseline(name) or "") if result.alternatives}
        equal = {at: "= " for at, point in points.items() if at in baseline and point.equals(baseline[at])}
        rows.append([name, *(equal.get(at, "") + _with_spread(points[at]) if at in points else "" for at in places)])
    lines = [f"| {' | '.join(row)} |" for row in rows]
    where = _where(machine.running(result.settings.get("kafka")))
    runs = result.settings["runs"]
    lines += ["", f"Median (quartiles) of {runs} run{'' if runs == 1 else 's'}; {where}.", ""]
    if result.alternatives:
        order = result.order()
        lines += [
            '"=": not distinguishable from the first row of this client, because the quartiles overlap. Of the',
            f"{order.differ} pairs of a client's rows that are distinguishable in a column, {order.stable} have the",
            "same order in the first and in the second half of the runs.",
            "",
        ]
    return "\n".join(lines)


def _where(machine: Machine) -> str:
    kafka = f"Kafka {machine.versions['Kafka']}"
    return f"{kafka}; {machine.cores} cores of {machine.cpu}, load {machine.load:.2f} at the start"


def measured(result: Comparison | Sweep) -> Table:
    return comparison(result) if isinstance(result, Comparison) else sweep(result)


def details(result: Comparison | Sweep) -> Iterator[str]:
    """Further figures, in milliseconds, percent, MB or times, a line per side."""
    for name in ("phases_ms", "end_to_end_ms", "transaction_ms", "cost_percent", "slowest_ms", "peak_mb"):
        for side, figures in result.settings.get(name, {}).items():
            yield f"{name}, {side}: " + ", ".join(f"{key} {value:.1f}" for key, value in figures.items())
    for side, figures in result.settings.get("ratio", {}).items():
        yield f"ratio, {side}: " + ", ".join(f"{key} {value:.2f} ×" for key, value in figures.items())


def grid(grid: Grid) -> Table:
    """A table of text, with numbers to the right."""
    table = Table()
    for number, heading in enumerate(grid.headings):
        table.add_column(heading, justify="right" if number else "left")
    for row in grid.rows:
        table.add_row(*row)
    return table


def targets(rows: Iterable[TargetRow]) -> Table:
    """The table of targets with verdicts."""
    table = Table(title="Targets", title_justify="left")
    for heading in ("what", "target", "measured", "verdict"):
        table.add_column(heading)
    for row in rows:
        colour = "green" if row.holds else "bold red"
        table.add_row(row.what, row.target, row.measured, f"[{colour}]{row.verdict}[/]")
    return table


def insert(page: str, name: str, text: str) -> str:
    """The page with `text` between the two markers of this name. Raises ValueError for a page without them."""
    before, begin, rest = page.partition(f"<!-- {name}: begin -->")
    _, end, after = rest.partition(f"<!-- {name}: end -->")
    if not begin or not end:
        raise ValueError(f"the page has no markers {name}: begin and {name}: end")
    return f"{before}{begin}\n{text}{end}{after}"


def has(page: str, name: str) -> bool:
    """Whether the page has markers of this name."""
    return f"<!-- {name}: begin -->" in page


def insert_sweeps(page: str, stored: Mapping[str, tuple[Comparison | Sweep, Machine]]) -> str:
    """The page with the table of each sweep for which it has markers."""
    for name, (measured, machine) in stored.items():
        if isinstance(measured, Sweep) and has(page, name):
            page = insert(page, name, sweep_markdown(measured, machine))
    return page


def insert_grids(page: str, stored: Mapping[str, tuple[Comparison | Sweep, Machine]]) -> str:
    """The page with the tables of steady state for which it has markers. The load is the highest of a table's files."""
    results = {name: measured for name, (measured, _) in stored.items()}
    for grid in (*grids(results), *job_times(results), *start_tables(results), *real_time_tables(results)):
        if has(page, grid.name):
            machines = [machine for name, (_, machine) in stored.items() if name.startswith(f"{grid.files}-")]
            machine = max(machines, key=lambda machine: machine.load)
            rounds = "One round" if grid.rounds == 1 else f"Median (lowest and highest) of {grid.rounds} rounds"
            runs = f"{rounds}; {_where(machine)}."
            page = insert(page, grid.name, f"{grid.markdown}\n\n{runs}\n")
    return page


def markdown(rows: Sequence[TargetRow], machine: Machine) -> str:
    """The table of targets for PERFORMANCE.md, with the machine."""
    lines = [f"| {row.what} | {row.target} | {row.measured} | {row.verdict} |" for row in rows]
    return "\n".join(["| what | target | measured | verdict |", "|---|---|---|---|", *lines, "", f"{machine}.", ""])
