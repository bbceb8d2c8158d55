"""`kafka-eos preflight`: the checks of a query's first batch, as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from spark_kafka_eos.broker.cluster import Cluster
from spark_kafka_eos.core.preflight import Finding, Severity
from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.options import from_properties, sink_options
from spark_kafka_eos.writing.preflight import examine

_STYLES = {Severity.OK: "green", Severity.WARNING: "yellow", Severity.ERROR: "bold red"}
# Short, because the command is interactive; a file or an option may set it.
_PATIENCE = {"kafka.request.timeout.ms": "10000"}


def preflight(
    bootstrap_servers: Annotated[str | None, typer.Option(help="Comma-separated list of brokers, host:port.")] = None,
    transactional_id: Annotated[str | None, typer.Option(help="The query's kafka.transactional.id.")] = None,
    topic: Annotated[str | None, typer.Option(help="The query's option topic.")] = None,
    output_topic: Annotated[
        list[str] | None, typer.Option(help="A topic in the query's outputTopics; can be repeated.")
    ] = None,
    properties: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="A client.properties file (TLS, SASL, timeouts).")
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Any other option of the sink; can be repeated.")
    ] = None,
) -> None:
    """Check a cluster, its topics and groups for a query that is yet to start: exit code 1 if it would fail."""
    named = {
        "kafka.bootstrap.servers": bootstrap_servers,
        "kafka.transactional.id": transactional_id,
        "topic": topic,
        "outputTopics": ",".join(output_topic or []) or None,
    }
    given = {name: value for name, value in named.items() if value is not None}
    read = {} if properties is None else from_properties(properties)
    options = sink_options({**_PATIENCE, **read, **parse_options(option or []), **given})
    with Cluster(options.client) as cluster:
        findings = examine(cluster, options)
    console = Console(highlight=False)
    console.print(table(findings))
    console.print(summary(findings))
    if any(finding.severity is Severity.ERROR for finding in findings):
        raise typer.Exit(1)


def parse_options(texts: Sequence[str]) -> Mapping[str, str]:
    """Parse `NAME=VALUE` texts as options. Raises ToolFailed for anything else."""
    pairs = {text: text.partition("=") for text in texts}
    for text, (name, equals, _) in pairs.items():
        if not (name and equals):
            raise ToolFailed(f"--option {text} is not NAME=VALUE", action="For example: --option topic=orders")
    return {name: value for name, _, value in pairs.values()}


def table(findings: Sequence[Finding]) -> Table:
    """One row per finding, in the order of the checks."""
    shown = Table("", "check", "finding", "meaning and action", show_lines=True)
    for finding in findings:
        remarks = ". ".join(part for part in (finding.meaning, finding.action) if part)
        shown.add_row(
            Text(finding.severity, _STYLES[finding.severity]),
            Text(finding.subject, overflow="fold"),
            Text(finding.found),
            Text(f"{remarks}." if remarks else ""),
        )
    return shown


def summary(findings: Sequence[Finding]) -> str:
    """The numbers of errors and warnings, in a sentence."""
    count = {severity: sum(finding.severity is severity for finding in findings) for severity in Severity}
    errors, warnings = count[Severity.ERROR], count[Severity.WARNING]
    said = f"{errors} error{'' if errors == 1 else 's'}, {warnings} warning{'' if warnings == 1 else 's'}"
    return f"{said}: the query would {'not start' if errors else 'start'}."
