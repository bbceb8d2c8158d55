"""Weeks in minutes: thousands of micro-batches by one driver, whose brokers move to other addresses meanwhile, take no
more memory, file descriptors, threads and objects at the end than near the beginning."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Self

import pyarrow as pa
import pytest

from spark_kafka_eos.appending.append import BlockAppender
from spark_kafka_eos.appending.blocks import ROWS, BlockEncoder
from spark_kafka_eos.appending.encode_settings import encode_settings
from spark_kafka_eos.appending.staging import Staging
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.connection import Connection
from spark_kafka_eos.kafka.protocol.offsets import latest
from spark_kafka_eos.ledger.decide import decide_micro_batch
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.options import sink_options
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from spark_kafka_eos.transaction.commit import commit_batch
from spark_kafka_eos.transaction.shared import SharedTransaction
from tests.batches import BY_DRIVER, reads
from tests.sizes import grown, measure, table

pytestmark = [pytest.mark.broker, pytest.mark.slow]

PARTITIONS = 2
VALUES = {"key": [b"k", None] * 5, "value": [b"v"] * 10}


class MovingBroker:
    """A broker that moves to another port now and then, behind one bootstrap name, as behind a name of the DNS."""

    def __init__(self, version: str, directory) -> None:
        self._version, self._directory = version, directory
        self._kafka = EmbeddedKafka(version, directory=directory)
        self._kafka.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._kafka.close()

    def create_topic(self, name: str) -> str:
        return self._kafka.create_topic(name, PARTITIONS)

    def move(self) -> None:
        before = self._kafka.bootstrap
        self._kafka.close()
        self._kafka = EmbeddedKafka(self._version, directory=self._directory)
        self._kafka.start()
        assert self._kafka.bootstrap != before

    def connect(self, host: str, port: int, options) -> Connection:
        if host == "bootstrap":
            host, _, found = self._kafka.bootstrap.rpartition(":")
            port = int(found)
        return Connection(host, port, options)


def writer(cluster: Cluster, source: str, topic: str) -> Callable[[int], None]:
    """`write(batch_id)`: a micro-batch all the way through the driver: encode, stage, append, ledger, commit."""
    sink = sink_options(
        {"kafka.bootstrap.servers": "bootstrap:9092", "kafka.transactional.id": "weeks", "topic": topic}
    )
    transaction = SharedTransaction(sink, cluster, decide_micro_batch(sink))
    rows = pa.RecordBatch.from_pydict(VALUES, schema=pa.schema([(name, ROWS[name]) for name in VALUES]))

    def write(batch_id: int) -> None:
        staging = Staging(None)

        def stage():
            encoder = BlockEncoder(
                encode_settings(sink, topic, cluster), 0, pytest.fail, lambda: int(time.time() * 1e3)
            )
            return [staging.stage("0", batch_id, itertools.chain(encoder.add(rows), encoder.finish()))]

        read = TopicPartition(source, 0)
        batch = MicroBatch(
            query_id="query", batch_id=batch_id, digest=f"{batch_id:x}",
            sources=reads({read: batch_id * 10}, {read: batch_id * 10 + 10}),
        )  # fmt: skip
        staged = BlockAppender(cluster, sink, staging, stage, batch_id)
        report = commit_batch(transaction, batch, staged, max_attempts=3, choice=BY_DRIVER)
        assert report.outcome == "committed"

    return write


@pytest.mark.parametrize(
    ("batches", "moves"),
    [
        pytest.param(150, 2, id="short"),
        pytest.param(10_000, 10, marks=pytest.mark.timeout(3_600), id="long"),
    ],
)
def test_a_driver_that_writes_for_weeks_while_its_brokers_move_keeps_its_size(kafka_version, tmp_path, batches, moves):
    with MovingBroker(kafka_version, tmp_path / "broker") as broker:
        source, topic = broker.create_topic("orders"), broker.create_topic("weeks")
        options = sink_options(
            {"kafka.bootstrap.servers": "bootstrap:9092", "kafka.transactional.id": "x", "topic": topic}
        ).client
        with Cluster(options, connect=broker.connect) as cluster:
            write = writer(cluster, source, topic)
            samples = []
            stage = batches // (moves + 1)
            for move in range(moves + 1):
                if move:
                    broker.move()
                for batch_id in range(move * stage, (move + 1) * stage):
                    write(batch_id)
                samples.append(measure((move + 1) * stage))
            partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
            written = sum(latest(cluster, partitions).values())
        print(table(samples))  # pytest -s shows it
    # Each batch also ends with a control record in each partition.
    assert written >= 10 * stage * (moves + 1)
    # The first move opens what each later one replaces.
    assert grown(samples[1:]) == [], table(samples)
