"""A copy from one cluster to another whose drivers are killed, and whose checkpoint is deleted every other time.

Each driver is a process of its own, held at a failpoint drawn by lot and killed there (SIGKILL). The next one has the
same checkpoint, or a new one and starts where the ledger on the sink's cluster says. In the end librdkafka reads both
topics, and every record of the source must be in the output once. `KAFKA_EOS_SEEDS=7` names another seed.
"""

from __future__ import annotations

import itertools
import json
import random
import shutil
import time
from collections import Counter
from dataclasses import dataclass, fields, replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from spark_kafka_eos.failpoints import POINTS
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.ledger.progress import last_entry
from spark_kafka_eos.options.reserved import LEDGER_TOPIC
from tests.faults.driver import PARTITIONS, Job, main
from tests.faults.scene import SECONDS, client_of, processes
from tests.producing import produce
from tests.reading import read_committed
from tests.workload import seeds

pytestmark = pytest.mark.broker

numbers = itertools.count(1)
STEP = 5  # records of each source partition in a batch
TIMEOUT_MS = 3_000  # a new query's source waits so long for a transaction that the killed driver left open
QUERY = 1_000  # batch numbers of each query, so that the records of two queries can be told apart
_LEAVES_RECORDS = ("half appended", "all appended", "offsets committed")


@dataclass
class Figures:
    """What happened. `redone`: batches of which a killed driver left records behind that nobody may see."""

    kills: int = 0
    checkpoints_deleted: int = 0
    committed: int = 0
    skipped: int = 0
    redone: int = 0
    records: int = 0
    lost: int = 0
    duplicate: int = 0


class Killing:
    """Drivers that are killed, one after the other."""

    def __init__(self, a, b, folder: Path, seed: int, kills: int) -> None:
        number = next(numbers)
        self.chance, self.folder, self.figures = random.Random(seed), folder, Figures()
        with Cluster(client_of(a.bootstrap)) as at_a:
            source_cluster = at_a.cluster_id()
        # A life commits two batches at most, and none may come to the end.
        self.end = STEP * (2 * kills + 3)
        source = a.create_topic(f"killed-in-{number}", PARTITIONS)
        for partition in range(PARTITIONS):
            produce(a.bootstrap, source, [b"%d-%d" % (partition, n) for n in range(self.end)], partition=partition)
        self.job = Job(
            name="first",
            bootstrap=b.bootstrap,
            source_bootstrap=a.bootstrap,
            source=source,
            target=b.create_topic(f"killed-out-{number}", PARTITIONS),
            folder=folder,
            step=STEP,
            end=self.end,
            options={
                "sourceClusters": source_cluster,
                "kafka.transaction.timeout.ms": TIMEOUT_MS,
                "preflight": "false",
                "logLevel": "error",
            },
        )
        self.queries = 0
        self.is_committed = False  # the batch at hand, though its checkpoint does not say so
        self.lives: list[Job] = []

    def life(self, **changes: Any) -> tuple[Job, BaseProcess]:
        """Start the next driver."""
        name, anew = f"life-{len(self.lives)}", self.queries > 0
        job = replace(self.job, name=name, from_committed=anew, numbered_from=QUERY * self.queries, **changes)
        self.lives.append(job)
        process = processes.Process(target=main, args=[job])
        process.start()
        return job, process

    def complete(self, **changes: Any) -> None:
        """Run a driver to its end."""
        job, process = self.life(**changes)
        process.join(5 * SECONDS)
        assert process.exitcode == 0, f"{job.name}: {process.exitcode}"

    def kill_one(self) -> None:
        """Start a driver, hold it somewhere, kill it; perhaps its checkpoint goes with it."""
        batch = self.at_hand()
        ahead = self.chance.choice([0, 1])
        if ahead == 0 and self.is_committed:
            point = "begun"  # it is skipped then, and no id is taken
        elif ahead == 0 and batch == 0:  # a new query's, which is empty
            point = self.chance.choice([name for name in POINTS if name != "half appended"])
        else:
            point = self.chance.choice(POINTS)
        job, process = self.life(hold=f"{point}@{batch + ahead}")
        self.await_held(job, process)
        process.kill()
        process.join()
        for file in (*self.folder.glob("reached*"), *self.folder.glob("release-*"), *self.folder.glob("partial-*")):
            file.unlink()
        self.figures.kills += 1
        self.figures.redone += point in _LEAVES_RECORDS and batch + ahead > 0
        self.is_committed = point == "ended" or (self.is_committed and ahead == 0)
        if self.chance.random() < 0.5:
            shutil.rmtree(self.folder / "checkpoint")
            self.figures.checkpoints_deleted += 1
            self.queries += 1
            self.is_committed = False

    def at_hand(self) -> int:
        """The first batch that the checkpoint does not have as done."""
        return next(n for n in itertools.count() if not (self.folder / "checkpoint" / "commits" / str(n)).exists())

    def await_held(self, job: Job, process: BaseProcess) -> None:
        deadline = time.monotonic() + SECONDS
        while not (self.folder / "reached").exists():
            process.join(0.005)
            said = job.results.read_text() if job.results.exists() else ""
            assert process.is_alive(), f"{job.name} has ended before {job.hold}: {said}"
            assert time.monotonic() < deadline, f"{job.name} does not get to {job.hold}: {said}"

    def count(self, a, b) -> Figures:
        """Add up what the drivers said, what the ledger has, and what librdkafka reads."""
        said = "".join(job.results.read_text() for job in self.lives if job.results.exists())
        lines = [json.loads(line) for line in said.splitlines()]
        assert not [line for line in lines if "error" in line], lines
        with Cluster(client_of(b.bootstrap)) as at_b:
            entry = last_entry(at_b, LEDGER_TOPIC, f"id-{self.job.target}")
        assert entry is not None
        wanted = Counter(found.value() for found in read_committed(a.bootstrap, self.job.source))
        output = Counter(found.key() for found in read_committed(b.bootstrap, self.job.target))
        assert len(wanted) == PARTITIONS * self.end
        self.figures.committed = entry.serial
        self.figures.skipped = sum(line["outcome"] == "skipped" for line in lines)
        self.figures.redone += sum(bool(line["redone"]) for line in lines)
        self.figures.records = output.total()
        self.figures.lost = (wanted - output).total()
        self.figures.duplicate = (output - wanted).total()
        return self.figures


@pytest.fixture(params=[("elsewhere", "kafka"), ("kafka", "elsewhere")], ids=["TV2", "TV1"])
def clusters(request):
    """The source's cluster and the sink's, whose protocol names the test."""
    return tuple(request.getfixturevalue(name) for name in request.param)


# A seed with some of all: batches redone and skipped, a checkpoint lost before and after EndTxn.
@pytest.mark.parametrize("seed", seeds(or_else="150"))
def test_ten_kills_with_checkpoints_deleted_lose_and_repeat_nothing(clusters, tmp_path, seed, cell):
    check(clusters, tmp_path, seed, 10, cell)


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("seed", seeds(or_else="200"))
def test_two_hundred_kills_with_checkpoints_deleted_lose_and_repeat_nothing(clusters, tmp_path, seed, cell):
    check(clusters, tmp_path, seed, 200, cell)


def check(clusters, folder, seed, kills, cell):
    a, b = clusters
    killing = Killing(a, b, folder, seed, kills)
    killing.complete(end=STEP)
    for _ in range(kills):
        killing.kill_one()
    killing.complete()
    figures = killing.count(a, b)
    for field in fields(figures):
        row = f"{'TV1' if b.version.startswith('3') else 'TV2'}, seed {seed}"
        cell("Two clusters, drivers killed", row, field.name.replace("_", " "), getattr(figures, field.name))
    assert (figures.lost, figures.duplicate) == (0, 0), figures
    assert figures.records == PARTITIONS * killing.end and figures.kills == kills
