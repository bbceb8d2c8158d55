"""Shows expected errors on the command line."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from spark_kafka_eos.errors import KafkaEosError


def show(error: KafkaEosError) -> None:
    """Print a short message to standard error."""
    Console(stderr=True, highlight=False, soft_wrap=True).print("[bold red]Error:[/]", Text(str(error)))
