"""The simulation's model of Kafka answers what real brokers answer, step by step, in both protocols.

Random short histories of requests, each under a transactional.id of its own: every answer, the coordinator's state and
epoch, the ends of the partitions and the groups' offsets must be equal. What depends on the moment, as an answer while
markers are written, is waited out on both sides.
"""

from __future__ import annotations

import functools
import itertools
import random
import time
from typing import Any

import pytest
from kafka.protocol.consumer import OffsetFetchRequest
from kafka.protocol.producer import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
)

from spark_kafka_eos.broker import describe, offsets
from spark_kafka_eos.broker.cluster import Cluster
from spark_kafka_eos.broker.versions import transactional
from spark_kafka_eos.core.preflight import Unread
from spark_kafka_eos.core.sequences import next_sequence
from spark_kafka_eos.model import ProducerIdentity, TopicPartition
from spark_kafka_eos.tools.simulation.kafka import ModelKafka
from spark_kafka_eos.tools.simulation.network import Network
from spark_kafka_eos.tools.simulation.world import Process, World
from spark_kafka_eos.wire.record_batch import HEADER

pytestmark = pytest.mark.broker

numbers = itertools.count(1)
SEEDS = 6
HISTORIES = 6  # of each seed
STEPS = 14
# Answers that say "not yet": 19 also while a leader asks the coordinator, 7 and 14 to 16 in a broker that just started.
PASSING = {7, 14, 15, 16, 19, 51}


class Side:
    """One cluster, real or the model, asked with the product's own classes; answers in terms both sides share."""

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

    def init(self, name, held):
        producer_id, epoch = held
        request = InitProducerIdRequest(
            transactional_id=name,
            transaction_timeout_ms=60_000,
            producer_id=self.number(producer_id),
            producer_epoch=epoch,
        )
        response = self.ask("transaction", name, request)
        return (response.error_code,) if response.error_code else self.identity(response)

    def add(self, name, held, partition):
        topic_class = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=self.number(held[0]),
            v3_and_below_producer_epoch=held[1],
            v3_and_below_topics=[topic_class(name=self.topic, partitions=[partition])],
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

    def produce(self, name, held, partition, sequence, batch):
        tp = TopicPartition(self.topic, partition)
        topic_class = ProduceRequest.TopicProduceData
        records = batch(ProducerIdentity(transactional_id=name, producer_id=self.number(held[0]), epoch=held[1]))
        request = ProduceRequest(
            transactional_id=name,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[
                topic_class(
                    name=self.topic, partition_data=[topic_class.PartitionProduceData(index=partition, records=records)]
                )
            ],
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

    def fetch(self, group):
        topic_class = OffsetFetchRequest.OffsetFetchRequestTopic
        request = OffsetFetchRequest(
            group_id=group, topics=[topic_class(name=self.topic, partition_indexes=[0])], require_stable=True
        )
        (topic,) = self.ask("group", group, request).topics
        (p,) = topic.partitions
        return p.error_code, p.committed_offset if not p.error_code else -1


class RealSide(Side):
    def state(self, name):
        """State, producer id and epoch once no marker is on its way, and the partitions' ends."""
        while True:
            found = describe.transaction(self.cluster, name, now_ms=0)
            assert not isinstance(found, Unread)
            if found is None or not found.state.startswith("Prepare"):
                break
            time.sleep(0.005)  # a coordinator tells nobody when the markers are written
        known = None if found is None else (found.state, self.same(found.producer_id), found.epoch)
        tps = [TopicPartition(self.topic, number) for number in (0, 1)]
        return known, *(
            tuple(offsets.latest(self.cluster, tps, isolation=isolation)[tp] for tp in tps)
            for isolation in ("read_committed", "read_uncommitted")
        )


class ModelSide(Side):
    def __init__(self, kafka, topic, options):
        self.kafka = kafka
        world = World(0)
        process = Process(world, "model")
        connect = Network(kafka).connector(process)
        super().__init__(
            Cluster(options, connect=connect, clock=process.clock, sleep=process.sleep, jitter=lambda: 0.5), topic
        )

    def state(self, name):
        found = self.kafka.coordinators.get(name)
        known = None if found is None else (found.phase.value, self.same(found.producer_id), found.epoch)
        logs = self.kafka.partitions.values()
        return known, tuple(log.last_stable_offset for log in logs), tuple(log.end_offset for log in logs)


def history(chance, name, version, record_batch, contents):
    """Random steps that mean something: mostly the identity at hand, now and then an older one.

    Yields each step's name, what it does on a side, and the list to which the identities it gave are to be added.
    """
    identities = [(-1, -1)]
    sequences: dict[Any, int] = {}  # of an identity, per partition, what comes next
    group = f"group-{name}"

    def held():
        return identities[-1] if chance.random() < 0.75 else chance.choice(identities[1:])

    def produce(at, partition):
        records = chance.randrange(1, 3)
        following = sequences.get((at, partition), 0)
        sequence = chance.choice([following, following, following, following, 0, following + 1])
        sequences[at, partition] = next_sequence(sequence, records)
        values = [f"{name}:{chance.randrange(10**9)}".encode() for _ in range(records)]

        def batch(identity):
            made = record_batch(identity, sequence, values)
            contents[bytes(made[HEADER.size :])] = tuple(values)
            return made

        return lambda side: side.produce(name, at, partition, sequence, batch)

    def steps(kind):
        at, partition = held(), chance.randrange(2)
        joined = version < 2 and chance.random() < 0.8  # in TV1 a client says first what will be part of it
        match kind:
            case "init":
                at = chance.choice([(-1, -1), at, identities[1]])
                yield kind, lambda side: side.init(name, at)
            case "end":
                commit = chance.random() < 0.6
                yield kind, lambda side: side.end(name, at, commit)
            case "fetch":
                yield kind, lambda side: side.fetch(group)
            case "offset":
                offset = chance.randrange(100)
                if joined:
                    yield "join", lambda side: side.join(name, at, group)
                yield kind, lambda side: side.offset(name, at, group, offset)
            case _:
                if joined:
                    yield "add", lambda side: side.add(name, at, partition)
                yield kind, produce(at, partition)

    yield "init", lambda side: side.init(name, (-1, -1)), identities
    for _ in range(STEPS):
        kind = chance.choice(("init", "offset", "offset", "end", "end", "end", "fetch", *("produce",) * 7))
        yield from ((said, step, identities) for said, step in steps(kind))
    yield "last init", lambda side: side.init(name, (-1, -1)), identities


def values_in(contents, batch):
    """What the record batch was made of, whoever stamped it."""
    return contents[bytes(batch[HEADER.size :])]


def compare(real, model, name, chance, record_batch, contents, seen):
    """One history on both sides, up to the first difference, which is returned with the steps that led to it."""
    told = []
    for kind, step, identities in history(chance, name, real.version, record_batch, contents):
        expected, found = (step(real), real.state(name)), (step(model), model.state(name))
        told.append(f"{kind}: {expected}")
        if found != expected:
            return "\n".join([*told, f"but the model: {found}"])
        answer = found[0]
        seen.add((kind, answer[0] if isinstance(answer, (tuple, list)) else answer))
        if kind in ("init", "end") and isinstance(answer, tuple) and len(answer) == 3:
            identities.append(answer[1:])
    return None


def test_the_model_answers_what_a_broker_answers(either_kafka, cluster, record_batch, consumed, options):
    seen: set[tuple[str, int]] = set()
    for seed in range(SEEDS):
        topic = either_kafka.create_topic(f"simulation-model-{next(numbers)}", 2)
        contents: dict[bytes, tuple[bytes, ...]] = {}
        real = RealSide(cluster, topic)
        kafka = ModelKafka(
            transaction_version=real.version,
            topic=topic,
            partitions=2,
            later=lambda _why, action: action(),
            contents=functools.partial(values_in, contents),
        )
        model = ModelSide(kafka, topic, options("node-0:9092"))
        assert model.version == real.version
        chance = random.Random(seed)
        for number in range(HISTORIES):
            different = compare(real, model, f"{topic}-{number}", chance, record_batch, contents, seen)
            assert different is None, different
        for tp, log in kafka.partitions.items():
            values = [value for entry in log.committed() for value in entry.content]
            assert values == consumed(topic, tp.partition)
    refused = {("end", 48), ("end", 90), ("produce", 45), ("produce", 47), ("offset", 47), ("init", 90)}
    assert {("init", 0), ("end", 0), ("produce", 0), ("offset", 0), ("fetch", 0), ("fetch", 88)} | refused <= seen
