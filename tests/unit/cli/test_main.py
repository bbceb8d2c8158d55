"""The command line's frame: version, help, errors; and the parsing of its arguments."""

import sys

import pytest
from typer.testing import CliRunner

import spark_kafka_eos
from spark_kafka_eos.cli import main as cli
from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.lab.commands.broker import parse_topic


def test_version_names_the_package_version():
    answer = CliRunner().invoke(cli.app, ["--version"])
    assert answer.exit_code == 0
    assert answer.stdout == f"kafka-eos {spark_kafka_eos.__version__}\n"


def test_without_a_command_the_help_lists_them():
    assert "broker" in CliRunner().invoke(cli.app, []).output


def test_an_expected_error_is_a_message_and_exit_code_1_without_a_traceback(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["kafka-eos", "broker", "--topic", "orders:[x]"])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 1
    shown = capsys.readouterr().err
    assert "Error: --topic orders:[x] is not NAME or NAME:PARTITIONS" in shown
    assert "Traceback" not in shown


@pytest.mark.parametrize(("text", "topic"), [("orders", ("orders", 1)), ("orders:12", ("orders", 12))])
def test_a_topic_is_a_name_and_perhaps_a_number_of_partitions(text, topic):
    assert parse_topic(text) == topic


@pytest.mark.parametrize("text", ["", ":3", "orders:", "orders:0", "orders:-1", "orders:x", "orders:1:2"])
def test_anything_else_is_not_a_topic(text):
    with pytest.raises(ToolFailed, match="NAME:PARTITIONS"):
        parse_topic(text)
