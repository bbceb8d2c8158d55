"""`kafka-eos demo`: demonstrates exactly-once on real data, with an embedded broker."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from spark_kafka_eos.testing import jars
from spark_kafka_eos.testing.demo.run import run
from spark_kafka_eos.tools.cli.terminal import Console


class AppendMode(StrEnum):
    """The sink's option `appendMode`."""

    AUTO = "auto"
    DRIVER = "driver"
    EXECUTORS = "executors"


def demo(
    context: typer.Context,
    fast: Annotated[
        bool, typer.Option("--fast", help="Use one month of data instead of a year, with fewer kills.")
    ] = False,
    kafka_version: Annotated[str, typer.Option(help="Kafka version; downloaded once.")] = jars.DEFAULT_VERSION,
    append_mode: Annotated[AppendMode, typer.Option(help="Which processes append to Kafka.")] = AppendMode.AUTO,
    cluster: Annotated[
        bool, typer.Option("--cluster", help="Run two executors in separate processes, and kill some of them.")
    ] = False,
    with_table: Annotated[
        bool, typer.Option("--with-table", help="Also write to a table in SQLite, and compare it with the topic.")
    ] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the checkpoint and the driver's log.")] = False,
) -> None:
    """Run a streaming job on 336,776 flights, kill its driver during batches, and check the output."""
    if cluster and append_mode is AppendMode.DRIVER:
        raise typer.BadParameter(
            "cannot be combined with --append-mode driver: no executor appends, so there is none to kill"
        )
    if cluster:
        append_mode = AppendMode.EXECUTORS  # its batches are small, so the driver would be chosen
    console = Console()
    if not (context.obj or run)(  # a test hands in another
        fast=fast,
        cluster=cluster,
        kafka_version=kafka_version,
        append_mode=append_mode,
        with_table=with_table,
        keep=keep,
        console=console,
    ):
        raise typer.Exit(1)
