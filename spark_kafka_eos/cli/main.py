"""`kafka-eos`: the command line. Its commands are entry points, so that the laboratory can add its own."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated

import typer
from rich.markup import escape

import spark_kafka_eos
from spark_kafka_eos.cli.errors import show
from spark_kafka_eos.errors import KafkaEosError, ToolFailed

GROUP = "spark_kafka_eos.commands"
"""Each entry point in this group is a command: a function, or a `typer.Typer` with subcommands."""


app = typer.Typer(
    help="The command line of the exactly-once Kafka connector for PySpark.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,  # locals may contain passwords
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


def add(found: EntryPoint) -> None:
    """Add the command of an entry point. If a package that it imports is missing, the command says what to install."""
    try:
        loaded = found.load()
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("spark_kafka_eos"):
            raise
        loaded = None
    if loaded is None:
        _add_missing(found.name)
    elif isinstance(loaded, typer.Typer):
        app.add_typer(loaded, name=found.name)
    else:
        app.command(found.name)(loaded)


def _add_missing(name: str) -> None:
    install = f'pip install "spark-kafka-eos[{"verify" if name == "verify" else "lab"}]"'

    @app.command(
        name,
        help=f"Requires: {escape(install)}",
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
        add_help_option=False,
    )
    def refuse() -> None:
        raise ToolFailed(f"kafka-eos {name} requires packages that are not installed", action=f"Run: {install}")


for _found in sorted(entry_points(group=GROUP), key=lambda found: found.name):
    add(_found)


def main() -> None:
    """Entry point. An expected error prints a short message; the exit code is then 1."""
    try:
        app()
    except KafkaEosError as error:
        show(error)
        sys.exit(1)
