"""The table of findings, its summary, the JSON, the command's options, and its exit codes."""

import json

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from spark_kafka_eos.errors import AuthenticationFailed, BrokerUnreachable
from spark_kafka_eos.preflight.findings import Finding, Severity
from spark_kafka_eos.tools.cli.findings import table
from spark_kafka_eos.tools.cli.main import app
from spark_kafka_eos.tools.cli.preflight import summary
from spark_kafka_eos.tools.cli.query_options import parse_pairs

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


def test_eighty_columns_cut_nothing_of_a_finding():
    action = "kafka-features.sh --bootstrap-server … upgrade --feature transaction.partition.verification.enable=true"
    subject = "topics orders.of.every.country.and.every.year.since.the.beginning, t2"
    long = Finding(severity=Severity.WARNING, subject=subject, found="cleanup.policy=compact,delete", action=action)
    console = Console(width=80)
    with console.capture() as shown:
        console.print(table([long]))
    rows = [line.split("│")[1:-1] for line in shown.get().splitlines() if line.startswith("│")]
    columns = ["".join("".join(cell.split()) for cell in column) for column in zip(*rows, strict=True)]
    assert columns == ["warning", *("".join(text.split()) for text in (subject, long.found, f"{action}."))]


# -- the command, without a cluster

GIVEN = ["--bootstrap-servers", "broker:9092", "--transactional-id", "t", "--topic", "out"]


class Clusters:
    """What the checks find; `asked` has the brokers and topics that they were asked for."""

    def __init__(self, sink=(OK,), source=(OK,), error=None):
        self.sink, self.source, self.error = sink, source, error
        self.asked = []

    def examine(self, options, sources, elsewhere, _):
        if self.error is not None:
            raise self.error
        self.asked.append(("sink", options.client.bootstrap_servers[0][0], options.topic))
        if sources:
            self.asked.append(("source", (elsewhere or options.client).bootstrap_servers[0][0], sources))
        return [*self.sink, *(self.source if sources else ())]


def run(*arguments, on=None):
    clusters = on or Clusters()
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, ["preflight", *arguments], obj=clusters.examine)


@pytest.mark.parametrize(
    ("findings", "exit_code", "verdict"),
    [([OK, WARNING], 0, "would start"), ([OK, ERROR, WARNING], 1, "would not start")],
)
def test_the_json_on_standard_output_has_the_verdict_of_the_exit_code_and_every_finding(findings, exit_code, verdict):
    done = run(*GIVEN, "--json", on=Clusters(sink=findings))
    assert done.exit_code == exit_code
    shown = json.loads(done.stdout)
    assert shown["verdict"] == verdict
    assert [found["severity"] for found in shown["findings"]] == [str(found.severity) for found in findings]
    assert shown["findings"][-1] == {
        "severity": "warning",
        "subject": "topic [red]",
        "found": "one",
        "meaning": "Luck",
        "action": "Add one",
    }


def test_the_source_topics_are_checked_on_the_cluster_that_they_are_on():
    clusters = Clusters(source=[ERROR])
    done = run(*GIVEN, "--source", "in", "--source", "more", "--source", "in", on=clusters)
    assert (done.exit_code, clusters.asked) == (1, [("sink", "broker", "out"), ("source", "broker", ["in", "more"])])
    assert "1 error, 0 warnings: the query would not start." in done.stdout
    clusters.asked.clear()
    assert run(*GIVEN, "--source", "in", "--source-bootstrap-servers", "other:9092", on=clusters).exit_code == 1
    assert clusters.asked == [("sink", "broker", "out"), ("source", "other", ["in"])]


def test_a_source_cluster_without_a_topic_of_it_is_a_usage_error():
    done = run(*GIVEN, "--source-bootstrap-servers", "other:9092")
    assert done.exit_code == 2
    assert "requires --source" in done.stderr


@pytest.mark.parametrize("error", [BrokerUnreachable("no broker answers"), AuthenticationFailed("wrong password")])
def test_what_could_not_be_checked_is_neither_a_success_nor_a_query_that_would_not_start(error):
    done = run(*GIVEN, "--json", on=Clusters(error=error))
    assert (done.exit_code, done.stdout, done.stderr) == (3, "", f"Error: {error.what}. More: {error.runbook}\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (GIVEN[:2], "--transactional-id (option kafka.transactional.id): is required for exactly-once. Set it to"),
        (GIVEN[2:], "--bootstrap-servers (option kafka.bootstrap.servers): is required. Set it to"),
        (["--bootstrap-servers", "broker:x", *GIVEN[2:]], "--bootstrap-servers (option kafka.bootstrap.servers): "),
        ([*GIVEN, "--option", "maxAttemps=2"], "--option maxAttemps: unknown option. Did you mean maxAttempts?"),
        ([*GIVEN, "--option", "maxattempts=x"], "--option maxAttempts: 'x' is not a whole number"),
        ([*GIVEN, "--option", "outputTopics=other"], "--topic (option topic): out is not in outputTopics"),
    ],
)
def test_an_error_about_an_option_names_what_the_user_typed_and_is_a_usage_error(arguments, said):
    done = run(*arguments)
    assert done.exit_code == 2
    assert f"Error: {said}" in done.stderr
    assert "committed" not in done.stderr


def test_an_error_about_an_option_in_a_file_names_the_file(tmp_path):
    file = tmp_path / "client.properties"
    file.write_text("request.timeout.ms=soon\n")
    done = run(*GIVEN, "--properties", str(file))
    assert done.exit_code == 2
    assert f"Error: {file}, kafka.request.timeout.ms: 'soon' is not" in done.stderr


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
    assert parse_pairs(["ledgerTopic=books", "a=b=c", "kafka.group.id="]) == {
        "ledgerTopic": "books",
        "a": "b=c",
        "kafka.group.id": "",
    }


@pytest.mark.parametrize("text", ["ledgerTopic", "=books", ""])
def test_anything_else_is_not_an_option(text):
    with pytest.raises(typer.BadParameter, match="NAME=VALUE"):
        parse_pairs([text])


@pytest.mark.parametrize(("path", "exit_code"), [("new", 0), ("file/new", 1)])
def test_a_staging_directory_that_is_named_is_tried(tmp_path, path, exit_code):
    (tmp_path / "file").touch()
    done = run(*GIVEN, "--option", f"stagingDir={tmp_path}/{path}", "--json")
    (staging,) = [found for found in json.loads(done.stdout)["findings"] if "staging directory" in found["subject"]]
    assert (done.exit_code, staging["severity"]) == (exit_code, "error" if exit_code else "ok")
