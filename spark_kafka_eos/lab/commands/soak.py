"""`kafka-eos chaos soak`: three queries under faults for as long as one likes."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from spark_kafka_eos.testing import jars


def soak(
    minutes: Annotated[float, typer.Option(min=0.1, help="How long faults happen.")] = 5.0,
    seed: Annotated[int | None, typer.Option(min=0, help="Of the schedule of faults; a random one by default.")] = None,
    rate: Annotated[int, typer.Option(min=1, help="Records per second of the source.")] = 500,
    brokers: Annotated[
        int, typer.Option(min=1, max=9, help="How many; 3 replicate everything. Another cluster has one more.")
    ] = 3,
    kafka_version: Annotated[str, typer.Option(help="Kafka's version; fetched once.")] = jars.DEFAULT_VERSION,
    output: Annotated[Path, typer.Option(file_okay=False, help="Where soak.html and soak.json go.")] = Path("soak"),
    keep: Annotated[bool, typer.Option("--keep", help="Keep logs, data and checkpoints.")] = False,
) -> None:
    """Run a stateless query, a stateful one, and one to another cluster, while drivers, executors and brokers are
    killed, paused and cut off, and a checkpoint is lost."""
    # Here, not above: Spark and matplotlib are not needed by the other commands.
    from spark_kafka_eos.lab.soak.run import Settings, run

    settings = Settings(
        minutes=minutes,
        seed=secrets.randbelow(1_000_000) if seed is None else seed,
        rate=rate,
        brokers=brokers,
        kafka_version=kafka_version,
        output=output,
        keep=keep,
    )
    if not run(settings, Console()):
        raise typer.Exit(1)
