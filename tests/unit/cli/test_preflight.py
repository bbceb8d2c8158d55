"""The table of findings, its summary, and the command's options."""

import pytest
from rich.console import Console

from spark_kafka_eos.cli.preflight import parse_options, summary, table
from spark_kafka_eos.core.preflight import Finding, Severity
from spark_kafka_eos.errors import ToolFailed

OK = Finding(severity=Severity.OK, subject="cluster", found="reachable, 3 brokers")
WARNING = Finding(severity=Severity.WARNING, subject="topic [red]", found="one", meaning="Luck", action="Add one")
ERROR = Finding(severity=Severity.ERROR, subject="group g", found="has active members", meaning="They commit")


def test_every_finding_has_a_row_in_its_order_and_its_text_is_never_taken_for_markup():
    console = Console(width=200)
    with console.capture() as shown:
        console.print(table([OK, WARNING, ERROR]))
    rows = [line for line in shown.get().splitlines() if line.startswith("│")]
    assert [row.split("│")[1].strip() for row in rows] == ["ok", "warning", "error"]
    assert "topic [red]" in rows[1] and "Luck. Add one." in rows[1]
    assert "They commit." in rows[2]


@pytest.mark.parametrize(
    ("findings", "said"),
    [
        ([OK], "0 errors, 0 warnings: the query would start."),
        ([OK, WARNING], "0 errors, 1 warning: the query would start."),
        ([ERROR, WARNING, WARNING], "1 error, 2 warnings: the query would not start."),
    ],
)
def test_the_summary_counts_and_says_whether_the_query_would_start(findings, said):
    assert summary(findings) == said


def test_options_are_name_and_value_where_the_value_may_hold_anything():
    assert parse_options(["ledgerTopic=books", "a=b=c", "kafka.group.id="]) == {
        "ledgerTopic": "books",
        "a": "b=c",
        "kafka.group.id": "",
    }


@pytest.mark.parametrize("text", ["ledgerTopic", "=books", ""])
def test_anything_else_is_not_an_option(text):
    with pytest.raises(ToolFailed, match="NAME=VALUE"):
        parse_options([text])
