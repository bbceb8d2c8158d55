"""A scripted broker in place of the network: each API has a queue of answers, and every request is kept."""

from __future__ import annotations

import uuid
from collections import defaultdict, deque
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.protocol.consumer import ListOffsetsResponse
from kafka.protocol.metadata import FindCoordinatorResponse, MetadataResponse

from spark_kafka_eos.errors import BrokerUnreachable
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.versions import choose
from spark_kafka_eos.options import ClientOptions

TOPIC_ID = uuid.UUID(int=7)


class Clock:
    """Seconds pass only while somebody sleeps."""

    def __init__(self):
        self.now = 1000.0
        self.slept = []

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds


class ScriptedBroker:
    """Answers from `script[api]`: a response, an exception to raise, or a function of the request giving either.

    An exception counts as a lost connection after the request was sent. Metadata, FindCoordinator and ListOffsets have
    answers of their own when nothing is scripted. `requests` holds (api, version, request) in order.
    """

    def __init__(self, features):
        self.features = features
        self.script: dict[str, deque[Any]] = defaultdict(deque)
        self.requests = []
        self.asked = []  # (api, address), in order
        self.topics = {"orders": 2}
        self.topic_id = TOPIC_ID
        self.leader = 1  # of every partition: broker 1, or broker 2, which joins then
        self.down: dict[str, int] = {}  # by topic the broker that led its partitions, which have no leader now
        self.refused = 0  # connections to refuse
        self.cut_off = ""  # the API whose next request finds its connection broken
        self.connections = []
        self.clock = Clock()

    def connect(self, host, port, options):
        if self.refused:
            self.refused -= 1
            raise BrokerUnreachable(f"no connection to {host}:{port}: refused")
        connection = ScriptedConnection(self, f"{host}:{port}")
        self.connections.append(connection)
        return connection

    def cluster(self, **options):
        options = {"delivery_timeout_ms": 10_000, "request_timeout_ms": 1_000} | options
        client = ClientOptions(bootstrap_servers=(("broker", 9092),), **options)
        return Cluster(client, connect=self.connect, clock=self.clock, sleep=self.clock.sleep, jitter=lambda: 0.5)

    def sent(self, api):
        """The requests of one API, in order."""
        return [request for name, _, request in self.requests if name == api]

    def versions(self, api):
        return [version for name, version, _ in self.requests if name == api]

    def answer(self, api, request):
        if self.script[api]:
            answer = self.script[api].popleft()
            return answer(request) if callable(answer) else answer
        return getattr(self, f"_{api}")(request)

    def _Metadata(self, request):
        partition = MetadataResponse.MetadataResponseTopic.MetadataResponsePartition
        names = self.topics if request.topics is None else [topic.name for topic in request.topics]
        topics = [
            MetadataResponse.MetadataResponseTopic(
                name=name,
                topic_id=self.topic_id,
                error_code=0 if name in self.topics else 3,
                is_internal=name.startswith("__"),
                partitions=[
                    partition(
                        partition_index=number,
                        leader_id=-1 if name in self.down else self.leader,
                        leader_epoch=5,
                        isr_nodes=[self.down.get(name, self.leader)],
                    )
                    for number in range(self.topics.get(name, 0))
                ],
            )
            for name in names
        ]
        brokers = [
            MetadataResponse.MetadataResponseBroker(node_id=node, host=host, port=9092)
            for node, host in [(1, "broker"), (2, "other")][: self.leader]
        ]
        return MetadataResponse(brokers=brokers, topics=topics)

    def _FindCoordinator(self, request):
        return FindCoordinatorResponse(error_code=0, node_id=1, host="broker", port=9092)

    def _ListOffsets(self, request):
        topic = request.topics[0]
        offset = {-2: 20, -1: 30}[topic.partitions[0].timestamp]
        answer = ListOffsetsResponse.ListOffsetsTopicResponse.ListOffsetsPartitionResponse(
            partition_index=topic.partitions[0].partition_index, error_code=0, offset=offset
        )
        return ListOffsetsResponse(
            topics=[ListOffsetsResponse.ListOffsetsTopicResponse(name=topic.name, partitions=[answer])]
        )


class ScriptedConnection:
    def __init__(self, broker, address):
        self.broker, self.address = broker, address
        self.finalized_features = broker.features
        self.open = True
        self.pending = {}
        self.number = 0
        self.arrival = (0, 0.0)

    @property
    def usable(self):
        return self.open

    @property
    def in_flight(self):
        return len(self.pending)

    def readable(self):
        return False

    def arrived(self, correlation_id):
        return True

    def send(self, request, *, decode=None, **version):
        if not self.open:
            raise BrokerUnreachable(f"{self.address}: the connection is closed")
        api = request.name.removesuffix("Request")
        if api == self.broker.cut_off:
            self.broker.cut_off = ""
            self.close()
            raise BrokerUnreachable(f"{self.address}: sending {request.name} failed: broken pipe")
        chosen = choose(api, (0, 99), **version)
        request.with_header(correlation_id=1, client_id="test")
        request.encode(version=chosen, framed=True, header=True)  # what cannot be encoded fails here
        self.broker.requests.append((api, chosen, request))
        self.broker.asked.append((api, self.address))
        self.number += 1
        self.pending[self.number] = api, request
        return self.number

    def receive(self, correlation_id):
        if correlation_id not in self.pending:
            raise BrokerUnreachable(f"{self.address}: connection lost with request {correlation_id} unanswered")
        answer = self.broker.answer(*self.pending.pop(correlation_id))
        if isinstance(answer, Exception):
            self.close()
            raise answer
        return answer

    def call(self, request, **version):
        return self.receive(self.send(request, **version))

    def close(self):
        self.open = False
        self.pending.clear()


@pytest.fixture
def broker():
    """A scripted broker of transaction.version 2."""
    return ScriptedBroker({"transaction.version": 2})


@pytest.fixture
def old_broker():
    """A scripted broker without the feature transaction.version."""
    return ScriptedBroker({})


@pytest.fixture
def lost():
    """An answer that never comes: the connection breaks."""
    return lambda request: BrokerUnreachable("broker:9092: the broker closed the connection")


@pytest.fixture
def answers():
    """`answers.EndTxn(error_code=51)` and so on: a response with these fields."""
    from kafka.protocol import consumer, metadata, producer

    classes = {
        name.removesuffix("Response"): getattr(module, name)
        for module in (consumer, metadata, producer)
        for name in module.__all__
        if name.endswith("Response")
    }
    return SimpleNamespace(**classes)
