"""`kafka-eos bench`: this connector against Spark's built-in one, on this machine."""

from __future__ import annotations

import json
import os
import platform
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from spark_kafka_eos.tools.embedded import EmbeddedKafka


class What(StrEnum):
    """What is measured."""

    SOURCE = "source"
    COPY = "copy"


def bench(
    what: Annotated[What, typer.Argument(help="source: read into noop. copy: from topic to topic.")],
    records: Annotated[int, typer.Option(help="Records of the input.", min=1_000)] = 2_000_000,
    batches: Annotated[int, typer.Option(help="Micro-batches they are read in.", min=1)] = 1,
    value_bytes: Annotated[int, typer.Option(help="Size of each value; keys have 8 bytes.", min=16)] = 100,
    rounds: Annotated[int, typer.Option(help="Measured runs of each side, after one to warm up.", min=1)] = 5,
    output: Annotated[Path | None, typer.Option("--json", help="Also write the figures to this file.")] = None,
) -> None:
    """Measure both connectors in turn, in one session on one broker, and print the ratios of their medians."""
    from importlib.metadata import version

    from spark_kafka_eos.tools.bench import Bench, Workload, session

    console = Console()
    workload = Workload(records=records, batches=batches, value_bytes=value_bytes)
    machine = {
        "cpu": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        **{name: version(name) for name in ("pyspark", "pyarrow", "numpy", "kafka-python")},
    }
    with EmbeddedKafka(config={"log.retention.ms": -1}) as kafka, session() as spark:
        run = Bench(spark, kafka, workload)
        with Progress(console=console, transient=True) as progress:
            task = progress.add_task("producing the input", total=records)
            for sent in run.produce():
                progress.update(task, completed=sent)
        results = run.measure(
            run.contestants(what), rounds, lambda name, seconds: console.print(f"  {name}: {seconds:.2f} s")
        )
    table = Table(title=f"{what}: {records:,} records of {value_bytes} bytes in {batches} micro-batches")
    for heading in (
        "",
        "median s",
        "best s",
        "records/s",
        f"speed against {results[-1].name}",
        "… and its best setting",
    ):
        table.add_column(heading, justify="right" if heading else "left")
    slow, fast = results[-1].median, results[-2].median
    for result in results:
        table.add_row(
            result.name,
            f"{result.median:.2f}",
            f"{min(result.seconds):.2f}",
            f"{records / result.median:,.0f}",
            f"{slow / result.median:.2f} x",
            f"{fast / result.median:.2f} x",
        )
    console.print(table)
    console.print(", ".join(f"{name} {value}" for name, value in machine.items()))
    if output is not None:
        figures = {"what": what, "records": records, "batches": batches, "value_bytes": value_bytes, "machine": machine}
        output.write_text(json.dumps(figures | {"seconds": {r.name: r.seconds for r in results}}, indent=1) + "\n")
