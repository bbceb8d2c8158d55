"""`kafka-eos verify`: checks that an output was written exactly once, and prints the result as a table."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Column, Table

from spark_kafka_eos.kafka.auth.secret import keys
from spark_kafka_eos.options.reserved import LEDGER_TOPIC
from spark_kafka_eos.tools.cli import python_name
from spark_kafka_eos.tools.cli.bars import Bars
from spark_kafka_eos.tools.cli.errors import FAILED, NOT_CHECKED
from spark_kafka_eos.tools.cli.query_options import (
    BootstrapServers,
    Properties,
    SourceBootstrapServers,
    SourceProperties,
    client_of,
    source_client_of,
)
from spark_kafka_eos.tools.cli.terminal import Console, Text
from spark_kafka_eos.tools.verify.findings import CheckedInvariant, Invariant
from spark_kafka_eos.tools.verify.table import ComparedColumns, ReturnsRows
from spark_kafka_eos.tools.verify.verification import Progress as OnProgress
from spark_kafka_eos.tools.verify.verification import Report
from spark_kafka_eos.tools.verify.verification import verify as check_topic

_STYLES = {"holds": "green", "violated": "bold red", "not checked": "yellow"}
_EXIT_CODES = {"holds": 0, "violated": FAILED, "not checked": NOT_CHECKED}
_MEANS = {
    Invariant.ONCE: "the output contains every source record exactly once, and nothing else",
    Invariant.ORDER: "records of a source partition keep their order",
    Invariant.IDENTITY: "each batch has one producer id and epoch, and the records planned for it",
    Invariant.VISIBILITY: "readers saw all committed records and no aborted ones",
    Invariant.LEDGER: "batch ids are consecutive, each batch starts where the previous one ended, the ledger is "
    "complete",
    Invariant.HEALED: "no transaction is open, and readers reach the end",
    Invariant.TABLE: "every row of the table is in the topic once, and nothing else",
}


def verify(
    context: typer.Context,
    topic: Annotated[
        list[str],
        typer.Option(help="The output topic to check. Repeat it if the output is several topics (see below)."),
    ],
    bootstrap_servers: BootstrapServers = None,
    source: Annotated[
        str | None, typer.Option(help="The topic whose records TOPIC must contain, each once (see below).")
    ] = None,
    source_bootstrap_servers: SourceBootstrapServers = None,
    source_properties: SourceProperties = None,
    copy: Annotated[
        bool, typer.Option("--copy", help="TOPIC is a plain copy of SOURCE, so any difference is a violation.")
    ] = False,
    transactional_id: Annotated[
        str | None, typer.Option(help="The query's kafka.transactional.id, to find its ledger and source offsets.")
    ] = None,
    group: Annotated[
        str | None, typer.Option(help="As its kafka.group.id, if that is not the transactional id.")
    ] = None,
    ledger_topic: Annotated[str, typer.Option(help="The query's ledgerTopic.")] = LEDGER_TOPIC,
    ledger_key: Annotated[
        str | None,
        typer.Option(metavar="env:NAME|file:PATH", help="The query's ledgerKey: only entries signed with it count."),
    ] = None,
    history: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="File with JSON lines: what drivers planned and did."),
    ] = None,
    wait: Annotated[float, typer.Option(help="Seconds to wait for open transactions to end.")] = 30.0,
    witness_records: Annotated[
        int, typer.Option(help="Also read topics with up to this number of records through librdkafka.")
    ] = 1_000_000,
    table_rows: Annotated[
        str | None,
        typer.Option(
            "--table",
            metavar="MODULE:NAME",
            help="A function without arguments, by its name in Python, that returns the rows of a table: they must be "
            "TOPIC's records, each once.",
        ),
    ] = None,
    columns: Annotated[
        str,
        typer.Option(
            metavar="NAMES", help="With --table: what a row has: key, value, or fields of the value, a JSON object."
        ),
    ] = "value",
    identity: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="With --table: the columns that identify a row. Default: all."),
    ] = None,
    properties: Properties = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Check what a query wrote. Stop the query first, or wait until it is idle.

    The first three invariants need to know where a record comes from. Its value may contain this (source partition and
    offset, batch, attempt; see docs/verify.md). If no value does, keys and values are compared with those of SOURCE. If
    they are equal, nothing is lost or duplicated. If they differ, a job that filters or transforms cannot be
    distinguished from a loss, unless --copy states that it does neither.

    With several topics, such as a query's topic and its dead letters, each source record must be in one of them. The
    headers of a dead letter say where it comes from.

    \b
    Exit code 0: all requested invariants hold
              1: an invariant is violated
              2: the command line is wrong
              3: nothing is violated, but a requested invariant could not be checked
    """
    if copy and source is None:
        raise typer.BadParameter("requires --source, the topic that TOPIC is a copy of", param_hint="--copy")
    if group is not None and source is None:
        raise typer.BadParameter("requires --source, the topic whose offsets the group has", param_hint="--group")
    if transactional_id is None and (ledger_key is not None or ledger_topic != LEDGER_TOPIC):
        flag = "--ledger-key" if ledger_key is not None else "--ledger-topic"
        raise typer.BadParameter("requires --transactional-id, under which the ledger has the query", param_hint=flag)
    if source is None and (source_bootstrap_servers is not None or source_properties is not None):
        flag = "--source-bootstrap-servers" if source_bootstrap_servers is not None else "--source-properties"
        raise typer.BadParameter("requires --source, the topic on that cluster", param_hint=flag)

    if ledger_key is not None:
        if not ledger_key.startswith(("env:", "file:")):
            raise typer.BadParameter(
                "is not env:NAME or file:PATH: processes show command lines", param_hint="--ledger-key"
            )
        try:
            keys(ledger_key)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--ledger-key") from None
    rows, compared = _table(table_rows, columns, identity)
    client = client_of("--bootstrap-servers", bootstrap_servers, properties)
    source_client = source_client_of(source_bootstrap_servers, source_properties)

    def check(progress: OnProgress) -> Report:
        report: Report = (context.obj or check_topic)(  # a test hands in another
            client,
            topic,
            source=source,
            source_client=source_client,
            copy=copy,
            transactional_id=transactional_id,
            group=group,
            ledger_topic=ledger_topic,
            ledger_key=ledger_key,
            history=history,
            wait_s=wait,
            witness_records=witness_records,
            table=rows,
            columns=compared,
            progress=progress,
        )
        return report

    raise typer.Exit(print_report(check, as_json=as_json))


def _table(named: str | None, columns: str, identity: str | None) -> tuple[ReturnsRows | None, ComparedColumns]:
    """The function that returns the table's rows, and what is compared. Raises typer.BadParameter."""
    if named is None and (columns != "value" or identity is not None):
        flag = "--columns" if columns != "value" else "--identity"
        raise typer.BadParameter("requires --table, whose rows have these columns", param_hint=flag)
    try:
        compared = ComparedColumns(names=_names(columns), identity=_names(identity or ""))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--identity") from None
    if named is None:
        return None, compared
    rows = python_name.load(named, "--table")
    if not callable(rows):
        raise typer.BadParameter(f"{named!r} is not a function that returns rows", param_hint="--table")
    return rows, compared


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def print_report(check: Callable[[OnProgress], Report], *, as_json: bool) -> int:
    """Print the report that `check` returns; the exit code."""
    with Bars() as bars:
        report = check(lambda what, done, total: bars.show(f"reading {what}", done, total))
    if as_json:
        print(json.dumps(to_json(report), indent=1))
    else:
        console = Console(highlight=False)
        console.print(table(report))
        console.print(summary(report))
    return _EXIT_CODES[report.verdict]


def table(report: Report) -> Table:
    """One row per invariant, with the first violation of each kind."""
    table = Table(*(Column(name, overflow="fold") for name in ("", "invariant", "checked", "verdict")), show_lines=True)
    for finding in report.findings:
        table.add_row(
            str(finding.invariant.value),
            Text.assemble((finding.invariant.name.lower(), "bold"), "\n", _MEANS[finding.invariant]),
            f"{finding.checked:,}\n{finding.unit}",
            Text.assemble((finding.verdict, _STYLES[finding.verdict]), *_remarks(finding)),
        )
    return table


def _remarks(finding: CheckedInvariant) -> list[str]:
    remarks = [remark for remark in (finding.unchecked, finding.note) if remark]
    if finding.violations:
        return [f"\n{remark}" for remark in (*finding.violations, *remarks)]
    return [f": {'; '.join(remarks)}"] if remarks else []


def summary(report: Report) -> str:
    """What was read, how long it took, and the verdict, in a sentence or two."""
    concerned = report.violated or report.unproven
    verdict = f"{report.verdict}: {', '.join(invariant.name.lower() for invariant in concerned)}"
    counts = ", ".join(f"{count:,} in {topic}" for topic, count in report.topics.items())
    by_topic = f" ({counts})" if len(report.topics) > 1 else ""
    return (
        f"{report.topic}: {report.records:,} records committed{by_topic} and {report.uncommitted:,} not, read by "
        f"{', '.join(report.readers)}, in {report.seconds:.1f} s; "
        f"{verdict if concerned else 'every checked invariant holds'}."
    )


def to_json(report: Report) -> Mapping[str, Any]:
    """The report as plain values."""
    findings = [
        asdict(finding) | {"invariant": finding.invariant.name.lower(), "verdict": finding.verdict}
        for finding in report.findings
    ]
    named = {"topic": report.topic, "records": report.records}
    return named | asdict(report) | {"verdict": report.verdict, "holds": report.holds, "findings": findings}
