"""`preflight --print-acls`: what it prints without asking a broker."""

import json
import re

import pytest
from typer.testing import CliRunner

from spark_kafka_eos.tools.cli.main import app
from tests.pages import ROOT

GIVEN = ["--bootstrap-servers", "nowhere:1", "--transactional-id", "t", "--topic", "out", "--source", "in"]


def run(*arguments):
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, ["preflight", "--print-acls", *arguments])


def test_the_page_shows_what_its_command_prints():
    page = (ROOT / "docs" / "security.md").read_text()
    (arguments,) = re.findall(r"^kafka-eos preflight --print-acls (.*)$", page, re.MULTILINE)
    assert f"```sh\n{run(*arguments.split()).stdout}```\n" in page


def test_the_table_of_the_page_has_what_is_printed():
    rows = (ROOT / "docs" / "security.md").read_text().split("## Rights")[1].split("A principal that may")[0]
    shown = json.loads(run(*GIVEN, "--json").stdout)
    for part in ("required", "optional"):
        for right in shown[part]:
            assert re.search(rf"^\|.*\b{right['operation']}\b.*\|.*\|$", rows, re.MULTILINE), right


def test_the_user_of_the_properties_is_allowed_unless_another_principal_is_named(tmp_path):
    properties = tmp_path / "client.properties"
    properties.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=alice\nsasl.password=hunter2\n"
    )
    shown = run(*GIVEN, "--properties", str(properties)).stdout
    assert shown.count("--allow-principal User:alice") == 2 and "hunter2" not in shown
    other = run(*GIVEN, "--properties", str(properties), "--principal", "User:CN=a b").stdout
    assert other.count("--allow-principal 'User:CN=a b'") == 2


def test_two_phase_commit_takes_a_right_of_its_own():
    operation = "--operation TwoPhaseCommit"
    assert operation not in run(*GIVEN, "--principal", "User:a").stdout
    printed = run(*GIVEN, "--principal", "User:a", "--option", "twoPhaseCommit=true").stdout
    (command,) = (line for line in printed.splitlines() if operation in line)
    assert command.endswith("--transactional-id t") or "--transactional-id t " in command


def test_a_source_on_another_cluster_has_commands_of_its_own():
    shown = run(*GIVEN, "--source-bootstrap-servers", "elsewhere:2", "--principal", "User:a").stdout
    source, sink, _ = shown.split("\n\n")
    assert "elsewhere:2" in source and "--operation Read --topic in" in source
    assert "nowhere:1" in sink and "--topic in" not in sink


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (GIVEN, "requires --principal"),
        ([*GIVEN[:4], "--principal", "User:a"], "requires --topic or --output-topic"),
    ],
)
def test_what_is_missing_for_the_commands_is_named(arguments, why):
    done = run(*arguments)
    assert done.exit_code == 2 and why in done.stderr


def test_a_principal_alone_means_nothing():
    done = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["preflight", *GIVEN, "--principal", "User:a"])
    assert done.exit_code == 2 and "requires --print-acls" in done.stderr
