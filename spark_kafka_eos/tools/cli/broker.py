"""`kafka-eos broker`: runs a Kafka broker on this machine until Ctrl-C."""

from __future__ import annotations

import signal
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from spark_kafka_eos.testing import jars
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from spark_kafka_eos.tools.cli.terminal import Console


def broker(
    kafka_version: Annotated[str, typer.Option(help="Kafka version; downloaded once.")] = jars.DEFAULT_VERSION,
    brokers: Annotated[
        int, typer.Option(min=1, max=9, help="Number of brokers; with 3, everything is replicated.")
    ] = 1,
    port: Annotated[
        int, typer.Option(help="Port of the first broker, 0 for a free port; the others use free ports.")
    ] = 9092,
    directory: Annotated[
        Path | None,
        typer.Option(file_okay=False, help="Keep data and logs in this directory; by default, they are deleted."),
    ] = None,
    topic: Annotated[
        list[str] | None, typer.Option(metavar="NAME[:PARTITIONS]", help="Create a topic; can be repeated.")
    ] = None,
) -> None:
    """Run a Kafka broker (KRaft, loopback only) for tests and demos until Ctrl-C."""
    topics = [parse_topic(text) for text in topic or []]
    notes = Console(stderr=True, highlight=False, soft_wrap=True)
    signal.signal(signal.SIGTERM, _interrupt)  # so that `kill` also shuts down cleanly, which matters for --directory
    try:
        with EmbeddedKafka(kafka_version, brokers=brokers, port=port or None, directory=directory) as kafka:
            existing = kafka.topics()
            for name, partitions in topics:
                if name not in existing:
                    kafka.create_topic(name, partitions)
            notes.print(f"Kafka {kafka_version} runs; data and logs are in {kafka.directory}. Use it with")
            notes.print(f'  .option("kafka.bootstrap.servers", "{kafka.bootstrap}")', style="bold")
            notes.print("Ctrl-C stops it.")
            print(kafka.bootstrap, flush=True)  # last: a process that waits for this line may stop the broker at once
            kafka.wait()
    except KeyboardInterrupt:
        notes.print("Stopped.")


def parse_topic(text: str) -> tuple[str, int]:
    """`name` or `name:partitions`. Raises typer.BadParameter for anything else."""
    name, colon, count = text.partition(":")
    if not name or (colon and not (count.isascii() and count.isdigit() and int(count))):
        raise typer.BadParameter(
            f"{text!r} is not NAME or NAME:PARTITIONS. For example: --topic orders:4", param_hint="--topic"
        )
    return name, int(count or 1)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
