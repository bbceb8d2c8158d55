"""`python -m lab spec`: has TLC check the specification, or shows what happens without one of its guards."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table


def spec(
    without: Annotated[
        list[str] | None,
        typer.Option(help="Leave this guard out, and show the behaviour that TLC finds; may be repeated."),
    ] = None,
    larger: Annotated[bool, typer.Option("--larger", help="Check the larger bounds, too: most of an hour.")] = False,
    traces: Annotated[
        int, typer.Option(min=0, help="Instead, check that the code follows it in this number of simulated histories.")
    ] = 0,
    first: Annotated[int, typer.Option(min=0, help="The first seed of these histories.")] = 0,
    late: Annotated[bool, typer.Option("--late", help="In these histories, drivers often come back late.")] = False,
) -> None:
    """Check the specification of the shared transaction (spec/*.tla) with TLC."""
    from lab.specification.models import EVERY_RUN, LARGER, WEAKENED, weakened
    from lab.specification.timeline import timeline
    from lab.specification.tlc import check

    console = Console(highlight=False)
    if traces:
        raise typer.Exit(_check_traces(console, range(first, first + traces), late=late))
    if without:
        asked = next((names for names in WEAKENED if set(names) == set(without)), None)
        if asked is None:
            known = "; ".join(" ".join(f"--without {name}" for name in names) for names in WEAKENED)
            raise typer.BadParameter(
                f"no model leaves out {' and '.join(without)}; known are {known}", param_hint="--without"
            )
        model, _ = weakened(asked)
        result = check(model)
        console.print(
            f"{model}, without {' and '.join(asked)}: {result.violated or 'nothing'} is violated", markup=False
        )
        for line in timeline(result.steps):
            console.print(line, markup=False, soft_wrap=True)
        raise typer.Exit(0 if result.violated else 1)
    table = Table("model", "states", "seconds", "violated", box=None)
    wrong = False
    for model in (*EVERY_RUN, *(LARGER if larger else ())):
        result = check(model, large=model in LARGER)
        wrong = wrong or result.violated is not None
        table.add_row(str(model), f"{result.distinct:,}", f"{result.seconds:.0f}", result.violated or "nothing")
    console.print(table)
    if wrong:
        raise typer.Exit(1)


def _check_traces(console: Console, seeds: range, *, late: bool) -> int:
    """The exit code: 1 if the code does a step that the specification does not allow."""
    from lab.simulation.conditions import Conditions
    from lab.specification.traces import check_histories, explained

    with Progress(
        TextColumn("checking"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), console=console
    ) as bar:
        task = bar.add_task("histories", total=len(seeds))
        checked = check_histories(
            seeds, conditions=Conditions(late=late), progress=lambda done: bar.update(task, completed=done)
        )
    table = Table("histories", "count", box=None)
    table.add_row(
        f"allowed, all of their {checked.steps:,} steps" if not checked.rejected else "allowed", f"{checked.accepted:,}"
    )
    table.add_row("not allowed", f"{len(checked.rejected):,}")
    for what, count in checked.outside.most_common():
        table.add_row(f"outside: {what}", f"{count:,}")
    console.print(table)
    for rejected in checked.rejected:
        console.print(str(rejected), markup=False, soft_wrap=True)
    if checked.rejected:
        for line in explained(checked.rejected[0]):
            console.print(line, markup=False, soft_wrap=True)
    return 1 if checked.rejected else 0
