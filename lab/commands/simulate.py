"""`python -m lab simulate`: runs the connector's code on a model of Kafka with random seeds."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column, Table

if TYPE_CHECKING:
    from lab.simulation.run import Summary


def simulate(
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds.")] = 100_000,
    first: Annotated[int, typer.Option(min=0, help="The first seed.")] = 0,
    seed: Annotated[int | None, typer.Option(min=0, help="Replay only this seed, and show its history.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Number of processes.")] = 2,
    verification: Annotated[
        bool,
        typer.Option(
            "--verification/--no-verification",
            help="Whether leaders verify with TV1 that a partition is in the transaction (Kafka 3.6 and later).",
        ),
    ] = True,
    classic_groups: Annotated[
        bool, typer.Option("--classic-groups", help="Let TV1's group coordinators lose offsets as in Kafka 3.")
    ] = False,
    expiry: Annotated[
        bool,
        typer.Option("--expiry", help="Let weeks pass without commits, so that groups and transactional.ids expire."),
    ] = False,
    elsewhere: Annotated[
        bool,
        typer.Option(
            "--elsewhere", help="Put the source on another cluster, so that only the ledger has its progress."
        ),
    ] = False,
    late: Annotated[
        bool, typer.Option("--late", help="Let drivers often pause before a batch, and come back after a successor.")
    ] = False,
    left_out: Annotated[
        bool,
        typer.Option("--left-out", help="Let coordinators leave out markers, where a partition has no leader."),
    ] = False,
    real_time: Annotated[
        bool,
        typer.Option("--real-time", help="Let the query run in real time, before or after micro-batches or alone."),
    ] = False,
) -> None:
    """Run random histories of crashes, lost and late messages, zombies and stragglers against a model of Kafka."""
    # Imported on demand: they load the codec and the protocol's classes, which no other command needs.
    from lab.simulation.conditions import Conditions
    from lab.simulation.run import replay, run

    conditions = Conditions(
        verification=verification,
        classic_groups=classic_groups,
        expiry=expiry,
        elsewhere=elsewhere,
        late=late,
        left_out=left_out,
        real_time=real_time,
    )
    again = conditions.flags
    console = Console(highlight=False)
    if seed is not None:
        history = replay(seed, conditions=conditions)
        for line in history.trace:
            console.print(line, markup=False, soft_wrap=True)
        _show_wrong(console, seed, history.wrong, again)
        raise typer.Exit(1 if history.wrong else 0)
    with Progress(
        TextColumn("simulating"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), console=console
    ) as bar:
        task = bar.add_task("seeds", total=seeds)
        summary = run(
            range(first, first + seeds),
            jobs=jobs,
            conditions=conditions,
            progress=lambda done: bar.update(task, completed=done),
        )
    _show(console, summary)
    for number, wrong in summary.wrong.items():
        _show_wrong(console, number, wrong, again)
    if summary.wrong:
        raise typer.Exit(1)


def _show(console: Console, summary: Summary) -> None:
    table = Table(box=None, show_header=False)
    rate = summary.seeds / max(summary.seconds, 1e-9)
    table.add_row("seeds run", f"{summary.seeds:,} in {summary.seconds:.1f} s ({rate:,.0f} per second)")
    table.add_row("faults injected", _counts(summary.faults))
    table.add_row("drivers' ends", _counts(summary.outcomes))
    table.add_row("wrong histories", f"{len(summary.wrong)}")
    console.print(table)
    console.print(_met(summary.met))


def _met(met: Counter[tuple[str, str]]) -> Table:
    """How often each fault was injected into each request."""
    kinds = [kind for kind, _ in _totals(met, 1).most_common()]
    table = Table(Column("request", no_wrap=True), *kinds, box=None)
    for request, _ in _totals(met, 0).most_common():
        table.add_row(request, *(f"{met[request, kind]:,}" for kind in kinds))
    return table


def _totals(met: Counter[tuple[str, str]], side: int) -> Counter[str]:
    totals: Counter[str] = Counter()
    for names, count in met.items():
        totals[names[side]] += count
    return totals


def _counts(counts: Counter[str]) -> str:
    return f"{counts.total():,}: " + ", ".join(f"{kind} {count:,}" for kind, count in counts.most_common())


def _show_wrong(console: Console, seed: int, wrong: list[str], again: str) -> None:
    if not wrong:
        console.print(f"seed {seed}: [green]exactly once[/]")
        return
    console.print(f"seed {seed}: [bold red]wrong[/]")
    for what in wrong:
        console.print(f"  {escape(what)}", soft_wrap=True)
    console.print(f"  replay it with: python -m lab simulate --seed {seed}{again}", soft_wrap=True)
