"""One cell of the fault matrix on its stage: drivers, held in a state, killed or let go; and what is seen then."""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import Message

from lab.forked import forked_after
from spark_kafka_eos.kafka.partitions import IsolationLevel
from spark_kafka_eos.kafka.protocol import describe
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.facts import TransactionFacts
from spark_kafka_eos.options import ClientOptions
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from spark_kafka_eos.testing.proxy import Fault, Proxy
from spark_kafka_eos.testing.read_offsets import group_offsets
from spark_kafka_eos.testing.topic_reader import read_topic
from spark_kafka_eos.tools.verify.provenance_bytes import SIZE, unpack
from spark_kafka_eos.tools.verify.verification import verify
from tests.faults import driver
from tests.faults.driver import PARTITIONS, RECORDS, Job
from tests.reading import await_stable

SECONDS = 60
STEP = 10  # records of each source partition in a batch, so 20 in all
_LOOK_EVERY = 0.005  # seconds
_ENDED = ("Empty", "CompleteCommit", "CompleteAbort")

processes = forked_after("tests.faults.warm")


class Outcome(StrEnum):
    """What becomes of the batch at hand."""

    RIDES_THROUGH = "rides through"  # the same driver commits it, with its first attempt
    REDONE = "redone"  # what was appended is aborted; the batch is written again, once
    SKIPPED = "skipped"  # the ledger shows that it is committed; nothing is written
    FENCED = "fenced"  # the returning driver is fenced; none of its records becomes visible
    REFUSED = "refused"  # an error that says what to do


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A record of the target: the offset of which source record it is of, and which driver wrote it."""

    offset: int
    author: str


@dataclass(kw_only=True)
class Scene:
    """A query from a source to a target of its own; the victim is its second driver, which begins with batch 1.

    `origin` has the source, where that is on another cluster.
    """

    kafka: EmbeddedKafka
    proxy: Proxy  # before all of the brokers
    source: str
    target: str
    folder: Path
    origin: EmbeddedKafka | None = None
    options: dict[str, object] = field(default_factory=dict)
    running: dict[str, BaseProcess] = field(default_factory=dict)
    markers: Fault | None = None
    committed: list[Copy] = field(default_factory=list)
    cluster: Cluster = field(init=False)

    def __post_init__(self) -> None:
        self.cluster = Cluster(client_of(self.kafka.bootstrap))
        if self.origin is not None:
            with Cluster(client_of(self.origin.bootstrap)) as origin:
                self.options["sourceClusters"] = origin.cluster_id()

    # -- drivers

    def job(self, name: str, **changes: Any) -> Job:
        job = Job(
            name=name,
            bootstrap=self.proxy.bootstrap,
            source=self.source,
            source_bootstrap="" if self.origin is None else self.origin.bootstrap,
            target=self.target,
            folder=self.folder,
            options={"preflight": str(name == "victim"), **self.options},
        )
        return replace(job, **changes)

    def run(self, name: str, **changes: Any) -> None:
        """Run a driver to its end, in this process."""
        driver.run(self.job(name, **changes))

    def start(self, name: str, **changes: Any) -> None:
        """Start a driver in a process of its own."""
        process = self.running[name] = processes.Process(target=driver.main, args=[self.job(name, **changes)])
        process.start()

    def held(self, name: str) -> None:
        """Return when a driver is held at its failpoint."""
        self.until((self.folder / "reached").exists, name)

    def until(self, condition: Callable[[], bool], name: str) -> None:
        """Return when `condition` holds; an AssertionError if the driver ends before that."""
        deadline = time.monotonic() + SECONDS
        while not condition():
            self.running[name].join(_LOOK_EVERY)
            assert self.running[name].is_alive() or condition(), f"{name} has ended: {self.results(name)}"
            assert time.monotonic() < deadline, f"{name} does not get there"

    def settled(self, name: str, batch: int) -> None:
        """Return when a driver has a report of a batch."""
        self.until(lambda: any(line.get("batch") == batch for line in self.results(name)), name)

    def release(self, name: str) -> None:
        """Let a held driver go on."""
        (self.folder / f"release-{self.running[name].pid}").write_text("go on")

    def ended(self, name: str) -> None:
        """Return when a driver has ended by itself."""
        self.running[name].join(SECONDS)
        assert self.running[name].exitcode == 0, f"{name}: {self.running[name].exitcode}"

    def kill(self, name: str) -> None:
        """SIGKILL to a driver that runs."""
        assert self.running[name].is_alive(), f"{name} has ended: {self.results(name)}"
        self.running[name].kill()
        self.running[name].join()

    def close(self) -> None:
        """Remove all processes, rules and files."""
        self.proxy.clear()
        for process in self.running.values():
            process.kill()
            process.join()
        self.cluster.close()
        shutil.rmtree(self.folder)

    # -- what the drivers say

    def results(self, name: str) -> list[dict[str, Any]]:
        job = self.job(name)
        return [json.loads(line) for line in job.results.read_text().splitlines()] if job.results.exists() else []

    def last(self, name: str) -> dict[str, Any]:
        """What a driver said last: a batch's report, or the error that ended it."""
        results = self.results(name)
        assert results, f"{name} has no result"
        return results[-1]

    def report(self, name: str, batch: int) -> dict[str, Any]:
        """What a driver made of a batch."""
        found = [line for line in self.results(name) if line.get("batch") == batch]
        assert found, f"{name} has not settled batch {batch}: {self.results(name)}"
        return found[-1]

    # -- what a reader sees

    def records(self, isolation_level: IsolationLevel) -> list[Copy]:
        """What a reader of this isolation level finds in the target, in order within each of its partitions."""
        return [copy_of(message) for message in read_topic(self.proxy.bootstrap, self.target, isolation_level)]

    def await_stable(self) -> None:
        """Return when no transaction is open in the target."""
        await_stable(self.kafka.bootstrap, self.target)

    def await_ended(self) -> None:
        """Return when the coordinator has no transaction of the query open: it was ended, or took too long."""
        deadline = time.monotonic() + SECONDS
        while has_open_transaction(self.cluster, f"id-{self.target}"):
            assert time.monotonic() < deadline, "the transaction stays open"
            self.cluster.sleep(_LOOK_EVERY)
        self.await_stable()

    def check(self, *, aborted: int, new_query: bool = False) -> None:
        """Every invariant of `kafka-eos verify`: all source records are there, once and in order, `aborted` others are
        invisible, no transaction is open. The ledger of a new query knows nothing of the batches before it."""
        self.await_ended()
        report = verify(
            self.proxy.bootstrap,
            self.target,
            source=self.source,
            source_client=None if self.origin is None else self.origin.bootstrap,
            transactional_id=None if new_query else f"id-{self.target}",
            group=f"id-{self.target}",
        )
        assert report.holds, report
        assert (report.records, report.uncommitted) == (RECORDS * PARTITIONS, aborted)
        self.committed = self.records("read_committed")
        if self.origin is not None:
            self._check_origin(self.origin)

    def authors(self, batch: int) -> set[str]:
        """Which drivers wrote what `check` saw of the source records that are this batch's by plan."""
        return {copy.author for copy in self.committed if copy.offset in range(batch * STEP, (batch + 1) * STEP)}

    def _check_origin(self, origin: EmbeddedKafka) -> None:
        """It is that cluster's records that are there, and the group has no offsets of the topic's namesake here."""
        wanted = Counter(message.value() for message in read_topic(origin.bootstrap, self.source, "read_committed"))
        output = read_topic(self.proxy.bootstrap, self.target, "read_committed")
        assert Counter(message.key() for message in output) == wanted
        assert group_offsets(self.proxy.bootstrap, f"id-{self.target}", self.source) == {}


def has_open_transaction(cluster: Cluster, transactional_id: str) -> bool:
    """Whether its coordinator says so."""
    found = describe.transaction(cluster, transactional_id, now_ms=int(time.time() * 1000))
    assert isinstance(found, TransactionFacts), found
    return found.state not in _ENDED


def copy_of(message: Message) -> Copy:
    value = bytes(message.value() or b"")
    (provenance,) = unpack(pa.array([value], pa.binary()))
    return Copy(offset=int(provenance["offset"]), author=value[SIZE:].decode())


def client_of(bootstrap: str) -> ClientOptions:
    servers = [server.rsplit(":", 1) for server in bootstrap.split(",")]
    return ClientOptions(bootstrap_servers=tuple((host, int(port)) for host, port in servers), client_id="checker")
