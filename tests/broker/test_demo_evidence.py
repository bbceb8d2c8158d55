"""What the demo says of a kill is what was so in Kafka: the batch's transaction was open, or committed."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pytest
from rich.console import Console

from spark_kafka_eos.appending.append import append
from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.wire.encode import encode
from spark_kafka_eos.ledger.decide import decide_micro_batch
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.options import sink_options
from spark_kafka_eos.testing.demo.plan import plan
from spark_kafka_eos.testing.demo.run import OUTPUT, TRANSACTIONAL_ID, Demo
from spark_kafka_eos.testing.demo.screen import Screen
from spark_kafka_eos.testing.driver import Kill
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from spark_kafka_eos.transaction.shared import SharedTransaction

pytestmark = pytest.mark.broker

IN_FLIGHT = 1  # the checkpoint's batch that is planned and not done


@pytest.fixture
def demo(kafka: EmbeddedKafka, tmp_path: Path) -> Demo:
    """One whose checkpoint is in the middle of the second batch."""
    if OUTPUT not in kafka.topics():
        kafka.create_topic(OUTPUT, 3)
    for log, batches in {"offsets": IN_FLIGHT + 1, "commits": IN_FLIGHT}.items():
        (tmp_path / "checkpoint" / log).mkdir(parents=True)
        for batch in range(batches):
            (tmp_path / "checkpoint" / log / str(batch)).touch()
    return Demo(
        plan=plan(fast=True, cluster=False),
        bootstrap=kafka.bootstrap,
        cluster=False,
        append_mode="driver",
        with_table=False,
        folder=tmp_path,
        spark_home=tmp_path,
        screen=Screen(Console(file=io.StringIO())),
    )


def batch_of(number: int) -> MicroBatch:
    return MicroBatch(query_id="demo", batch_id=number, digest=str(number))


def write(cluster: Cluster, transaction: SharedTransaction, number: int) -> None:
    """Two records, in a transaction that stays open."""
    transaction.begin(batch_of(number))
    transaction.appending()
    block = encode(pa.nulls(2, pa.binary()), pa.array([b"late"] * 2, pa.binary()), 0)
    append(cluster, transaction.identity, [(TopicPartition(OUTPUT, 0), 2, block)])


def test_a_killed_batchs_offsets_belong_to_its_open_transaction_until_it_is_committed_in_kafka(demo, kafka) -> None:
    connection = {"kafka.bootstrap.servers": kafka.bootstrap, "kafka.transactional.id": TRANSACTIONAL_ID}
    options = sink_options({**connection, "topic": OUTPUT})
    with Cluster(options.client) as cluster:
        transaction = SharedTransaction(options, cluster, decide_micro_batch(options))
        for number in range(IN_FLIGHT):
            write(cluster, transaction, number)
            transaction.commit(batch_of(number))
        write(cluster, transaction, IN_FLIGHT)
        written = demo._evidence(Kill(point="all appended", batch=IN_FLIGHT))
        transaction.commit(batch_of(IN_FLIGHT))
        ended = demo._evidence(Kill(point="ended", batch=IN_FLIGHT))
    assert written == f"in batch {IN_FLIGHT}: 2 offsets of {OUTPUT} belong to its open transaction"
    assert ended == f"in batch {IN_FLIGHT}: committed in Kafka, but not yet recorded by Spark"


def test_a_kill_in_another_batch_than_planned_is_an_error(demo) -> None:
    with pytest.raises(ToolFailed, match="planned for batch 5, but the checkpoint is at batch 1"):
        demo._evidence(Kill(point="ended", batch=5))
