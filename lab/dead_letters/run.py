"""Runs the query to the end of its source while drivers and executors are killed, and checks what it wrote."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from lab.dead_letters import query
from lab.killed import KilledQuery
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.options import source_options
from spark_kafka_eos.testing.demo.orders import LARGEST, expected, produce, register
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from spark_kafka_eos.testing.redone import redone
from spark_kafka_eos.testing.registry import RegistryServer
from spark_kafka_eos.tools.replay.stored import letters, ranges_of
from spark_kafka_eos.tools.verify.findings import Invariant
from spark_kafka_eos.tools.verify.verification import Report, verify

JOB = Path(query.__file__)

_BATCHES_PER_LIFE = 3  # that a driver has until it is killed, at least


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """`records` in the source, and `kills` in all: of executors and drivers in turn with `cluster`, else of drivers."""

    records: int
    kills: int
    cluster: bool
    seed: int
    kafka_version: str
    append_mode: str = "auto"
    keep: bool = False

    @property
    def offsets_per_trigger(self) -> int:
        """So few that the source lasts until the last kill."""
        return max(200, self.records // (10 + _BATCHES_PER_LIFE * self.kills))


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What was killed and what was found: `made` has the number of bad records by cause, `dead_letters` that of dead
    letters.
    """

    records: int
    killed: Mapping[str, int]
    batches: int
    redone: int
    made: Mapping[str, int]
    dead_letters: Mapping[str, int]
    report: Report
    seconds: float

    @property
    def holds(self) -> bool:
        return self.report.holds and self.report.records == self.records and self.made == self.dead_letters

    def wrong(self, kind: str) -> int:
        """The number of violations of this kind of invariant 1."""
        once = self.report.findings[Invariant.ONCE - 1]
        return sum(violation.count for violation in once.violations if violation.kind == kind)


def prove(settings: Settings, console: Console) -> bool:
    """Run everything on a broker and a registry of its own, and show the outcome; whether all of it holds."""
    folder = Path(tempfile.mkdtemp(prefix="kafka-eos-dead-letters-"))
    with EmbeddedKafka(settings.kafka_version) as kafka, RegistryServer() as registry:
        kafka.create_topic(query.SOURCE, partitions=4)
        kafka.create_topic(query.GOOD, partitions=3, config={"max.message.bytes": LARGEST})
        kafka.create_topic(query.DEAD, partitions=2)
        started = time.monotonic()
        produce(kafka.bootstrap, query.SOURCE, settings.records, register(registry.url))
        console.print(f"{settings.records:,} records sent in {time.monotonic() - started:.0f} s")
        started, checkpoint = time.monotonic(), folder / "checkpoint"
        killed = KilledQuery(
            job=JOB,
            arguments=[
                *(kafka.bootstrap, registry.url, str(checkpoint), str(settings.offsets_per_trigger)),
                settings.append_mode,
            ],
            checkpoint=checkpoint,
            folder=folder,
            kills=settings.kills,
            cluster=settings.cluster,
            seed=settings.seed,
            say=console.print,
            patience=settings.records / 1_000,
        )
        killed.drive()
        proof = check(settings, kafka.bootstrap, killed, time.monotonic() - started)
    console.print(table(proof))
    if settings.keep or not proof.holds:
        console.print(f"Checkpoint and driver's log: {folder}", soft_wrap=True)
    else:
        shutil.rmtree(folder)
    return proof.holds


def check(settings: Settings, bootstrap: str, killed: KilledQuery, seconds: float) -> Proof:
    """Compare good records and dead letters with the source, and the dead letters' causes with what was made."""
    client = source_options({"kafka.bootstrap.servers": bootstrap, "subscribe": query.DEAD}).client
    report = verify(client, [query.GOOD, query.DEAD], source=query.SOURCE, transactional_id=query.TRANSACTIONAL_ID)
    with Cluster(client) as cluster:
        dead_letters = Counter(stored.letter.cause for stored in letters(cluster, ranges_of(cluster, query.DEAD)))
    return Proof(
        records=settings.records,
        killed=killed.killed,
        batches=killed.batches,
        redone=len(redone(killed.log.read_text(errors="replace").splitlines())),
        made={str(cause): count for cause, count in expected(settings.records).items()},
        dead_letters=dict(dead_letters),
        report=report,
        seconds=seconds,
    )


def table(proof: Proof) -> RenderableType:
    """Bad records and dead letters by cause, and the figures."""
    causes = Table("cause", *(Column(name, justify="right") for name in ("bad records", "dead letters")))
    for cause in sorted(proof.made.keys() | proof.dead_letters.keys()):
        made, dead_letters = proof.made.get(cause, 0), proof.dead_letters.get(cause, 0)
        causes.add_row(cause, f"{made:,}", Text(f"{dead_letters:,}", "green" if made == dead_letters else "bold red"))
    figures = Table.grid(padding=(0, 2))
    good, dead = (proof.report.topics[topic] for topic in (query.GOOD, query.DEAD))
    for name, value in (
        ("source records", proof.records),
        ("good", good),
        ("dead letters", dead),
        ("missing", proof.wrong("missing")),
        ("more than once", proof.wrong("more than once")),
        ("drivers killed", proof.killed.get("driver", 0)),
        ("executors killed", proof.killed.get("executor", 0)),
        ("batches", proof.batches),
        ("batches written again", proof.redone),
    ):
        figures.add_row(name, Text(f"{value:,}", justify="right"))
    verdict = "holds" if proof.holds else "violated"
    return Group(causes, figures, Text(f"{verdict}, after {proof.seconds:.0f} s\n{proof.report}"))
