"""`python -m lab spec`: has TLC check the specification, or shows what happens without one of its guards."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table


def spec(
    without: Annotated[
        list[str] | None,
        typer.Option(help="Leave this guard out, and show the behaviour that TLC finds; may be repeated."),
    ] = None,
    larger: Annotated[bool, typer.Option("--larger", help="Check the larger bounds, too: most of an hour.")] = False,
) -> None:
    """Check the specification of the shared transaction (spec/*.tla) with TLC."""
    from lab.specification.models import EVERY_RUN, LARGER, WEAKENED, weakened
    from lab.specification.timeline import timeline
    from lab.specification.tlc import check

    console = Console(highlight=False)
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
