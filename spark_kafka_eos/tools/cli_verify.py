"""`kafka-eos verify`: was the output written exactly once? Proven or refuted, as a table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Self

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.table import Table
from rich.text import Text

from spark_kafka_eos.core.findings import Finding, Invariant
from spark_kafka_eos.options import from_properties, source_options
from spark_kafka_eos.tools.verify import Report
from spark_kafka_eos.tools.verify import verify as check_topic

_STYLES = {"holds": "green", "violated": "bold red", "not checked": "yellow"}
_MEANS = {
    Invariant.ONCE: "every source record is there exactly once, and nothing else",
    Invariant.ORDER: "records of one source partition keep their order",
    Invariant.IDENTITY: "each batch has one producer id and epoch, and the records planned for it",
    Invariant.VISIBILITY: "readers were shown what the log says: all that is committed, nothing aborted",
    Invariant.LEDGER: "batch ids follow one another, each starts where the one before ended",
    Invariant.HEALED: "no transaction is open, readers get to the end",
}
_PATIENCE = {"kafka.request.timeout.ms": "10000"}  # somebody waits for the answer; a file may set it


def verify(
    topic: Annotated[str, typer.Option(help="The output to check.")],
    bootstrap_servers: Annotated[str | None, typer.Option(help="Brokers to start from, host:port.")] = None,
    source: Annotated[
        str | None, typer.Option(help="The topic of which TOPIC is to hold every record (see below).")
    ] = None,
    transactional_id: Annotated[
        str | None, typer.Option(help="As the query's kafka.transactional.id: leads to its ledger and source offsets.")
    ] = None,
    group: Annotated[
        str | None, typer.Option(help="As its kafka.group.id, if that is not the transactional id.")
    ] = None,
    ledger_topic: Annotated[str | None, typer.Option(help="As its ledgerTopic, if that is not TOPIC.")] = None,
    history: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="JSON lines of what drivers planned and did.")
    ] = None,
    wait: Annotated[float, typer.Option(help="Seconds to wait for open transactions to end.")] = 30.0,
    witness_records: Annotated[
        int, typer.Option(help="Read topics up to this size through librdkafka, too.")
    ] = 1_000_000,
    properties: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="A client.properties file: TLS, SASL, timeouts.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Check a topic that a query wrote, once the query stands still: exit code 1 if an invariant is violated.

    The first three invariants need values that begin with where they come from (source partition and offset, batch,
    attempt: docs/verify.md); without that, visibility, ledger and open transactions are checked all the same.
    """
    named = {} if bootstrap_servers is None else {"kafka.bootstrap.servers": bootstrap_servers}
    read = {} if properties is None else from_properties(properties)
    client = source_options({**_PATIENCE, **read, **named, "subscribe": topic}).client
    with _Bars() as bars:
        report = check_topic(
            client,
            topic,
            source=source,
            transactional_id=transactional_id,
            group=group,
            ledger_topic=ledger_topic,
            history=history or (),
            wait_s=wait,
            witness_records=witness_records,
            progress=bars.show,
        )
    if as_json:
        print(json.dumps(to_json(report), indent=1))
    else:
        console = Console(highlight=False)
        console.print(table(report))
        console.print(summary(report))
    if not report.holds:
        raise typer.Exit(1)


def table(report: Report) -> Table:
    """A row for each invariant, with the first violation of each kind."""
    shown = Table("", "invariant", "checked", "verdict", show_lines=True)
    for finding in report.findings:
        shown.add_row(
            str(finding.invariant.value),
            Text.assemble((finding.invariant.name.lower(), "bold"), "\n", _MEANS[finding.invariant]),
            f"{finding.checked:,}\n{finding.unit}",
            Text.assemble((finding.verdict, _STYLES[finding.verdict]), *_remarks(finding), overflow="fold"),
        )
    return shown


def _remarks(finding: Finding) -> list[str]:
    if not finding.violations:
        return [f": {finding.unchecked}"] if finding.unchecked else []
    more = {v: f" (and {v.count - 1:,} more)" if v.count > 1 else "" for v in finding.violations}
    return [f"\n{v.where} {v.what}{more[v]}" for v in finding.violations]


def summary(report: Report) -> str:
    """What was read, how long it took, and the verdict, in a sentence or two."""
    verdict = "every checked invariant holds"
    if report.violated:
        verdict = f"violated: {', '.join(invariant.name.lower() for invariant in report.violated)}"
    return (
        f"{report.topic}: {report.records:,} records committed and {report.uncommitted:,} not, read by "
        f"{', '.join(report.readers)}, in {report.seconds:.1f} s; {verdict}."
    )


def to_json(report: Report) -> Mapping[str, Any]:
    """The report in plain values."""
    findings = [
        asdict(finding) | {"invariant": finding.invariant.name.lower(), "verdict": finding.verdict}
        for finding in report.findings
    ]
    return asdict(report) | {"holds": report.holds, "findings": findings}


class _Bars:
    """A progress bar for each thing that is read, on standard error, gone at the end."""

    def __init__(self) -> None:
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
        self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show(self, what: str, done: int, total: int) -> None:
        if what not in self._tasks:
            self._tasks[what] = self._progress.add_task(f"reading {what}")
        self._progress.update(self._tasks[what], completed=done, total=total)
