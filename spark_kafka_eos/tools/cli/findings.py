"""Findings as a table, and their numbers in words."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Column, Table

from spark_kafka_eos.preflight.findings import Finding, Severity
from spark_kafka_eos.tools.cli.terminal import Text

_STYLES = {Severity.OK: "green", Severity.WARNING: "yellow", Severity.ERROR: "bold red"}


def table(findings: Sequence[Finding], *, actions: bool = True) -> Table:
    """One row per finding, in the order of the checks. A narrow terminal folds long names and cuts nothing. Without
    `actions`, it does not say what to do.
    """
    columns = ("", "check", "finding", "meaning and action" if actions else "meaning")
    table = Table(*(Column(name, overflow="fold") for name in columns), show_lines=True)
    for finding in findings:
        remarks = ". ".join(part for part in (finding.meaning, actions and finding.action) if part)
        table.add_row(
            Text(finding.severity, _STYLES[finding.severity]),
            Text(finding.subject),
            Text(finding.found),
            Text(f"{remarks}." if remarks else ""),
        )
    return table


def errors(findings: Sequence[Finding]) -> int:
    """How many of them are errors."""
    return sum(finding.severity is Severity.ERROR for finding in findings)


def counted(findings: Sequence[Finding]) -> str:
    """The numbers of errors and warnings: `1 error, 2 warnings`."""
    wrong, warnings = errors(findings), sum(finding.severity is Severity.WARNING for finding in findings)
    return f"{wrong} error{'' if wrong == 1 else 's'}, {warnings} warning{'' if warnings == 1 else 's'}"
