"""Runs the query to the end of its source while drivers are killed and their checkpoints deleted; verifies the copy."""

from __future__ import annotations

import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from lab.bench.inputs import Shape, fill
from lab.killed import PLACES, KilledQuery
from lab.lost_checkpoints import query
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.options import source_options
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from spark_kafka_eos.tools.verify.verification import Report, verify

JOB = Path(query.__file__)

_BATCHES_PER_LIFE = 5  # more than a driver has until it is killed


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """`records` in the source, and `kills` of drivers, each with the loss of its checkpoint."""

    records: int
    kills: int
    seed: int
    kafka_version: str
    keep: bool = False

    @property
    def offsets_per_trigger(self) -> int:
        """So few that the source lasts until the last kill."""
        return max(10, self.records // (4 + _BATCHES_PER_LIFE * self.kills))


def prove(settings: Settings, console: Console) -> bool:
    """Run everything on a broker of its own, and show the outcome; whether the copy is exact."""
    folder = Path(tempfile.mkdtemp(prefix="kafka-eos-lost-checkpoints-"))
    with EmbeddedKafka(settings.kafka_version) as kafka:
        kafka.create_topic(query.SOURCE, partitions=4)
        kafka.create_topic(query.COPY, partitions=3)
        client = source_options({"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": query.SOURCE}).client
        with Cluster(client) as cluster:
            fill(cluster, [query.SOURCE], Shape(records=settings.records))
        started, checkpoint = time.monotonic(), folder / "checkpoint"
        killed = KilledQuery(
            job=JOB,
            arguments=[kafka.bootstrap, str(checkpoint), str(settings.offsets_per_trigger)],
            checkpoint=checkpoint,
            folder=folder,
            kills=settings.kills,
            seed=settings.seed,
            say=console.print,
            lose_checkpoint=True,
            patience=settings.records / 1_000,
        )
        killed.drive()
        seconds = time.monotonic() - started
        report = verify(client, query.COPY, source=query.SOURCE, transactional_id=query.TRANSACTIONAL_ID, copy=True)
    console.print(table(settings, killed, report, seconds))
    if settings.keep or not report.holds:
        console.print(f"Driver's log: {killed.log}", soft_wrap=True)
    else:
        shutil.rmtree(folder)
    return report.holds and report.records == settings.records


def table(settings: Settings, killed: KilledQuery, report: Report, seconds: float) -> RenderableType:
    """The figures, and what `kafka-eos verify --copy` finds."""
    figures = Table.grid(padding=(0, 2))
    for name, value in (
        ("source records", settings.records),
        ("copied", report.records),
        ("aborted", report.uncommitted),
        ("drivers killed", killed.killed["driver"]),
        ("checkpoints lost", killed.killed["driver"]),
        ("batches", killed.batches),
        *((f"killed: {where}", number) for where in PLACES if (number := killed.hits[where])),
    ):
        figures.add_row(name, Text(f"{value:,}", justify="right"))
    return Group(figures, Text(f"{report.verdict}, after {seconds:.0f} s\n{report}"))
