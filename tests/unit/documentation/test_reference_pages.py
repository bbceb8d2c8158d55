"""The pages on errors, the command line and the Python API name what the code has, and nothing else."""

from __future__ import annotations

import inspect
import re
import runpy

import pytest
import typer

import spark_kafka_eos
import spark_kafka_eos.testing
import spark_kafka_eos.tools.verify
from lab.__main__ import app as laboratory
from spark_kafka_eos import errors
from spark_kafka_eos.kafka import errors as kafka_errors
from spark_kafka_eos.tools.cli import main
from tests.pages import PAGES, ROOT, run


def page(name: str) -> str:
    return (ROOT / "docs" / f"{name}.md").read_text()


# -- errors

ERRORS = {name for name, found in vars(errors).items() if inspect.isclass(found) and issubclass(found, Exception)}
ERROR_ROWS = re.findall(r"^\| \[`(\w+)`\]\((.+?)\) \| .+? \| (.+?) \|$", page("errors"), re.MULTILINE)


def test_the_page_on_errors_has_one_row_for_each_class():
    assert sorted(name for name, *_ in ERROR_ROWS) == sorted(ERRORS)


def test_the_page_on_errors_links_to_the_section_that_the_message_names():
    for name, link, _ in ERROR_ROWS:
        assert link == f"runbook.md#{name.lower()}"


def test_the_page_on_errors_quotes_what_a_message_says_of_the_commit():
    for committed, said in kafka_errors._COMMITTED.items():
        row = re.search(rf"^\| `{committed}` \| (.+?) \|", page("errors"), re.MULTILINE)
        assert row is not None
        assert said.startswith(row[1].removesuffix(" …"))


def test_the_page_on_errors_says_unknown_of_a_commit_whose_outcome_is_not_known():
    committed = {name: said for name, _, said in ERROR_ROWS}
    assert committed["CommitOutcomeUnknown"].split(", ")[0] == f"`{errors.CommitOutcomeUnknown('…').committed}`"
    assert committed["OutputLost"] == f"`{errors.OutputLost('…').committed}`"


def test_the_page_on_errors_has_no_word_on_a_commit_that_it_does_not_explain():
    words = {word for _, _, said in ERROR_ROWS for word in said.split(", ")} - {"any"}
    assert words <= {f"`{committed}`" for committed in (*kafka_errors._COMMITTED, None)}


SINK = ("appending", "ledger", "participants", "transaction")


@pytest.mark.parametrize("name", [name for name, _, said in ERROR_ROWS if said == "`None`"])
def test_an_error_whose_row_says_none_of_a_commit_is_raised_by_no_module_of_the_sink(name):
    modules = [path for package in SINK for path in (ROOT / "spark_kafka_eos" / package).glob("*.py")]
    assert len(modules) > 20
    assert [path.name for path in modules if re.search(rf"\b{name}\(", path.read_text())] == []


def test_the_example_of_the_page_on_errors_shows_what_it_says():
    assert run("docs/errors.md") == 1


# -- the command line


def commands(group, path=()):
    """Every command below `group` as its words and its options."""
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        options = {word for parameter in command.params for word in (*parameter.opts, *parameter.secondary_opts)}
        yield " ".join((*path, name)), {option for option in options if option.startswith("--") and option != "--help"}
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))


COMMANDS = dict(commands(typer.main.get_command(main.app)))


def section(command: str) -> str:
    """What the page says of a command: its section, or its row for a subcommand."""
    first, *rest = command.split()
    found = re.search(rf"^## {first}\n(.*?)(?=^## |\Z)", page("cli"), re.MULTILINE | re.DOTALL)
    assert found is not None, f"docs/cli.md has no section {first}"
    if not rest:
        return found[1]
    row = re.search(rf"^\| `{command}` .*$", found[1], re.MULTILINE)
    assert row is not None, f"docs/cli.md has no row {command}"
    return row[0]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_page_on_the_command_line_names_every_option_of_a_command(command):
    said = section(command)
    assert [option for option in sorted(COMMANDS[command]) if f"`{option}`" not in said] == []


def test_the_page_on_the_command_line_names_no_option_and_no_command_that_is_not_there():
    known = {"--help", "--version"}.union(*COMMANDS.values())
    assert set(re.findall(r"(?<![\w-])--[a-z][\w-]+", page("cli"))) <= known
    sections = set(re.findall(r"^## ([\w-]+)$", page("cli"), re.MULTILINE))
    assert sections == {name for name in COMMANDS if " " not in name}
    groups = "|".join({name.split()[0] for name in COMMANDS if " " in name})
    assert set(re.findall(rf"^\| `((?:{groups}) [\w-]+)`", page("cli"), re.MULTILINE)) == {
        name for name in COMMANDS if " " in name
    }


def test_the_page_on_the_command_line_names_the_extra_that_a_command_needs():
    rows = re.findall(r"^\| \[`([\w-]+)`\]\(#[\w-]+\) \| .* \| (?:`(\w+)`)? ?\|$", page("cli"), re.MULTILINE)
    assert dict(rows) == {name: command.extra.name if command.extra else "" for name, command in main.COMMANDS.items()}


def test_the_page_on_the_laboratory_has_a_row_for_each_of_its_commands():
    there = set(dict(commands(typer.main.get_command(laboratory))))
    assert set(re.findall(r"^\| `([\w -]+)` \|", page("laboratory"), re.MULTILINE)) == there


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_a_page_names_commands_that_there_are(path):
    groups = {name.split()[0] for name in COMMANDS if " " in name}
    for command, subcommand in re.findall(r"`kafka-eos ([a-z][a-z-]*)(?: ([a-z][a-z-]*))?", path.read_text()):
        assert (f"{command} {subcommand}" if command in groups and subcommand else command) in {*COMMANDS, *groups}


def test_the_runbook_names_commands_and_options_that_there_are():
    named = re.findall(r"kafka-eos ([a-z][a-z-]*)(?: ([a-z][a-z-]*))?", page("runbook").replace("\n", " "))
    assert named
    for command, subcommand in named:
        groups = {name.split()[0] for name in COMMANDS if " " in name}
        assert (f"{command} {subcommand}" if command in groups else command) in COMMANDS
    assert set(re.findall(r"(?<![\w-])--[a-z][\w-]+", page("runbook"))) <= set().union(*COMMANDS.values())


# -- the Python API

MODULES = (spark_kafka_eos, spark_kafka_eos.testing, spark_kafka_eos.tools.verify)


def api_of(module) -> str:
    found = re.search(rf"^## {re.escape(module.__name__)}\n(.*?)(?=^## |\Z)", page("api"), re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_the_page_on_the_api_names_every_public_name_once(module):
    rows = re.findall(r"^\| `(\w+)", api_of(module), re.MULTILINE)
    listed = [
        name for name in re.findall(r"`(\w+)`", api_of(module).rpartition("\n\nThe [errors]")[2]) if name in ERRORS
    ]
    assert sorted(rows + listed) == sorted(module.__all__)


@pytest.mark.parametrize(
    ("module", "name", "shown"),
    [
        (module, name, shown)
        for module in MODULES
        for name, shown in re.findall(r"^\| `(\w+)\((.*?)\)`", api_of(module), re.MULTILINE)
    ],
)
def test_the_page_on_the_api_shows_the_parameters_that_a_name_takes(module, name, shown):
    public = getattr(module, name)
    if inspect.ismodule(public):  # once imported, a submodule of the same name takes the name's place in the package
        public = getattr(public, name)
    parameters = inspect.signature(public).parameters.values()
    assert [word for word in re.split(r",\s*", shown) if word != "*"] == [parameter.name for parameter in parameters]
    by_name = [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
    assert shown.partition("*")[2].strip(", ") == ", ".join(by_name)


def test_the_site_shows_the_docstring_of_every_public_name():
    hook = runpy.run_path(str(ROOT / "docs" / "site" / "reference.py"))
    shown = re.findall(r"^::: (\S+)$", hook["with_reference"](page("api")), re.MULTILINE)
    public = {f"{module.__name__}.{name}" for module in MODULES for name in module.__all__}
    assert sorted(shown) == sorted(public - {"spark_kafka_eos.__version__"})
