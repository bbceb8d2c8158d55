"""The fault matrix of real time: at each point of a bucket's transaction each fault, and its one outcome.

A process that copies a topic is held at the point; the fault happens; the process goes on, or is killed and followed by
another one, while more is produced. Each record must be in the output once, and nothing open.
"""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from subprocess import Popen
from threading import Event

import pytest

from spark_kafka_eos.failpoints import IN_REAL_TIME
from spark_kafka_eos.kafka.partitions import IsolationLevel
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.ledger.progress import last_entry
from spark_kafka_eos.options.reserved import LEDGER_TOPIC
from spark_kafka_eos.options.sink import bucket_id
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from spark_kafka_eos.testing.proxy import Proxy
from spark_kafka_eos.testing.supervised import SupervisedProcesses
from spark_kafka_eos.testing.topic_reader import read_topic
from tests.faults.columns import TIMEOUT_MS, add_partitions, halt_for_a_full_disk
from tests.faults.scene import client_of, has_open_transaction
from tests.producing import produce
from tests.reading import await_stable
from tests.waiting import until

pytestmark = pytest.mark.broker

PROCESS = Path(__file__).parents[1] / "broker" / "real_time_process.py"
PARTITIONS = 2
EACH = 20  # records in each partition, each time
_numbers = itertools.count(1)

TAKEN, APPENDED, COPIED, COMMITTED = "buckets taken", "bucket appended", "bucket offsets sent", "bucket committed"


class Outcome(StrEnum):
    """What becomes of the bucket, and of what was appended."""

    RIDES_THROUGH = "rides through"  # the task goes on
    AGAIN = "started again"  # by the same driver; what was not committed is aborted, and written again
    NEXT = "next driver"  # goes on where the ledger says
    FENCED = "fenced"  # the one that comes back ends, and none of its records becomes visible


RIDES, AGAIN, NEXT, FENCED = Outcome

# By fault, for the states in this order. In TV1, a request without an answer is not sent again.
STATES = (TAKEN, APPENDED, COPIED, COMMITTED)
EXPECTED = {
    "driver SIGKILL": [NEXT] * 4,
    "connection cut": [RIDES] * 4,
    "response lost": [RIDES] * 4,
    "zombie driver": [FENCED] * 4,
    "partitions added": [RIDES] * 4,
    "broker SIGKILL": [RIDES] * 4,
    "broker SIGSTOP": [RIDES, AGAIN, AGAIN, RIDES],
    "disk full": [RIDES, AGAIN, AGAIN, RIDES],
}
DIFFERENT = {
    ("TV1", fault, state): AGAIN
    for fault in ("connection cut", "response lost", "broker SIGKILL")
    for state in (APPENDED, COPIED)
}
IN_EVERY_RUN = {("driver SIGKILL", COPIED), ("connection cut", APPENDED), ("zombie driver", APPENDED)}

# What the held process asks next.
NEXT_REQUEST = {TAKEN: "Produce", APPENDED: "EndTxn", COPIED: "EndTxn", COMMITTED: "Produce"}


class Stage:
    """A topic, its copy, and the processes that copy it, one after the other."""

    def __init__(self, kafka: EmbeddedKafka, proxy: Proxy, folder: Path) -> None:
        self.kafka, self.proxy, self.folder = kafka, proxy, folder
        number = next(_numbers)
        self.source = kafka.create_topic(f"real-time-from-{number}", PARTITIONS)
        self.target = kafka.create_topic(f"real-time-to-{number}", PARTITIONS)
        self.processes, self.started, self.produced = SupervisedProcesses(), list[Popen[bytes]](), 0
        self.cluster = Cluster(client_of(kafka.bootstrap))

    def produce(self) -> None:
        for partition in range(PARTITIONS):
            values = [str(self.produced + n).encode() for n in range(EACH)]
            produce(self.kafka.bootstrap, self.source, values, partition=partition)
            self.produced += EACH

    def start(self, name: str, point: str = "", timeout_ms: int = 60_000) -> Popen[bytes]:
        """A process that copies the topic."""
        held = {"KAFKA_EOS_FAILPOINT": point, "KAFKA_EOS_FAILPOINT_DIR": str(self.folder)} if point else {}
        arguments = [self.proxy.bootstrap, self.source, self.target, name, str(PARTITIONS), "600", str(timeout_ms)]
        command = ["env", *(f"{key}={value}" for key, value in held.items()), sys.executable, str(PROCESS), *arguments]
        self.started.append(self.processes.spawn(command, log=self.folder / f"{name}.log"))
        return self.started[-1]

    def hold(self, point: str, timeout_ms: int) -> Popen[bytes]:
        """A process that is held at the point."""
        victim = self.start("victim", point, timeout_ms)
        until((self.folder / "reached").exists)
        if point == COMMITTED:  # the other bucket's task, too, or a kill would abort what that one has appended
            until(lambda: self.values().total() == self.produced)
        return victim

    def release(self, victim: Popen[bytes]) -> None:
        (self.folder / f"release-{victim.pid}").write_text("go on")

    def await_ended(self) -> None:
        """Until the coordinator has no transaction of a bucket open. Kafka may leave out a marker of one that it ends
        while it starts: the driver ends that, so it must be released first.
        """
        until(lambda: not any(has_open_transaction(self.cluster, bucket_id(self.target, n)) for n in range(PARTITIONS)))

    def starts(self) -> int:
        """How often drivers have started buckets."""
        entry = last_entry(self.cluster, LEDGER_TOPIC, self.target, ignore_open=True)
        return 0 if entry is None else entry.serial

    def values(self, level: IsolationLevel = "read_committed") -> Counter[int]:
        return Counter(int(message.value() or b"") for message in read_topic(self.kafka.bootstrap, self.target, level))

    def check(self) -> None:
        """Everything that was produced, and what is produced now, is there once, and nothing is open."""
        self.produce()
        until(lambda: self.values().total() >= self.produced)
        await_stable(self.kafka.bootstrap, self.target)
        assert self.values() == Counter(range(self.produced))

    def aborted(self) -> int:
        return (self.values("read_uncommitted") - self.values()).total()

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()


@pytest.fixture
def stage(behind_proxy: tuple[EmbeddedKafka, Proxy], tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(*behind_proxy, tmp_path)
    yield stage
    stage.proxy.clear()
    stage.processes.close()
    for process in stage.started:
        process.wait()
    stage.cluster.close()


# -- the faults: each with what is done once the victim is held


def killed(stage: Stage, victim: Popen[bytes], state: str) -> Outcome:
    victim.kill()
    victim.wait()
    stage.start("next")
    stage.check()
    return NEXT


def cut(stage: Stage, victim: Popen[bytes], state: str) -> Outcome:
    stage.proxy.cut()
    return went_on(stage, victim)


def response_lost(stage: Stage, victim: Popen[bytes], state: str) -> Outcome:
    lost = stage.proxy.add(f"{NEXT_REQUEST[state]}@victim:cut-response")
    stage.produce()  # else nothing may follow
    outcome = went_on(stage, victim)
    lost.wait(timeout=0)
    return outcome


def overtaken(stage: Stage, victim: Popen[bytes], state: str) -> Outcome:
    stage.start("next")
    stage.check()
    stage.release(victim)
    stage.check()  # what is produced now lets each of its tasks notice
    assert victim.wait(60) != 0
    assert "another process has the query" in stage.log("victim")
    return FENCED


def partitions_added(stage: Stage, victim: Popen[bytes], state: str) -> Outcome:
    add_partitions(stage.kafka, stage.target)
    return went_on(stage, victim)


def broker_killed(stage: Stage, victim: Popen[bytes], state: str) -> Outcome:
    stage.kafka.kill()
    stage.kafka.start()
    return went_on(stage, victim)


def broker_paused(stage: Stage, victim: Popen[bytes], state: str) -> Outcome:
    """For longer than the transaction may be open."""
    stage.kafka.pause()
    Event().wait(TIMEOUT_MS / 1000)
    stage.kafka.resume()
    stage.await_ended()
    return went_on(stage, victim)


def disk_full(stage: Stage, victim: Popen[bytes], state: str) -> Outcome:
    """It halts, for longer than a transaction may be open."""
    halt_for_a_full_disk(stage.kafka)
    stage.kafka.start()
    stage.await_ended()
    return went_on(stage, victim)


def went_on(stage: Stage, victim: Popen[bytes]) -> Outcome:
    """What becomes of the held process and its buckets."""
    starts = max(1, stage.starts())  # at `buckets taken`, the first one is under way
    stage.release(victim)
    stage.check()
    assert victim.poll() is None, stage.log("victim")
    return RIDES if stage.starts() == starts else AGAIN


FAULTS: dict[str, Callable[[Stage, Popen[bytes], str], Outcome]] = {
    "driver SIGKILL": killed,
    "connection cut": cut,
    "response lost": response_lost,
    "zombie driver": overtaken,
    "partitions added": partitions_added,
    "broker SIGKILL": broker_killed,
    "broker SIGSTOP": broker_paused,
    "disk full": disk_full,
}


def test_each_point_of_a_buckets_transaction_is_a_state():
    assert set(STATES) == set(IN_REAL_TIME)
    assert FAULTS.keys() == EXPECTED.keys()


@pytest.mark.parametrize(
    ("fault", "state"),
    [
        pytest.param(fault, state, marks=() if (fault, state) in IN_EVERY_RUN else pytest.mark.slow)
        for fault in FAULTS
        for state in STATES
    ],
)
def test_the_fault_has_its_one_outcome_in_the_state(stage, cell, fault, state):
    version = "TV1" if stage.kafka.version.startswith("3") else "TV2"
    wanted = DIFFERENT.get((version, fault, state), EXPECTED[fault][STATES.index(state)])
    stage.produce()
    victim = stage.hold(state, TIMEOUT_MS if fault in ("broker SIGSTOP", "disk full") else 60_000)
    outcome = FAULTS[fault](stage, victim, state)
    aborted = stage.aborted()
    cell(f"Fault matrix of real time, {version}", state, fault, f"{wanted}{', aborted' if aborted else ''}")
    assert outcome is wanted
    # A response that is lost is that of the commit.
    assert (aborted > 0) == (state == APPENDED and wanted is not RIDES and fault != "response lost")
