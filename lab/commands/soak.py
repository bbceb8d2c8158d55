"""`python -m lab soak`: runs three queries under faults for a configurable time."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from lab.soak.queries import Way
from spark_kafka_eos.testing import jars


def soak(
    context: typer.Context,
    minutes: Annotated[float, typer.Option(min=0.1, help="Duration of the faults.")] = 5.0,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of the schedule of faults; default: random.")] = None,
    rate: Annotated[int, typer.Option(min=1, help="Records per second in the source.")] = 500,
    brokers: Annotated[
        int,
        typer.Option(
            min=1, max=9, help="Number of brokers; with 3, everything is replicated. The other cluster has one more."
        ),
    ] = 3,
    kafka_version: Annotated[str, typer.Option(help="Kafka version; downloaded once.")] = jars.DEFAULT_VERSION,
    output: Annotated[Path, typer.Option(file_okay=False, help="Directory for soak.html and soak.json.")] = Path(
        "soak"
    ),
    way: Annotated[
        Way,
        typer.Option(
            help="own: the sink, foreachBatch and arrow_stream, a query each; driver or executors: all append in this "
            "mode; arrow: both copies by arrow_stream."
        ),
    ] = Way.OWN,
    keep: Annotated[bool, typer.Option("--keep", help="Keep logs, data and checkpoints.")] = False,
) -> None:
    """Run a stateless query, a stateful one, and one to another cluster, while drivers, executors and brokers are
    killed, paused and isolated, and a checkpoint is lost.
    """
    # Imported on demand: the other commands do not need Spark and matplotlib.
    from lab.soak.run import Settings, run

    settings = Settings(
        minutes=minutes,
        seed=secrets.randbelow(1_000_000) if seed is None else seed,
        rate=rate,
        brokers=brokers,
        kafka_version=kafka_version,
        output=output,
        keep=keep,
        way=way,
    )
    if not (context.obj or run)(settings, Console()):  # a test hands in another
        raise typer.Exit(1)
