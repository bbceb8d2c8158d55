"""`python -m lab explore`: runs the connector's code through all histories of a small query up to a bound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column, Table

if TYPE_CHECKING:
    from lab.simulation.exhaustive.explore import Explored
    from lab.simulation.exhaustive.scenario import Bound


def explore(
    switches: Annotated[int, typer.Option(min=0, help="How often a process is interrupted for another one.")] = 1,
    faults: Annotated[int, typer.Option(min=0, help="How many faults happen.")] = 1,
    markers: Annotated[int, typer.Option(min=0, help="How many markers of a transaction are late.")] = 0,
    batches: Annotated[int, typer.Option(min=1, help="Number of micro-batches.")] = 1,
    way: Annotated[
        list[str] | None, typer.Option(help="driver, executors or sink; may be repeated. Default: all of them.")
    ] = None,
    most: Annotated[int | None, typer.Option(min=1, help="Stop each scenario after this number of histories.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Number of processes.")] = 2,
) -> None:
    """Run all histories of a small query up to a bound, instead of those that seeds sample.

    A history with fewer departures from the usual course comes first. The first that is wrong is shown.
    """
    # Imported on demand: they load the codec and the protocol's classes, which no other command needs.
    from lab.simulation.exhaustive.run import WAYS, run, scenarios
    from lab.simulation.exhaustive.scenario import Bound

    unknown = set(way or ()).difference(WAYS)
    if unknown:
        raise typer.BadParameter(f"{', '.join(sorted(unknown))}: not one of {', '.join(WAYS)}", param_hint="--way")
    asked = scenarios([name for name in WAYS if name in (way or WAYS)], batches)
    bound, console = Bound(switches, faults, markers), Console(highlight=False)
    results = []
    with Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console
    ) as bars:
        tasks = {scenario: bars.add_task(str(scenario), total=None) for scenario in asked}
        for explored in run(
            asked,
            bound,
            jobs=jobs,
            most=most,
            progress=lambda scenario, done, discovered: bars.update(tasks[scenario], completed=done, total=discovered),
        ):
            done = explored.histories
            bars.update(tasks[explored.scenario], completed=done, total=done)
            results.append(explored)
    results.sort(key=lambda explored: asked.index(explored.scenario))
    console.print(f"up to {bound}")
    console.print(table(results))
    for explored in results:
        _show_violations(console, explored, bound)
    if any(explored.violations for explored in results):
        raise typer.Exit(1)


def table(results: list[Explored]) -> Table:
    """What was explored, a line for each scenario."""
    names = ("scenario", "runs", "ended", "states", "ends", "CPU s", "result")
    table = Table(*(Column(name, no_wrap=True) for name in names), box=None)
    for explored in results:
        wrong = "[bold red]wrong[/]" if explored.violations else "[green]right[/]"
        table.add_row(
            str(explored.scenario),
            f"{explored.histories:,}",
            f"{explored.ended:,}",
            f"{explored.states:,}",
            f"{len(explored.ends):,}",
            f"{explored.seconds:.0f}",
            wrong if explored.complete or explored.violations else "not done",
        )
    return table


def _show_violations(console: Console, explored: Explored, bound: Bound) -> None:
    from lab.simulation.exhaustive.explore import replay, timeline

    for violation in explored.violations:
        console.print(f"{explored.scenario}: [bold red]wrong[/] in history {violation.histories:,}")
        for what in violation.wrong:
            console.print(f"  {escape(what)}", soft_wrap=True)
        for line in timeline(replay(explored.scenario, bound, violation.choices)):
            console.print(line, markup=False, soft_wrap=True)
