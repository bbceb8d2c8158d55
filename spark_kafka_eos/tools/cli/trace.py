"""`kafka-eos trace`: the timelines of a query's last batches, from the files of the option `traceDir`."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Column, Table

from spark_kafka_eos.appending.report import CommitReport
from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.kafka.protocol.trace import Phase, Rpc, trigger_phases
from spark_kafka_eos.observe import trace_file
from spark_kafka_eos.tools.cli.terminal import Console, Text
from spark_kafka_eos.tools.cli.timeline import heading, html, svg


def trace(
    transactional_id: Annotated[
        str, typer.Argument(metavar="ID", help="The query's kafka.transactional.id; `unnamed` without a ledger.")
    ],
    trace_dir: Annotated[Path, typer.Option("--dir", help="The sink's option traceDir.", file_okay=False)],
    last: Annotated[int, typer.Option(help="How many of the last batches to show.", min=1)] = 1,
    batch: Annotated[int | None, typer.Option(help="Show this batch instead, with each of its runs.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the reports as JSON, one a line.")] = False,
    html_file: Annotated[
        Path | None, typer.Option("--html", dir_okay=False, help="Write a page with the timelines to this file.")
    ] = None,
    svg_file: Annotated[
        Path | None, typer.Option("--svg", dir_okay=False, help="Write the last timeline as a picture to this file.")
    ] = None,
) -> None:
    """Show what the driver did in a query's last micro-batches: every request, with its duration and retries.

    The query's sink writes the timelines to its option traceDir, so run this where the driver runs.

    \b
    Exit code 0: the batches are shown
              2: the command line is wrong
              3: there is no such timeline
    """
    reports = _reports(trace_dir, transactional_id)
    selected = reports[-last:] if batch is None else [report for report in reports if report.batch_id == batch]
    if not selected:
        raise ToolFailed(
            f"{trace_dir} has no timeline of batch {batch} of {transactional_id!r}",
            action=f"It has the batches {reports[0].batch_id} to {reports[-1].batch_id}.",
        )
    phases = {id(report): _spark_phases(trace_dir, report) for report in selected}
    if html_file is not None:
        pictures = (svg(report, phases[id(report)]) for report in selected)
        html_file.write_text(html(f"Last batches of {transactional_id}", pictures), encoding="utf-8")
    if svg_file is not None:
        svg_file.write_text(svg(selected[-1], phases[id(selected[-1])]), encoding="utf-8")
    if as_json:
        for report in selected:
            print(json.dumps(report.to_json()))
        return
    console = Console(highlight=False)
    for report in selected:
        console.print(Text(heading(report), "bold"), Text(f"query {report.query_id}"), sep="\n")
        console.print(table(report, phases[id(report)]))


def _reports(folder: Path, name: str) -> list[CommitReport]:
    reports = []
    try:
        for line in trace_file.read(folder, name):
            with contextlib.suppress(KeyError, TypeError):  # of another release
                reports.append(CommitReport.from_json(line))
    except OSError as error:
        raise ToolFailed(f"cannot read {trace_file.file_of(folder, name)}: {error}") from error
    if not reports:
        others = ", ".join(trace_file.names(folder))
        raise ToolFailed(
            f"{folder} has no timeline of {name!r}",
            action=f"It has those of {others}." if others else "Set the sink's option traceDir to it.",
        )
    return reports


def _spark_phases(folder: Path, report: CommitReport) -> tuple[Phase, ...]:
    """Spark's phases of the batch's trigger, if a ProgressListener has recorded them."""
    trigger = trace_file.read_trigger(folder, report.query_id, report.batch_id)
    return trigger_phases(*trigger, report.trace) if trigger else ()


def table(report: CommitReport, spark: tuple[Phase, ...] = ()) -> Table:
    """A row per phase and per RPC. A narrow terminal folds long names and cuts nothing."""
    table = Table(
        Column("at ms", justify="right"),
        Column("took ms", justify="right"),
        Column("step or request", overflow="fold", min_width=24),
        Column("node", overflow="fold"),
        Column("retried", overflow="fold", min_width=17),
        box=None,
    )
    for style, phases in (("dim", spark), ("cyan", report.trace.phases)):
        for phase in phases:
            name = f"Spark: {phase.name}" if phases is spark else phase.name
            table.add_row(_ms(phase.start), _ms(phase.milliseconds), Text(name, style))
    for rpc in report.trace.rpcs():
        table.add_row(*_cells(rpc))
    if report.trace.left_out:
        table.add_row("", "", f"and {report.trace.left_out} other requests")
    return table


def _cells(rpc: Rpc) -> tuple[str | Text, ...]:
    errors = [f"{count} × {error}" for error, count in rpc.retries.items()]
    errors += [f"failed: {rpc.last.error}"] if rpc.last.error else []
    task = "" if rpc.first.task is None else f"task {rpc.first.task}"
    return (
        _ms(rpc.first.start),
        _ms(rpc.milliseconds),
        Text(" ".join(part for part in (rpc.first.api, rpc.first.about, task) if part)),
        Text(rpc.last.node),
        Text(", ".join(errors), "red"),
    )


def _ms(milliseconds: float) -> str:
    return f"{milliseconds:.1f}"
