"""`python -m lab lost-checkpoints`: drivers that are killed and lose their checkpoints."""

from __future__ import annotations

import secrets
from typing import Annotated

import typer
from rich.console import Console

from spark_kafka_eos.testing import jars
from spark_kafka_eos.tools.cli.errors import FAILED


def lost_checkpoints(
    context: typer.Context,
    records: Annotated[int, typer.Option(min=1_000, help="Number of records.")] = 20_000,
    kills: Annotated[int, typer.Option(min=0, help="Number of drivers that are killed.")] = 4,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of the times of the kills; default: random.")] = None,
    kafka_version: Annotated[str, typer.Option(help="Kafka version; downloaded once.")] = jars.DEFAULT_VERSION,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the drivers' log.")] = False,
) -> None:
    """Copy a topic while drivers are killed, and delete each one's checkpoint: the next one starts from Kafka.

    The copy must have each record of the source once. The exit code is 1 if it has not.
    """
    # Imported on demand: the other commands do not need Spark.
    from lab.lost_checkpoints.run import Settings, prove

    settings = Settings(
        records=records,
        kills=kills,
        seed=secrets.randbelow(1_000_000) if seed is None else seed,
        kafka_version=kafka_version,
        keep=keep,
    )
    if not (context.obj or prove)(settings, Console(highlight=False)):  # a test hands in another
        raise typer.Exit(FAILED)
