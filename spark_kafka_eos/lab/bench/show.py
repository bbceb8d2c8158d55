"""Shows benchmarks on a terminal and in Markdown."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from spark_kafka_eos.lab.bench.alternating import Show
from spark_kafka_eos.lab.bench.figures import Comparison, Sweep
from spark_kafka_eos.lab.bench.machine import Machine
from spark_kafka_eos.lab.bench.targets import TargetRow

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
        values = {point.at: point.value for point in result.line(name)}
        table.add_row(name, *(f"{values[place]:,.1f}" if place in values else "" for place in places))
    return table


def measured(result: Comparison | Sweep) -> Table:
    return comparison(result) if isinstance(result, Comparison) else sweep(result)


def details(result: Comparison | Sweep) -> Iterator[str]:
    """Further figures, in milliseconds or percent, a line per side."""
    for name in ("phases_ms", "end_to_end_ms", "transaction_ms", "cost_percent"):
        for side, figures in result.settings.get(name, {}).items():
            yield f"{name}, {side}: " + ", ".join(f"{key} {value:.1f}" for key, value in figures.items())


def targets(rows: Iterable[TargetRow]) -> Table:
    """The table of targets with verdicts."""
    table = Table(title="Targets", title_justify="left")
    for heading in ("what", "target", "measured", "verdict"):
        table.add_column(heading)
    for row in rows:
        colour = "green" if row.holds else "bold red"
        table.add_row(row.what, row.target, row.measured, f"[{colour}]{row.verdict}[/]")
    return table


_BEGIN, _END = "<!-- targets: begin -->", "<!-- targets: end -->"


def insert(page: str, text: str) -> str:
    """The page with `text` between its two markers. Raises ValueError for a page without them."""
    before, begin, rest = page.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"the page has no {_BEGIN} and {_END}")
    return f"{before}{begin}\n{text}{end}{after}"


def markdown(rows: Sequence[TargetRow], machine: Machine) -> str:
    """The table of targets for PERFORMANCE.md, with the machine."""
    lines = [f"| {row.what} | {row.target} | {row.measured} | {row.verdict} |" for row in rows]
    return "\n".join(["| what | target | measured | verdict |", "|---|---|---|---|", *lines, "", f"{machine}.", ""])
