"""`kafka-eos`, the command line: the commands, one module each, and how errors that can be expected are shown."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

import spark_kafka_eos
from spark_kafka_eos.cli.errors import show
from spark_kafka_eos.cli.preflight import preflight
from spark_kafka_eos.cli.verify import verify
from spark_kafka_eos.errors import KafkaEosError
from spark_kafka_eos.lab.commands.bench import bench
from spark_kafka_eos.lab.commands.broker import broker
from spark_kafka_eos.lab.commands.chaos import chaos
from spark_kafka_eos.lab.commands.demo import demo

app = typer.Typer(
    help="Tools around the exactly-once Kafka connector for PySpark.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,  # locals may hold passwords
)
app.add_typer(bench, name="bench")
app.command()(broker)
app.command()(demo)
app.command()(preflight)
app.command()(verify)
app.add_typer(chaos, name="chaos")


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
    """Options that belong to no command."""


def main() -> None:
    """Entry point: exit code 1 and a short message for what can be expected to go wrong."""
    try:
        app()
    except KafkaEosError as error:
        show(error)
        sys.exit(1)
