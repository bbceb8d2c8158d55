"""`kafka-eos explain` shows the runbook's sections in a terminal."""

from __future__ import annotations

import re

import pytest
from typer.testing import CliRunner

from spark_kafka_eos.tools.cli.main import app
from tests.pages import ROOT


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["explain", *arguments], env={"COLUMNS": "120"})
    return done.exit_code, done.output


@pytest.mark.parametrize("name", ["LedgerRefused", "ledgerrefused"])
def test_an_error_is_explained_by_what_it_means_for_the_data_what_to_look_at_and_what_to_run(name):
    code, shown = run(name)
    assert code == 0
    assert re.findall(r"^(?:LedgerRefused|Data|Look|Run)\b", shown, re.MULTILINE) == [
        "LedgerRefused",
        "Data",
        "Look",
        "Run",
    ]
    assert "kafka-eos query resolve" in shown
    assert "queries.md" not in shown, "a link's target is no page of the reader's"


def test_an_alert_is_explained_as_an_error_is():
    code, shown = run("KafkaEosDriverGone")
    assert (code, "Run." in shown) == (0, True)


def test_without_a_name_every_section_of_the_runbook_is_listed():
    code, shown = run()
    titles = re.findall(r"^### (\w+)$", (ROOT / "docs" / "runbook.md").read_text(), re.MULTILINE)
    assert code == 0
    assert [title for title in titles if f" {title} " not in shown] == []


@pytest.mark.parametrize(
    ("name", "hint"), [("LegerRefused", "did you mean LedgerRefused?"), ("x", "'kafka-eos explain' lists all.")]
)
def test_another_name_is_refused_with_what_to_do(name, hint):
    code, shown = run(name)
    assert code == 2
    assert hint in " ".join(shown.replace("│", " ").split())
