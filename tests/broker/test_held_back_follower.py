"""Reading from a follower in the reader's own rack (KIP-392) that replication quotas hold back (KIP-73).

A quota does not hold back a follower that is in sync. So it is away first, and comes back with what it had, or with an
empty disk. From then on the leader gives it a step every ten seconds or so, and the high watermark goes on without it.
"""

from __future__ import annotations

import itertools
import os
import shutil
import time
from collections import Counter

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource

from spark_kafka_eos.kafka.fetching.fetch import Fetcher
from spark_kafka_eos.kafka.fetching.fetch_response import read_fetch_response
from spark_kafka_eos.kafka.partitions import OffsetRange, TopicPartition
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.offsets import latest
from spark_kafka_eos.kafka.wire.decode import decode
from spark_kafka_eos.testing import EmbeddedKafka, Proxy
from spark_kafka_eos.testing.proxy import Watcher
from tests.producing import produce, transact
from tests.reading import await_stable

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(600)]

OF_A_RECORD_BATCH = 100
STEP = 20_000  # bytes that the reader or a follower fetches at a time: a record batch of 11 kB, or two
CONFIG = {
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "replica.fetch.max.bytes": STEP,
}
OFFSET_OUT_OF_RANGE = 1
numbers = itertools.count(1)


@pytest.fixture(scope="module")
def three(kafka_version):
    with EmbeddedKafka(kafka_version, brokers=3, config=CONFIG) as kafka:
        yield kafka


class Replicated:
    """A partition with a leader and a follower, the values that were written to it, and what a reader was answered."""

    def __init__(self, kafka):
        self.kafka = kafka
        config = {"leader.replication.throttled.replicas": "*"}
        self.at = TopicPartition(kafka.create_topic(f"held-back-{next(numbers)}", config=config), 0)
        self.admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
        self.leader, self.follower, _ = self._described().replicas
        self.values: list[bytes] = []

    def write(self, record_batches):
        """Append so many committed record batches, and an aborted transaction."""
        for _ in range(record_batches):
            values = [os.urandom(100) for _ in range(OF_A_RECORD_BATCH)]
            produce(self.kafka.bootstrap, self.at.topic, values)
            self.values += values
        transact(self.kafka.bootstrap, self.at.topic, [b"aborted"] * OF_A_RECORD_BATCH, "abort")
        await_stable(self.kafka.bootstrap, self.at.topic)

    def kill(self):
        """Kill the follower; when it is started again, the leader gives it a step at a time.

        It is out of sync by then: one that is back sooner fetches before the leader hears of that, at full speed.
        """
        self._limit("1", AlterConfigOpType.SET)
        self.kafka.kill(self.follower)
        self._await(lambda: not self._is_in_sync(), "the killed follower stays in sync")

    def start(self):
        self.kafka.start(self.follower)
        assert not self._is_in_sync()

    def replace_disk(self):
        """Let the follower come back without the partition."""
        self.kill()
        shutil.rmtree(self._folder(self.follower))
        self.start()

    def let_go(self):
        self._limit("", AlterConfigOpType.DELETE)
        self._await(self._is_in_sync, "the follower does not come back into sync")

    def is_behind(self):
        """Whether the follower has fewer bytes of the log than the leader."""
        leaders, followers = (
            sum(file.stat().st_size for file in self._folder(node).glob("*.log"))
            for node in (self.leader, self.follower)
        )
        print(f"the leader has {leaders:,} bytes, the follower {followers:,}")
        return followers < leaders

    def _folder(self, node):
        return self.kafka.directory / f"node-{node}" / "data" / f"{self.at.topic}-0"

    def _is_in_sync(self):
        return self.follower in self._described().isrs

    def _await(self, condition, otherwise):
        deadline = time.monotonic() + 120
        while not condition():
            assert time.monotonic() < deadline, otherwise
            time.sleep(0.1)

    def _described(self):
        return self.admin.list_topics(self.at.topic, timeout=20).topics[self.at.topic].partitions[0]

    def _limit(self, rate, operation):
        entry = ConfigEntry("leader.replication.throttled.rate", rate, incremental_operation=operation)
        changed = ConfigResource(ConfigResource.Type.BROKER, str(self.leader), incremental_configs=[entry])
        for altered in self.admin.incremental_alter_configs([changed]).values():
            altered.result()


class Answers:
    """What the brokers answered to Fetch requests, and how often. `named` is called while the reader still waits for
    the answer that names a follower."""

    def __init__(self, named=lambda: None):
        self.counted: Counter[tuple[int, str]] = Counter()
        self.named = named

    def __call__(self, passed):
        return Answer(self, passed.node) if passed.request.api == "Fetch" else None

    def of(self, node):
        return {what: times for (answered, what), times in self.counted.items() if answered == node}


class Answer(Watcher):
    def __init__(self, answers, node):
        self.answers, self.node = answers, node

    def responds(self, frame):
        (part,) = read_fetch_response(memoryview(frame)).partitions
        if part.preferred_read_replica >= 0:
            self.answers.named()
            said = f"ask {part.preferred_read_replica}"
        elif part.error_code:
            said = f"error {part.error_code}"
        else:
            said = "records" if part.records else "nothing"
        self.answers.counted[self.node, said] += 1


@pytest.fixture
def replicated(three):
    replicated = Replicated(three)
    yield replicated
    three.start()
    replicated.let_go()


@pytest.fixture
def read(replicated, options):
    """`read(answers, start=0)`: the values from the offset `start` up to the high watermark, in steps, by a reader in
    the follower's rack, which has no connection to the follower until the leader names it."""

    def read(answers, start=0):
        with (
            Proxy(replicated.kafka.bootstrap, watch=answers) as proxy,
            Cluster(options(proxy.bootstrap.split(",")[replicated.leader - 1], request_timeout_ms=120_000)) as cluster,
        ):
            (end,) = latest(cluster, [replicated.at]).values()
            fetcher = Fetcher(cluster, max_partition_fetch_bytes=STEP, rack=f"rack-{replicated.follower}")
            parts = fetcher.fetch([OffsetRange(partition=replicated.at, start=start, end=end)])
            found = [value for part in parts for value in values_of(part)]
        print(dict(answers.counted))
        return found

    return read


def values_of(part):
    batches = [header for header in part.batches if not header.is_control]
    return [value for value in decode(part.buffer, batches)["value"].to_pylist() if value != b"aborted"]


def test_a_follower_that_is_behind_is_not_read_until_it_is_in_sync_again(replicated, read):
    replicated.write(10)
    replicated.kill()
    replicated.write(30)
    replicated.start()
    answers = Answers()
    assert read(answers) == replicated.values
    assert replicated.is_behind()
    assert answers.of(replicated.follower) == {}
    replicated.let_go()
    answers = Answers()
    assert read(answers) == replicated.values
    assert answers.of(replicated.follower).keys() == {"records"}
    assert answers.of(replicated.leader) == {f"ask {replicated.follower}": 1}


def test_what_a_follower_lacks_when_it_is_asked_comes_from_the_leader(replicated, read):
    replicated.write(30)
    answers = Answers(replicated.replace_disk)
    assert read(answers) == replicated.values
    assert replicated.is_behind()
    assert "nothing" in answers.of(replicated.follower)  # perhaps after its first record batches
    assert answers.of(replicated.leader)["records"] > 1


def test_an_offset_that_a_follower_does_not_have_yet_is_no_data_loss(replicated, read):
    replicated.write(30)
    answers = Answers(replicated.replace_disk)
    start = 20 * OF_A_RECORD_BATCH
    assert read(answers, start) == replicated.values[start:]
    assert replicated.is_behind()
    assert answers.of(replicated.follower) == {f"error {OFFSET_OUT_OF_RANGE}": 1}
    assert answers.of(replicated.leader)["records"] > 1
