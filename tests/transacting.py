"""The steps of a transaction one by one, on a real cluster or on the simulation's model of one.

Requests are sent as they are told, with whatever identity, and answered in terms that both sides share: error codes,
epochs, and producer ids in the order in which they were met. What depends on the moment is waited out.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from kafka.protocol.consumer import FetchRequest, OffsetFetchRequest
from kafka.protocol.producer import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
)

from lab.simulation.conditions import USUAL, Conditions
from lab.simulation.network import KINDS
from lab.simulation.transactions import Later
from spark_kafka_eos.kafka.fetching.fetch_response import read_fetch_response
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol import describe, offsets
from spark_kafka_eos.kafka.protocol.facts import Unavailable
from spark_kafka_eos.kafka.protocol.versions import transactional
from spark_kafka_eos.kafka.wire.encode import encode
from spark_kafka_eos.kafka.wire.record_batch import stamp
from tests.model_kafka import KafkaModel

NOBODY = (-1, -1)
# Answers that say "not yet": 19 also while a leader asks the coordinator, 6 in a topic that was just created, 7 and 14
# to 16 in a broker that just started.
PASSING = {6, 7, 14, 15, 16, 19, 51}
_PATIENCE_S = 60


class Side:
    """One cluster, asked with the product's own classes, with a topic of two partitions.

    `held` is a producer id (shared) and epoch.
    """

    def __init__(self, cluster, topic):
        self.cluster, self.topic = cluster, topic
        self.version = cluster.transaction_version()
        self.ids = {}  # producer ids in the order in which they were met

    def same(self, producer_id):
        return self.ids.setdefault(producer_id, len(self.ids))

    def identity(self, response):
        return response.error_code, self.same(response.producer_id), response.producer_epoch

    def ask(self, kind, key, request, newest=None, codes=lambda response: [response.error_code]):
        def passing(response):
            return [(key, code) for code in codes(response) if code in PASSING]

        return self.cluster.call_coordinator(kind, key, request, passing, newest=newest)

    def number(self, shared):
        """This cluster's producer id for a shared one; -1 stays."""
        return next((real for real, known in self.ids.items() if known == shared), shared)

    # -- the steps of a history

    def init(self, name, held=NOBODY):
        producer_id, epoch = held
        request = InitProducerIdRequest(
            transactional_id=name,
            transaction_timeout_ms=60_000,
            producer_id=self.number(producer_id),
            producer_epoch=epoch,
        )
        response = self.ask("transaction", name, request)
        return (response.error_code,) if response.error_code else self.identity(response)

    def add(self, name, held, *partitions):
        topic_class = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=self.number(held[0]),
            v3_and_below_producer_epoch=held[1],
            v3_and_below_topics=[topic_class(name=self.topic, partitions=list(partitions))],
        )

        def codes(response):
            return [
                result.partition_error_code
                for topic in response.results_by_topic_v3_and_below
                for result in topic.results_by_partition
            ]

        return codes(self.ask("transaction", name, request, codes=codes))

    def join(self, name, held, group):
        request = AddOffsetsToTxnRequest(
            transactional_id=name, producer_id=self.number(held[0]), producer_epoch=held[1], group_id=group
        )
        return self.ask("transaction", name, request).error_code

    def offset(self, name, held, group, offset):
        topic_class = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        request = TxnOffsetCommitRequest(
            transactional_id=name,
            group_id=group,
            producer_id=self.number(held[0]),
            producer_epoch=held[1],
            generation_id=-1,
            member_id="",
            group_instance_id=None,
            topics=[
                topic_class(
                    name=self.topic,
                    partitions=[
                        topic_class.TxnOffsetCommitRequestPartition(
                            partition_index=0, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=""
                        )
                    ],
                )
            ],
        )

        def codes(response):
            return [p.error_code for topic in response.topics for p in topic.partitions]

        return codes(self.ask("group", group, request, transactional("TxnOffsetCommit", self.version), codes))

    def end(self, name, held, commit):
        request = EndTxnRequest(
            transactional_id=name, producer_id=self.number(held[0]), producer_epoch=held[1], committed=commit
        )
        response = self.ask("transaction", name, request, transactional("EndTxn", self.version))
        if response.error_code or self.version < 2:
            return (response.error_code,)
        return self.identity(response)

    def produce(self, name, held, partition, sequence, values: Sequence[bytes]):
        """The error code and, without one, the base offset."""
        tp = TopicPartition(self.topic, partition)
        topic_class = ProduceRequest.TopicProduceData
        records = encode(pa.nulls(len(values), pa.binary()), pa.array(values, pa.binary()), int(time.time() * 1000))
        stamp(records, producer_id=self.number(held[0]), epoch=held[1], base_sequence=sequence, transactional=True)
        data = topic_class.PartitionProduceData(index=partition, records=records)
        request = ProduceRequest(
            transactional_id=name,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[topic_class(name=self.topic, partition_data=[data])],
        )
        newest = transactional("Produce", self.version)
        budget = self.cluster.budget()
        while True:
            response = self.cluster.connection(self.cluster.leader(tp)).call(request, newest=newest)
            (answer,) = response.responses[0].partition_responses
            if answer.error_code not in PASSING:
                return answer.error_code, answer.base_offset if not answer.error_code else -1
            delay = budget.delay(soon=True)
            assert delay is not None, answer.error_code
            self.cluster.sleep(delay)

    def read(self, partition, offset, *, committed=False, max_bytes=1 << 20, partition_max_bytes=1 << 20):
        """The leader's answer to Fetch, as the product reads it."""
        tp = TopicPartition(self.topic, partition)
        topic_class: Any = FetchRequest.FetchTopic
        wanted = topic_class.FetchPartition(
            partition=partition,
            current_leader_epoch=-1,
            fetch_offset=offset,
            last_fetched_epoch=-1,
            log_start_offset=-1,
            partition_max_bytes=partition_max_bytes,
        )
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=50,
            min_bytes=1,
            max_bytes=max_bytes,
            isolation_level=int(committed),
            session_id=0,
            session_epoch=-1,
            topics=[topic_class(topic_id=self.cluster.topic(self.topic).id, partitions=[wanted])],
            forgotten_topics_data=[],
            rack_id="",
        )
        connection = self.cluster.connection(self.cluster.leader(tp))
        response = connection.receive(connection.send(request, decode=read_fetch_response))
        (answer,) = response.partitions
        return answer

    def fetch(self, group):
        """The error code and, without one, the group's offset."""
        topic_class = OffsetFetchRequest.OffsetFetchRequestTopic
        request = OffsetFetchRequest(
            group_id=group, topics=[topic_class(name=self.topic, partition_indexes=[0])], require_stable=True
        )
        (topic,) = self.ask("group", group, request).topics
        (p,) = topic.partitions
        return p.error_code, p.committed_offset if not p.error_code else -1

    def state(self, name):
        """State, producer id and epoch once no marker is on its way, and the partitions' ends, stable and high."""
        while True:
            found = describe.transaction(self.cluster, name, now_ms=0)
            assert not isinstance(found, Unavailable)
            if found is None or not found.state.startswith("Prepare"):
                break
            self.cluster.sleep(0.005)  # a coordinator tells nobody when the markers are written
        known = None
        if found is not None:
            known = found.state, self.same(found.producer_id), found.epoch, found.timeout_ms, found.age_ms is None
        tps = [TopicPartition(self.topic, number) for number in (0, 1)]
        return known, *(
            tuple(offsets.latest(self.cluster, tps, isolation_level=isolation_level)[tp] for tp in tps)
            for isolation_level in ("read_committed", "read_uncommitted")
        )


class RealSide(Side):
    def fetch_at_rest(self, group, expected):
        """As `fetch`. A classic coordinator takes offsets over a moment after the marker: up to some seconds for it."""
        deadline = time.monotonic() + _PATIENCE_S
        while (found := self.fetch(group)) != expected and time.monotonic() < deadline:
            time.sleep(0.005)
        return found


class ModelSide(Side):
    """A model of its own, which writes markers at once, or as `later` says."""

    def __init__(
        self,
        version: int,
        conditions: Conditions = USUAL,
        topic: str = "out",
        later: Later = lambda _, action: action(),
        kinds: Mapping[str, int] = KINDS,
    ):
        self.kafka = KafkaModel(version, {topic: 2}, conditions=conditions, later=later, kinds=kinds)
        self.world = self.kafka.world
        super().__init__(self.kafka.cluster(), topic)

    def committed(self) -> Mapping[int, list[bytes]]:
        """What a reader of committed data sees, by partition."""
        return {
            tp.partition: [value for entry in log.committed() for value in entry.content]
            for tp, log in self.kafka.partitions.items()
        }
