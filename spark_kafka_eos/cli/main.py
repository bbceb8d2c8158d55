"""`kafka-eos`: the command line. Its commands are entry points, so that the laboratory can add its own."""

from __future__ import annotations

import sys
import traceback
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated, Any

import typer
from rich.markup import escape
from typer.core import TyperGroup

import spark_kafka_eos
from spark_kafka_eos.cli.errors import INTERRUPTED, NOT_CHECKED, exit_code, show
from spark_kafka_eos.errors import KafkaEosError, ToolFailed

GROUP = "spark_kafka_eos.commands"
"""Each entry point in this group is a command: a function, or a `typer.Typer` with subcommands."""


_EXTRAS = {"verify": "verify", "exporter": "metrics", "top": "top"}  # what a command needs, if it is not the laboratory


class _Commands(TyperGroup):
    """Imports a command when it is used: the laboratory's take a second, and `--help` alone needs them all."""

    def list_commands(self, ctx: object) -> list[str]:  # noqa: ARG002 - click's interface
        return sorted(entry_points(group=GROUP).names)

    def get_command(self, ctx: object, cmd_name: str) -> Any:
        if cmd_name not in self.commands and cmd_name in self.list_commands(ctx):
            self.commands[cmd_name] = load(entry_points(group=GROUP)[cmd_name])
        return self.commands.get(cmd_name)

    def invoke(self, ctx: Any) -> Any:
        """Run the command. An expected error is a short message, Ctrl-C is none; see cli.errors for the exit codes."""
        try:
            return super().invoke(ctx)
        except KafkaEosError as error:
            show(error)
            raise typer.Exit(exit_code(error)) from error
        except KeyboardInterrupt as interrupt:
            raise typer.Exit(INTERRUPTED) from interrupt


app = typer.Typer(
    cls=_Commands,
    help="The command line of the exactly-once Kafka connector for PySpark.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,  # they hide the error in boxes, and show local variables, which may be passwords
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"kafka-eos {spark_kafka_eos.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Global options."""


def load(command: EntryPoint) -> Any:
    """The command of an entry point. If a package that it imports is missing, the command says what to install."""
    only = typer.Typer(rich_markup_mode="rich")
    try:
        loaded = command.load()
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("spark_kafka_eos"):
            raise
        _add_missing(only, command.name)
    else:
        if isinstance(loaded, typer.Typer):
            only.add_typer(loaded, name=command.name)
        else:
            only.command(command.name)(loaded)
    return typer.main.get_group(only).commands[command.name]


def _add_missing(group: typer.Typer, name: str) -> None:
    install = f'pip install "spark-kafka-eos[{_EXTRAS.get(name, "lab")}]"'

    @group.command(
        name,
        help=f"Requires: {escape(install)}",
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
        add_help_option=False,
    )
    def refuse() -> None:
        raise ToolFailed(f"kafka-eos {name} requires packages that are not installed", action=f"Run: {install}")


def main() -> None:
    """Entry point. A bug shows its traceback, and is not taken for a failed check."""
    try:
        app()
    except Exception:  # noqa: BLE001 - shown in full
        traceback.print_exc()
        sys.exit(NOT_CHECKED)
