"""The simulation's model of Kafka behind the product's own `Cluster`: what tests take for brokers, if not real ones.

Time passes only while somebody waits. Brokers change as a test tells them to (`delete_topic`, `move`, …), and `meets`
says what a request meets instead of them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from lab.simulation.chance import Seeded
from lab.simulation.conditions import USUAL, Conditions
from lab.simulation.kafka import ModelKafka
from lab.simulation.network import KINDS, Network
from lab.simulation.refusals import refusal
from lab.simulation.transactions import Later, LeavesOut
from lab.simulation.world import Process, World
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.wire.decode import decode
from spark_kafka_eos.kafka.wire.record_batch import scan
from spark_kafka_eos.options import ClientOptions

CLIENT = ClientOptions(bootstrap_servers=(("node-0", 9092),))

# What a request meets: it gets the request and what lets the brokers answer it, and returns an answer or None, which
# never comes.
Meeting = Callable[[Any, Callable[[], Any]], Any]


_pickled: dict[int, KafkaModel] = {}


def _unpickled(number: int) -> KafkaModel:
    return _pickled[number]


def values_in(batch: bytes) -> tuple[bytes, ...]:
    """The values of a record batch."""
    return _values(bytes(batch))


@functools.cache
def _values(batch: bytes) -> tuple[bytes, ...]:
    return tuple(decode(batch, scan(batch))["value"].to_pylist())


class KafkaModel(ModelKafka):
    """A cluster that writes markers at once, or as `later` says; `requests` are those that came to it, by API.

    Of the faults that its world allows, the network makes those of `kinds`.
    """

    def __init__(
        self,
        version: int = 2,
        topics: Mapping[str, int] | None = None,
        *,
        nodes: int = 2,
        conditions: Conditions = USUAL,
        later: Later = lambda _, action: action(),
        leaves_out: LeavesOut = lambda _joined: None,
        kinds: Mapping[str, int] = KINDS,
    ) -> None:
        self._kinds = kinds
        self.world = World(Seeded(0))
        self._process = Process(self.world, "test")
        self.requests: list[tuple[str, Any]] = []
        self.meets: dict[str, Meeting] = {}
        super().__init__(
            transaction_version=version,
            topics=topics or {},
            later=later,
            leaves_out=leaves_out,
            contents=lambda _tp, batch: values_in(batch),
            clock=self.clock,
            nodes=nodes,
            conditions=conditions,
        )

    def handle(self, node: int, api: str, version: int, request: Any) -> Any:
        self.requests.append((api, request))
        answer = functools.partial(super().handle, node, api, version, request)
        return self.meets[api](request, answer) if api in self.meets else answer()

    def __reduce__(self) -> tuple[Callable[[int], KafkaModel], tuple[int]]:
        """A pickled copy, as in another process, talks to the same cluster."""
        _pickled[id(self)] = self
        return _unpickled, (id(self),)

    def before(self, api: str, happens: Callable[[], object]) -> None:
        """Something happens just before the next request of this API arrives."""

        def meet(_request: Any, answer: Callable[[], Any]) -> Any:
            del self.meets[api]
            happens()
            return answer()

        self.meets[api] = meet

    def clock(self) -> float:
        """Seconds since the world began."""
        return self.world.now

    def cluster(self, options: ClientOptions = CLIENT) -> Cluster:
        """The product's connections to this cluster, wherever these options look for one."""
        return Cluster(
            replace(options, bootstrap_servers=CLIENT.bootstrap_servers),
            connect=Network(self, self._kinds).connector(self._process),
            clock=self.clock,
            sleep=self._process.sleep,
            jitter=lambda: 0.5,
        )

    def sent(self, api: str) -> list[Any]:
        """The requests of one API, in order."""
        return [request for name, request in self.requests if name == api]


def lost(_request: Any, _answer: Callable[[], Any]) -> None:
    """It does not arrive."""


def unanswered(_request: Any, answer: Callable[[], Any]) -> None:
    """It arrives, and the answer does not."""
    answer()


def refused(code: int) -> Meeting:
    """It is answered with this error code."""
    return lambda request, _answer: refusal(request.name.removesuffix("Request"), request, code)
