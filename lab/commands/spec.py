"""`python -m lab spec`: has TLC check the specification, or shows what happens without one of its guards."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

if TYPE_CHECKING:
    from lab.specification.traces import Checked

_TV1_RELEASE = "3.9.1"  # of Kafka, with the protocol before KIP-890


def spec(
    without: Annotated[
        list[str] | None,
        typer.Option(help="Leave this guard out, and show the behaviour that TLC finds; may be repeated."),
    ] = None,
    larger: Annotated[bool, typer.Option("--larger", help="Check the larger bounds, too: most of an hour.")] = False,
    traces: Annotated[
        int, typer.Option(min=0, help="Instead, check that the code follows it in this number of simulated histories.")
    ] = 0,
    real: Annotated[
        int,
        typer.Option(
            min=0, help="Instead, check that in this number of real runs with kills, on each of two releases of Kafka."
        ),
    ] = 0,
    kafka: Annotated[
        list[str] | None, typer.Option(help="For --real: on this release; may be repeated.", metavar="VERSION")
    ] = None,
    first: Annotated[int, typer.Option(min=0, help="The first seed of these histories or runs.")] = 0,
    late: Annotated[bool, typer.Option("--late", help="In these histories, drivers often come back late.")] = False,
) -> None:
    """Check the specification of the shared transaction (spec/*.tla) with TLC."""
    from lab.specification.models import EVERY_RUN, LARGER, WEAKENED, weakened
    from lab.specification.timeline import timeline
    from lab.specification.tlc import check

    console = Console(highlight=False)
    if real:
        raise typer.Exit(_check_real(console, range(first, first + real), kafka))
    if traces:
        raise typer.Exit(_check_traces(console, range(first, first + traces), late=late))
    if without:
        asked = next((names for names in WEAKENED if set(names) == set(without)), None)
        if asked is None:
            guards = "; ".join(" ".join(f"--without {name}" for name in names) for names in WEAKENED)
            raise typer.BadParameter(
                f"no model leaves out {' and '.join(without)}; known are {guards}", param_hint="--without"
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


def _check_real(console: Console, seeds: range, releases: Sequence[str] | None) -> int:
    """The exit code, as of `_check_traces`. Without releases: one of each transaction protocol."""
    from lab.real_runs.broker import watched_broker
    from lab.real_runs.record import RealRuns, record
    from lab.specification.traces import check_recordings
    from spark_kafka_eos.testing.jars import DEFAULT_VERSION

    failed = 0
    with _bar(console) as bar:
        for release in releases or (DEFAULT_VERSION, _TV1_RELEASE):
            runs: list[RealRuns] = []
            task = bar.add_task(f"running on Kafka {release}", total=len(seeds))
            with watched_broker(release) as broker, _quiet():
                for seed in seeds:
                    runs.append(record(broker, seed))
                    bar.advance(task)
            bar.update(task, description=f"checking Kafka {release}")
            checked = check_recordings(run.recording for run in runs)
            bar.remove_task(task)
            planned = sum((run.met for run in runs), Counter[str]())
            killed = sum((run.killed for run in runs), Counter[str]())
            came = sum((run.happened for run in runs), Counter[str]())
            console.print(f"Kafka {release}: {came.total():,} faults, {killed.total():,} of them kills")
            table = Table("what happened to a driver", "planned", "came", box=None)
            for what, count in planned.most_common():
                table.add_row(what, f"{count:,}", f"{came[what]:,}")
            console.print(table)
            failed |= _show(console, checked, explain=len(checked.rejected))  # no seed shows the same run again
    return failed


def _check_traces(console: Console, seeds: range, *, late: bool) -> int:
    """The exit code: 1 if the code does a step that the specification does not allow, a history is wrong in itself, or
    no trace was found to be allowed.
    """
    from lab.simulation.conditions import Conditions
    from lab.specification.traces import check_histories

    with _bar(console) as bar:
        task = bar.add_task("checking", total=len(seeds))
        checked = check_histories(
            seeds, conditions=Conditions(late=late), progress=lambda done: bar.update(task, completed=done)
        )
    return _show(console, checked)


def _bar(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), console=console
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the log, in which drivers report every fault."""
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def _show(console: Console, checked: Checked, *, explain: int = 1) -> int:
    """Print what was found out, and explain this number of traces that are not allowed; return the exit code."""
    from lab.specification.traces import explained

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
    for rejected in checked.rejected[:explain]:
        for line in explained(rejected):
            console.print(line, markup=False, soft_wrap=True)
    for seed, wrong in checked.wrong.items():
        console.print(f"seed {seed} is wrong: {'; '.join(wrong)}", markup=False, soft_wrap=True)
    if not checked.accepted:
        console.print("No trace was allowed, so nothing is shown.")
    return 1 if checked.rejected or checked.wrong or not checked.accepted else 0
