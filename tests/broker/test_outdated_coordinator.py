"""A group's coordinator that was paused tells the offsets of before, until it hears that it is one no more."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from lab.real_runs.witness import decoded
from spark_kafka_eos.appending.report import CommitReport
from spark_kafka_eos.kafka.protocol import describe
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.facts import TransactionFacts
from spark_kafka_eos.kafka.protocol.groups import GroupCoordinator
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from spark_kafka_eos.testing.proxy import Passed, Proxy, Watcher
from spark_kafka_eos.testing.proxy_frames import RequestHeader
from spark_kafka_eos.tools.verify.verification import verify
from tests.broker.conftest import options_of
from tests.copying import Copy
from tests.producing import produce

pytestmark = [pytest.mark.broker, pytest.mark.slow]

numbers = itertools.count(1)
SECONDS = 60
SESSION_MS = 20_000  # so long the paused broker is still the coordinator
PATIENT_MS = 120_000  # request.timeout.ms of the driver that asks it; before that, it waits a tenth for metadata


@pytest.fixture(params=["TV2", "TV1"])
def three(request, kafka_version, tv1_version):
    version = tv1_version if request.param == "TV1" else kafka_version
    with EmbeddedKafka(version, brokers=3, config={"broker.session.timeout.ms": SESSION_MS}) as kafka:
        source = kafka.create_topic("source", 2)
        for partition in (0, 1):
            produce(kafka.bootstrap, source, [b"x"] * 30, partition=partition)
        yield kafka


def target_of_two_coordinators(kafka: EmbeddedKafka) -> tuple[str, int]:
    """A topic whose copy's transactions and ledger have different coordinators, and the ledger's."""
    with Cluster(options_of(kafka.bootstrap)) as cluster:
        for number in numbers:
            name = f"target-{number}"
            ledgers = cluster.coordinator("group", f"id-{name}.ledger")
            if cluster.coordinator("transaction", f"id-{name}") != ledgers:
                return kafka.create_topic(name, 2), ledgers
    raise AssertionError


def await_successor(bootstrap: str, group: str, former: int) -> None:
    deadline = time.monotonic() + SECONDS
    while True:
        with Cluster(options_of(bootstrap)) as cluster:
            if cluster.coordinator("group", group) != former:
                return
        assert time.monotonic() < deadline, f"broker {former} stays the coordinator"
        time.sleep(0.1)


@dataclass(slots=True)
class Answers:
    """What one broker answers to OffsetFetch of one group: the offsets and their metadata; None for an error, as if it
    knows that it is not the coordinator. `seen`: it was asked.
    """

    group: str
    node: int
    seen: threading.Event = field(default_factory=threading.Event)
    offsets: list[list[tuple[int, str]] | None] = field(default_factory=list)

    def watch(self, passed: Passed) -> Watcher | None:
        """Follows the questions to this broker."""
        if passed.node != self.node or passed.request.api != "OffsetFetch":
            return None
        asked = decoded("Request", passed.request, passed.frame)
        return _Question(self, passed.request) if asked.group_id == self.group else None


@dataclass(slots=True)
class _Question(Watcher):
    answers: Answers
    header: RequestHeader

    @contextmanager
    def passes(self) -> Iterator[None]:
        self.answers.seen.set()
        yield

    def responds(self, frame: bytes | bytearray) -> None:
        answer = decoded("Response", self.header, frame)
        offsets = [(p.committed_offset, p.metadata) for t in answer.topics for p in t.partitions]
        self.answers.offsets.append(None if answer.error_code else offsets)


def test_a_batch_is_committed_once_though_the_ledgers_coordinator_does_not_know_of_it(three: EmbeddedKafka) -> None:
    target, paused = target_of_two_coordinators(three)
    others = three.bootstrap_of("PLAINTEXT", [node for node in three.nodes if node != paused])
    answers = Answers(f"id-{target}.ledger", paused)
    reports: list[CommitReport] = []
    with (
        Proxy(three.bootstrap, watch=answers.watch) as proxy,
        Cluster(options_of(proxy.bootstrap, request_timeout_ms=PATIENT_MS)) as old,
        Cluster(options_of(others)) as new,
    ):
        Copy(proxy.bootstrap, old, "source", target).run(0, 0, 10)
        # What the broker does not know when it is paused, it does not tell afterwards. It may have markers to write.
        settled = describe.settled(old, lambda: describe.transaction(old, f"id-{target}", now_ms=0))
        assert isinstance(settled, TransactionFacts)
        assert settled.state == "CompleteCommit"
        before = GroupCoordinator(old, answers.group).fetch_all()
        answers.seen.clear()
        answers.offsets.clear()
        three.pause(paused)
        # A driver that takes over asks the coordinator, which does not answer yet. Another driver commits the batch
        # through its successor. The question is the first thing that the broker finds when it goes on.
        takes_over = Copy(proxy.bootstrap, old, "source", target)
        thread = threading.Thread(target=lambda: reports.append(takes_over.run(1, 10, 20)))
        thread.start()
        assert answers.seen.wait(SECONDS)
        await_successor(others, answers.group, paused)
        assert Copy(others, new, "source", target).run(1, 10, 20).outcome == "committed"
        three.resume(paused)
        thread.join(SECONDS)
        [report] = reports
    assert answers.offsets[0] == [(at.offset, at.metadata) for at in before.values()], "as it was before batch 1"
    assert report.outcome == "skipped", "the ledger's record says so"
    three.await_ready()
    found = verify(three.bootstrap, target, source="source", transactional_id=f"id-{target}")
    assert found.holds, found
    assert found.records == 40
