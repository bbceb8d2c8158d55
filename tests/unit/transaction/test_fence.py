"""The fence: what it adds to the transaction of the last owner, and in which order."""

from __future__ import annotations

from spark_kafka_eos.kafka.producer import ProducerIdentity
from spark_kafka_eos.ledger.topic import LedgerTopic
from spark_kafka_eos.options import sink_options
from spark_kafka_eos.transaction.fence import Fence
from tests.coordinating import TransactionCoordinator
from tests.model_kafka import KafkaModel


def test_the_groups_join_in_the_same_order_in_every_process():
    """The hashes of strings differ from process to process, and with them a set's order."""
    for number in range(20):
        name = f"id {number}"
        options = sink_options(
            {
                "kafka.bootstrap.servers": "node-0:9092",
                "kafka.transactional.id": name,
                "topic": "out",
            }
        )
        kafka = KafkaModel(1, {"out": 1})
        cluster = kafka.cluster()
        coordinator = TransactionCoordinator(cluster, name, 60_000)
        identity = coordinator.init_producer_id()
        last = ProducerIdentity(transactional_id=name, producer_id=identity.producer_id, epoch=identity.epoch)
        ledger = LedgerTopic(cluster, options.ledger_topic, name)
        Fence(options, cluster, ledger).apply(last, was_committed=True)
        joined = [request.group_id for api, request in kafka.requests if api == "AddOffsetsToTxn"]
        assert joined == [options.ledger_group, options.group_id]
