"""A stream that reads along while three brokers restart or die one after the other, and every partition changes its
leader: each record that was acknowledged is read once.
"""

from __future__ import annotations

import itertools
import json
import threading
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer

from lab.soak.brokers import await_in_sync
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.options import source_options
from spark_kafka_eos.reading.offset_planner import OffsetPlanner
from spark_kafka_eos.reading.records import read
from spark_kafka_eos.testing.embedded import EmbeddedKafka

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(900)]

PARTITIONS = 6
BETWEEN = 300  # records that are acknowledged between two restarts, and read, at least


@pytest.fixture(scope="module")
def three(kafka_version):
    with EmbeddedKafka(kafka_version, brokers=3) as kafka:
        yield kafka


class Load:
    """Appends records until it is told to stop. `acknowledged` are the ones that the brokers have."""

    def __init__(self, bootstrap, topic):
        self.acknowledged: set[bytes] = set()
        self._topic, self._stopped = topic, threading.Event()
        common = {"bootstrap.servers": bootstrap, "linger.ms": 2, "log_level": 0, "enable.idempotence": True}
        self._plain = Producer(common)

    def run(self):
        for number in itertools.count():
            if self._stopped.is_set():
                break
            value = b"%d" % number
            self._plain.produce(self._topic, value, partition=number % PARTITIONS, on_delivery=self._delivered)
            if number % 20 == 19:
                assert self._plain.flush(120) == 0

    def stop(self):
        self._stopped.set()

    def finish(self):
        assert self._plain.flush(120) == 0

    def _delivered(self, error, message):
        assert error is None, error
        self.acknowledged.add(message.value())


class Along:
    """Reads micro-batches until it is told that nothing more comes, and there is nothing more."""

    def __init__(self, bootstrap, topic):
        given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
        self.options = source_options(given | {"kafka.request.timeout.ms": "5000"}, streaming=True)
        self.values: list[bytes] = []
        self.complete = threading.Event()

    def run(self):
        with OffsetPlanner(self.options) as positions, Cluster(self.options.client) as cluster:
            at = positions.initial()
            while True:
                is_last = self.complete.is_set()
                start, at = at, json.loads(json.dumps(positions.latest(at, limited=True)))
                for task in positions.batch(start, at):
                    for batch in read(task, self.options, cluster):
                        self.values += batch["value"].to_pylist()
                if start == at:
                    if is_last:
                        return
                    cluster.sleep(0.05)


@contextmanager
def running(job):
    """In a thread, whose error is raised at the end."""
    errors = []

    def target():
        try:
            job.run()
        except BaseException as error:  # noqa: BLE001 - it is raised in the test's own thread
            errors.append(error)

    thread = threading.Thread(target=target)
    thread.start()
    try:
        yield thread
    finally:
        thread.join(300)
        assert not thread.is_alive(), "it does not end"
        if errors:
            raise errors[0]


def await_more(load, along, threads):
    """Until so many more records were acknowledged, and so many more read."""
    written, seen = len(load.acknowledged) + BETWEEN, len(along.values) + BETWEEN
    while len(load.acknowledged) < written or len(along.values) < seen:
        assert all(thread.is_alive() for thread in threads), "one has ended"
        threads[0].join(0.05)


@pytest.mark.parametrize("how", ["restart", "kill"])
def test_each_record_is_read_once_while_one_broker_after_the_other_is_away(three, how):
    topic = three.create_topic(f"rolling-{how}", PARTITIONS)
    load, along = Load(three.bootstrap, topic), Along(three.bootstrap, topic)
    with running(along) as reading:
        try:
            with running(load) as writing:
                try:
                    for node in three.nodes:
                        await_more(load, along, [reading, writing])
                        if how == "kill":
                            three.kill(node)
                            await_more(load, along, [reading, writing])
                        three.restart(node)
                        await_in_sync(three.bootstrap)
                    await_more(load, along, [reading, writing])
                finally:
                    load.stop()
            load.finish()
        finally:
            along.complete.set()
    print(f"{len(along.values):,} records read of {len(load.acknowledged):,} acknowledged")
    assert len(along.values) == len(set(along.values)), "a record was read twice"
    assert set(along.values) == load.acknowledged
