"""`python -m lab dead-letters`: bad records in the input, and drivers and executors that are killed."""

from __future__ import annotations

import secrets
from typing import Annotated

import typer
from rich.console import Console

from spark_kafka_eos.testing import jars
from spark_kafka_eos.tools.cli.demo import AppendMode
from spark_kafka_eos.tools.cli.errors import FAILED


def dead_letters(
    context: typer.Context,
    records: Annotated[int, typer.Option(min=1_000, help="Number of records; one in a hundred is bad.")] = 20_000,
    kills: Annotated[int, typer.Option(min=0, help="Number of kills in all.")] = 4,
    cluster: Annotated[
        bool, typer.Option("--cluster", help="On a local cluster; executors and drivers are killed in turn.")
    ] = False,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of the times of the kills; default: random.")] = None,
    append_mode: Annotated[AppendMode, typer.Option(help="The sink's option appendMode.")] = AppendMode.AUTO,
    kafka_version: Annotated[str, typer.Option(help="Kafka version; downloaded once.")] = jars.DEFAULT_VERSION,
    keep: Annotated[bool, typer.Option("--keep", help="Keep checkpoint and driver's log.")] = False,
) -> None:
    """Decode Avro records, of which some are bad in seven ways, while drivers and executors are killed.

    Good records and dead letters must together be the source, each record once. The exit code is 1 if they are not.
    """
    # Imported on demand: the other commands do not need Spark.
    from lab.dead_letters.run import Settings, prove

    settings = Settings(
        records=records,
        kills=kills,
        cluster=cluster,
        seed=secrets.randbelow(1_000_000) if seed is None else seed,
        append_mode=append_mode,
        kafka_version=kafka_version,
        keep=keep,
    )
    if not (context.obj or prove)(settings, Console(highlight=False)):  # a test hands in another
        raise typer.Exit(FAILED)
