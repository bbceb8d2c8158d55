"""Sixteen append tasks that append to 64 partitions at the same time: who adds them to the transaction (KIP-609)."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from spark_kafka_eos.appending.append_task import append_attempt
from spark_kafka_eos.appending.blocks import Block
from spark_kafka_eos.appending.report import Appended, EncodedBlock, EncodeReport
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.recorder import recording
from spark_kafka_eos.kafka.protocol.transactions import add_partitions
from spark_kafka_eos.kafka.wire.encode import encode
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.options import sink_options
from spark_kafka_eos.transaction.commit import commit_batch
from spark_kafka_eos.transaction.shared import SharedTransaction
from tests.batches import BY_EXECUTORS
from tests.broker.conftest import options_of

pytestmark = pytest.mark.broker

TASKS, PARTITIONS = 16, 64
numbers = itertools.count(1)


def requests_of(either_kafka, topic, *, known, declared=PARTITIONS):
    """The AddPartitionsToTxn requests of one transaction, by error, if the driver adds what is `known`."""
    given = {"kafka.bootstrap.servers": either_kafka.bootstrap, "kafka.transactional.id": topic, "topic": topic}
    options = sink_options(given)
    partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    added = partitions[:declared] if known else []
    sent: Counter[str] = Counter()

    def task(identity, slot):
        mine = partitions[slot::TASKS]
        data = [encode(pa.array([None], pa.binary()), pa.array([b"v"]), int(time.time() * 1000)) for _ in mine]
        blocks = [
            Block(partition=tp, task=0, number=0, records=1, data=block) for tp, block in zip(mine, data, strict=True)
        ]
        encoded = EncodeReport(task=0, blocks=tuple(EncodedBlock(partition=tp, records=1, length=1) for tp in mine))
        with Cluster(options_of(either_kafka.bootstrap)) as own:
            return append_attempt(
                own,
                identity,
                [encoded, *blocks],
                stage_id=1,
                slot=slot,
                attempt=0,
                batch_id=0,
                added=added,
            )

    def write(identity):
        with recording() as recorder:
            add_partitions(cluster, identity, added)
        with ThreadPoolExecutor(TASKS) as pool:
            reports = list(pool.map(lambda slot: task(identity, slot), range(TASKS)))
        assert [report.error for report in reports] == [None] * TASKS
        for trace in [recorder.trace(), *(report.trace for report in reports)]:
            sent.update(each.error for each in trace.requests if each.api == "AddPartitionsToTxn")
        return Appended(partitions=PARTITIONS, records=PARTITIONS, bytes=PARTITIONS)

    batch = MicroBatch(query_id="q", batch_id=0, digest="")
    with Cluster(options.client) as cluster:
        commit_batch(SharedTransaction(options, cluster, None), batch, write, max_attempts=1, choice=BY_EXECUTORS)
    return sent


def test_what_the_driver_has_added_no_task_adds_again(either_kafka, consumed):
    topic = either_kafka.create_topic(f"known-{next(numbers)}", PARTITIONS)
    older = either_kafka.version.startswith("3")  # with KIP-890, the first Produce to a partition adds it
    assert requests_of(either_kafka, topic, known=True) == ({"": 1} if older else {})
    unknown = requests_of(either_kafka, topic, known=False)
    print("added by the tasks:", dict(unknown))
    assert unknown[""] == (TASKS if older else 0)
    partly = requests_of(either_kafka, topic, known=True, declared=TASKS)
    assert partly[""] == (1 + TASKS if older else 0)
    assert [consumed(topic, number) for number in range(PARTITIONS)] == [[b"v"] * 3] * PARTITIONS
