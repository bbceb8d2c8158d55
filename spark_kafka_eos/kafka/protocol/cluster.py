"""The brokers of a cluster: leaders of partitions, coordinators of groups and transactional.ids, and connections."""

from __future__ import annotations

import contextlib
import math
import os
import random
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

from kafka.protocol.metadata import FindCoordinatorRequest, MetadataRequest

from spark_kafka_eos.kafka.client_options import ClientOptions
from spark_kafka_eos.kafka.errors import BrokerUnreachable, UnknownTopic
from spark_kafka_eos.kafka.logs import logger
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.producer import ProducerIdentity
from spark_kafka_eos.kafka.protocol.acl_hints import ResourceRef
from spark_kafka_eos.kafka.protocol.backoff import Budget, Clock
from spark_kafka_eos.kafka.protocol.codes import ErrorCode
from spark_kafka_eos.kafka.protocol.connection import Connection, wait_for_first
from spark_kafka_eos.kafka.protocol.error_codes import Reaction, failure
from spark_kafka_eos.kafka.protocol.metadata import PartitionDescription, TopicDescription, newest
from spark_kafka_eos.kafka.protocol.responses import incomplete
from spark_kafka_eos.kafka.protocol.retry import Errors, ahead, retry
from spark_kafka_eos.kafka.reserved_topics import INTERNAL, ReservedTopics

_log = logger(__name__)

CoordinatorKind = Literal["group", "transaction"]
_Address = tuple[str, int]
_Setting = TypeVar("_Setting")

_KEY_TYPES: Mapping[CoordinatorKind, int] = {"group": 0, "transaction": 1}
# Some brokers do not know a new topic for a moment; a misspelled one should not use up the whole budget.
UNKNOWN_TOPIC_PATIENCE_MS = 5_000
METADATA_MAX_AGE_S = 300  # as the Java client's metadata.max.age.ms: maximum delay until a new partition is noticed
# Of request.timeout.ms: after this long without a response, a second broker is asked what any broker knows. Metadata is
# a matter of milliseconds, and a paused broker's connection looks like an idle one. The Java client waits for longer.
_SHARE_OF_ONE = 0.1
# However many brokers there are, each has this long to accept a connection; one on another continent takes a third.
_LEAST_SHARE_MS = 1_000
_SAID_AFTER_S = 5  # until then, a cluster that was not reached yet is tried in silence


class Cluster:
    """Connections and cached metadata of a cluster; looked up when needed, and again when a response requires it.

    `open_transactions` are the transactions of this process of which their coordinators said last that they are open,
    by transactional.id (`transactions.was_opened`). They are here, as other answers are, because whoever appends gets
    them, not only the owner of the id.

    Not thread-safe. `connect`, `clock`, `sleep` and `jitter` are for tests.
    """

    def __init__(
        self,
        options: ClientOptions,
        *,
        connect: Callable[[str, int, ClientOptions], Connection] = Connection,
        clock: Clock = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.options = options
        self.clock, self.sleep = clock, sleep
        self._connect, self._jitter = connect, jitter
        self._connections: dict[tuple[str, int, int], Connection] = {}  # by address and number
        # For a shared cluster, whose thread has ended.
        weakref.finalize(self, _close, self._connections).atexit = False
        self._nodes: dict[int, _Address] = {}
        self._turns: dict[_Address, int] = {}  # when any broker would have done: which one was asked when
        self._topics: dict[str, tuple[float, TopicDescription]] = {}
        self._kept: dict[str, dict[str, tuple[float, Any]]] = {}  # by setting and topic
        self._coordinators: dict[tuple[CoordinatorKind, str], int] = {}
        self.open_transactions: dict[str, ProducerIdentity] = {}
        self._id: str | None = None
        self._reached = False
        self._unreached_since: float | None = None  # until it is said

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection; requests in flight stay unanswered."""
        _close(self._connections)
        self._connections.clear()

    # -- metadata

    def cluster_id(self) -> str:
        """The cluster's id (KIP-78), "" if its brokers do not return one; it never changes."""
        if self._id is None:
            request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
            self._id = self.call_any(request, lambda _: ()).cluster_id or ""
        return self._id

    def topic(self, name: str) -> TopicDescription:
        """The topic as last looked up. Raises UnknownTopic."""
        looked_up, description = self._topics.get(name, (-math.inf, None))
        if description is None or self.clock() - looked_up > METADATA_MAX_AGE_S:
            self.refresh([name])
            _, description = self._topics[name]
        return description

    def look_up(self, names: Iterable[str], *, optional: Collection[str] = ()) -> None:
        """Have the descriptions of these topics at hand: one request for all that are missing or too old, where `topic`
        would send one for each. Raises UnknownTopic, except for `optional` ones: these need not exist, and are not
        waited for (`knows`).
        """
        now = self.clock()
        descriptions = self._topics
        if due := [
            name for name in set(names) if name not in descriptions or now - descriptions[name][0] > METADATA_MAX_AGE_S
        ]:
            self._describe(due, patience_ms=UNKNOWN_TOPIC_PATIENCE_MS, optional=optional)

    def knows(self, name: str) -> bool:
        """Whether the topic existed when it was last looked up."""
        looked_up, _ = self._topics.get(name, (-math.inf, None))
        return looked_up > -math.inf

    def kept(
        self, setting: str, topics: Collection[str], look_up: Callable[[Sequence[str]], Mapping[str, _Setting]]
    ) -> dict[str, _Setting]:
        """This setting, or these, of each topic, cached as long as the topic's description; one `look_up` for all that
        are missing or too old.
        """
        cached, now = self._kept.setdefault(setting, {}), self.clock()
        if due := [name for name in topics if name not in cached or now - cached[name][0] > METADATA_MAX_AGE_S]:
            values, now = look_up(due), self.clock()
            cached |= {name: (now, values[name]) for name in due}
        return {name: cached[name][1] for name in topics}

    def topic_names(self, *, internal: bool = False) -> list[str]:
        """All topics this principal may describe, sorted; Kafka's own only with `internal`."""
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        response = self.call_any(request, lambda _: ())
        return sorted(topic.name for topic in response.topics if internal or not topic.is_internal)

    def refresh(self, names: Iterable[str], *, patience_ms: int | None = None, elsewhere: bool = False) -> None:
        """Look up these topics again; `elsewhere`: at another broker than the last time, because its answer was wrong.

        A broker may be outdated, so the newest of all descriptions of a topic counts. Raises UnknownTopic if no broker
        knows one of them within `patience_ms`, by default 5 s.
        """
        patience_ms = UNKNOWN_TOPIC_PATIENCE_MS if patience_ms is None else patience_ms
        self._describe(names, patience_ms=patience_ms, elsewhere=elsewhere)

    def existing(self, names: Iterable[str], *, patience_ms: int | None = None) -> list[str]:
        """Look up these topics again, all at once, and return those that exist, sorted; `patience_ms` as of
        `refresh`.
        """
        patience = self.budget(UNKNOWN_TOPIC_PATIENCE_MS if patience_ms is None else patience_ms)
        return self._describe(names, given_up=lambda: patience.spent)

    def _describe(
        self,
        names: Iterable[str],
        *,
        given_up: Callable[[], bool] = lambda: False,
        optional: Collection[str] = (),
        patience_ms: int | None = None,
        elsewhere: bool = False,
    ) -> list[str]:
        """Learn the descriptions of these topics, and return which ones exist. Unknown ones are left out once they are
        `given_up`, `optional` ones at once.
        """
        names = sorted(set(names))
        before = {name: self._topics[name][1] for name in names if name in self._topics}
        self._topics |= {name: (-math.inf, description) for name, description in before.items()}

        def errors(response: Any) -> Iterable[tuple[ResourceRef, int]]:
            for topic in response.topics:
                unknown = topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if not (unknown and (topic.name in optional or given_up())):
                    yield ResourceRef(topic=topic.name), topic.error_code
            if error := incomplete("Metadata", names, (topic.name for topic in response.topics)):
                raise error

        topics = [MetadataRequest.MetadataRequestTopic(topic_id=uuid.UUID(int=0), name=name) for name in names]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        response = self.call_any(request, errors, patience_ms=patience_ms, elsewhere=elsewhere)
        self._learn(response)
        self._id = response.cluster_id or ""
        described, now = [topic for topic in response.topics if not topic.error_code], self.clock()
        for topic in described:
            partitions = {
                p.partition_index: PartitionDescription(leader=p.leader_id, leader_epoch=p.leader_epoch)
                for p in topic.partitions
            }
            description = TopicDescription(
                name=topic.name, id=topic.topic_id, partitions=partitions, internal=bool(topic.is_internal)
            )
            self._topics[topic.name] = now, newest(before.get(topic.name), description)
        return sorted(topic.name for topic in described)

    def exists(self, topic: str, *, patience_ms: int | None = None) -> bool:
        """Look up `topic`; `patience_ms` as of `refresh`."""
        return bool(self.existing([topic], patience_ms=patience_ms))

    def leader(self, partition: TopicPartition) -> int:
        """The node id of the partition's leader; waits for an election. Raises UnknownTopic."""
        description = self._partition(partition)
        if description.leader >= 0:
            return description.leader

        def attempt() -> int:
            self.refresh([partition.topic], elsewhere=True)
            return self._partition(partition).leader

        def errors(leader: int) -> Iterable[tuple[str, int]]:
            yield str(partition), 0 if leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE

        return int(retry("Metadata", attempt, errors, lambda _: None, budget=self.budget(), sleep=self.sleep))

    def known_leader(self, partition: TopicPartition) -> int:
        """The same as last looked up, -1 during an election; does not wait for it."""
        return self._partition(partition).leader

    def leader_epoch(self, partition: TopicPartition) -> int:
        """The epoch of the leader as last looked up, -1 if unknown."""
        return self._partition(partition).leader_epoch

    def look_up_reserved(self, reserved: ReservedTopics) -> None:
        """Look up the reserved topic that has an id, unless it is known. It may not exist yet."""
        if reserved.by_id and reserved.by_id not in self._topics:
            self.existing([reserved.by_id], patience_ms=0)

    def why_reserved(self, topic: str, reserved: ReservedTopics) -> str | None:
        """Why no record may go to `topic`, None if it may.

        By name, by what the brokers call internal, and by topic id: a gateway may give a reserved topic a second name.
        The id of a reserved topic only counts if it was looked up. Raises UnknownTopic.
        """
        if (why := reserved.reason(topic)) is not None:
            return why
        if self.topic(topic).internal:
            return INTERNAL
        topic_id = self.topic(topic).id
        reasons = {self._topics[name][1].id: why for name, why in reserved.reasons.items() if name in self._topics}
        return reasons.get(topic_id) if topic_id.int else None

    def leader_epochs(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The same of each partition whose leader's epoch is known; sends no request."""
        described = {name: description.partitions for name, (_, description) in self._topics.items()}
        places = ((tp, described.get(tp.topic, {}).get(tp.partition)) for tp in partitions)
        return {tp: place.leader_epoch for tp, place in places if place is not None and place.leader_epoch >= 0}

    def _partition(self, partition: TopicPartition) -> PartitionDescription:
        partitions = self.topic(partition.topic).partitions
        if partition.partition not in partitions:
            self.refresh([partition.topic], elsewhere=True)
            partitions = self.topic(partition.topic).partitions
        if partition.partition not in partitions:
            raise UnknownTopic(
                f"topic {partition.topic!r} has no partition {partition.partition}, only {len(partitions)} partitions"
            )
        return partitions[partition.partition]

    def transaction_version(self) -> int:
        """The finalized feature `transaction.version`: 2 is KIP-890's protocol, 0 and 1 are the older one."""
        return int(self.some_broker().finalized_features.get("transaction.version", 0))

    def some_broker(self) -> Connection:
        """A connection to any broker; waits until one answers."""
        budget = self.budget()
        connection: Connection = retry(
            "ApiVersions", lambda: self._any(budget), lambda _: (), lambda _: None, budget=budget, sleep=self.sleep
        )
        return connection

    # -- connections

    def connection(self, node_id: int, number: int = 0) -> Connection:
        """A usable connection to a node, the one of this number among several; raises BrokerUnreachable."""
        if node_id not in self._nodes:
            self._learn_nodes()
        if node_id not in self._nodes:
            raise BrokerUnreachable(f"broker {node_id} is not in the cluster's metadata")
        return self._open(self._nodes[node_id], number)

    def nodes(self) -> list[int]:
        """The ids of the brokers there are now, sorted."""
        self._learn_nodes()
        return sorted(self._nodes)

    def controller(self) -> int:
        """The node id of the broker that accepts changes to the cluster, such as a new topic."""
        return int(self._learn_nodes().controller_id)

    def _open(self, address: tuple[str, int], number: int = 0, *, tcp_timeout_ms: int | None = None) -> Connection:
        connection = self._connections.get((*address, number))
        if connection is not None:
            if connection.usable:
                return connection
            connection.close()
        options = self.options if tcp_timeout_ms is None else replace(self.options, tcp_timeout_ms=tcp_timeout_ms)
        opened = self._connections[*address, number] = self._connect(*address, options)
        self._reached = True
        return opened

    def _any(self, budget: Budget, *, elsewhere: bool = False) -> Connection:
        """Any broker, each in turn: connected ones first, then the known ones, then the bootstrap servers. Those to
        which packets are dropped share the time of `budget`, so that all are tried within it.

        `elsewhere`: the one that was asked last comes after the known ones; if it is none of them, after all.
        """
        idle = {
            (host, port): connection
            for (host, port, _), connection in self._connections.items()
            if connection.usable and not connection.in_flight
        }
        nodes, turns, servers = self._nodes.values(), self._turns, self.options.bootstrap_servers
        last = max(turns, key=lambda address: turns[address], default=None) if elsewhere else None
        brokers = sorted(
            dict.fromkeys(address for address in (*idle, *nodes) if address != last or address in nodes),
            key=lambda address: (address not in idle or address == last, turns.get(address, 0)),
        )
        if elsewhere:
            servers = tuple(sorted(servers, key=lambda address: turns.get(address, 0)))
        reasons = []
        addresses = list(dict.fromkeys([*brokers, *servers]))
        for tried, address in enumerate(addresses):
            share_ms = max(_LEAST_SHARE_MS, int(budget.remaining * 1000) // (len(addresses) - tried))
            self._turns[address] = 1 + max(self._turns.values(), default=0)
            try:
                return idle.get(address) or self._open(address, tcp_timeout_ms=share_ms)
            except BrokerUnreachable as error:
                reasons.append(error.what)
        what = f"cannot connect to any broker (kafka.bootstrap.servers={self.options.servers}): {'; '.join(reasons)}"
        self._say_unreached(what)
        raise BrokerUnreachable(
            what,
            action="Check the addresses and the brokers' advertised.listeners.",
        )

    def _ask_any(self, request: Any, budget: Budget, *, elsewhere: bool = False) -> Any:
        """The first response of any broker; a second one is asked if the first one is silent, and so on.

        For requests of which it does not matter how many brokers get them.
        """
        asked: dict[Connection, int] = {}
        silence = _SHARE_OF_ONE * self.options.request_timeout_ms / 1000
        try:
            while (connection := self._any(budget, elsewhere=elsewhere or bool(asked))) not in asked:
                asked[connection] = connection.send(request)
                if wait_for_first(asked.items(), silence):
                    break
        except BrokerUnreachable:
            if not asked:
                raise
        return _first_response(asked)

    def _say_unreached(self, what: str) -> None:
        """Warn once, before the budget is used up, if the first connection is not made."""
        if self._reached:
            return
        if self._unreached_since is None:
            self._unreached_since = self.clock()
        if self.clock() - self._unreached_since >= _SAID_AFTER_S:
            _log.warning("%s; trying for up to kafka.request.timeout.ms (%d)", what, self.options.request_timeout_ms)
            self._unreached_since = math.inf  # which no time is later than

    def _learn_nodes(self) -> Any:
        budget = self.budget(self.options.request_timeout_ms)
        response = self._ask_any(MetadataRequest(topics=[], allow_auto_topic_creation=False), budget)
        self._learn(response)
        return response

    def _learn(self, response: Any) -> None:
        """Take the nodes from a Metadata response, and close connections to addresses that are no longer used."""
        self._nodes = {broker.node_id: (broker.host, broker.port) for broker in response.brokers}
        addresses = {*self._nodes.values(), *self.options.bootstrap_servers}
        for (host, port, number), connection in list(self._connections.items()):
            if (host, port) not in addresses and not connection.in_flight:
                connection.close()
                del self._connections[host, port, number]

    # -- requests with retries

    def budget(self, milliseconds: int | None = None, clock: Clock | None = None) -> Budget:
        """A new budget: by default delivery.timeout.ms, but only request.timeout.ms until the cluster has been
        reached. `clock`: seconds, by default the cluster's.
        """
        if milliseconds is None:
            milliseconds = self.options.delivery_timeout_ms if self._reached else self.options.request_timeout_ms
        return Budget(
            milliseconds=milliseconds,
            backoff_ms=self.options.retry_backoff_ms,
            backoff_max_ms=self.options.retry_backoff_max_ms,
            clock=clock or self.clock,
            jitter=self._jitter,
        )

    def call_any(self, request: Any, errors: Errors, *, patience_ms: int | None = None, elsewhere: bool = False) -> Any:
        """Call any broker, and another one for each retry; with `elsewhere`, another one than the last time.

        UNKNOWN_TOPIC_OR_PARTITION is only retried for `patience_ms`.
        """
        api = request.name.removesuffix("Request")
        patient = self._patient(api, errors, patience_ms)
        retried = iter([elsewhere])
        budget = self.budget()

        def attempt() -> Any:
            return self._ask_any(request, budget, elsewhere=next(retried, True))

        return retry(api, attempt, patient, lambda _: None, budget=budget, sleep=self.sleep)

    def call_node(self, node: int, request: Any, errors: Errors) -> Any:
        """Call this broker, whichever role it has."""
        api = request.name.removesuffix("Request")
        return retry(
            api,
            lambda: self.connection(node).call(request),
            errors,
            lambda _: None,
            budget=self.budget(),
            sleep=self.sleep,
        )

    def _patient(self, api: str, errors: Errors, patience_ms: int | None) -> Errors:
        """`errors`, but raises UnknownTopic if a topic stays unknown for `patience_ms`."""
        patience = self.budget(patience_ms)

        def patient(response: Any) -> Iterable[tuple[ResourceRef | str, int]]:
            for resource, code in errors(response):
                if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and patience.delay() is None:
                    raise failure(api, code, resource)
                yield resource, code

        return patient

    def coordinator(self, kind: CoordinatorKind, key: str) -> int:
        """The node id of the coordinator of a consumer group or a transactional.id; waits until there is one."""
        if (kind, key) not in self._coordinators:
            resource = ResourceRef(group=key) if kind == "group" else ResourceRef(transactional_id=key)
            request = FindCoordinatorRequest(key=key, key_type=_KEY_TYPES[kind])
            response = self.call_any(request, lambda response: [(resource, response.error_code)])
            self._nodes[response.node_id] = (response.host, response.port)
            self._coordinators[kind, key] = response.node_id
        return self._coordinators[kind, key]

    def call_coordinator(
        self,
        kind: CoordinatorKind,
        key: str,
        request: Any,
        errors: Errors,
        *,
        newest: int | None = None,
        exactly: int | None = None,
        unanswered: Callable[[], None] = lambda: None,
        again: Callable[[], None] = lambda: None,
    ) -> Any:
        """Send `request` to the coordinator until the response has no retriable error, within the budget.

        A topic that the coordinator does not know is only awaited for some seconds. `unanswered` is called each time
        the request may have been applied although there was no response; `again` before it is then sent once more.
        """
        return self.call_coordinator_ahead(
            kind, key, request, errors, newest=newest, exactly=exactly, unanswered=unanswered, again=again
        )()

    def call_coordinator_ahead(
        self,
        kind: CoordinatorKind,
        key: str,
        request: Any,
        errors: Errors,
        *,
        newest: int | None = None,
        exactly: int | None = None,
        unanswered: Callable[[], None] = lambda: None,
        again: Callable[[], None] = lambda: None,
    ) -> Callable[[], Any]:
        """As `call_coordinator`, whose response the function that is returned waits for; the request is sent now."""
        in_doubt = False

        @contextlib.contextmanager
        def noticing() -> Iterator[None]:
            nonlocal in_doubt
            try:
                yield
            except BrokerUnreachable:
                in_doubt = True
                unanswered()
                raise

        def send() -> tuple[Connection, int]:
            connection = self.connection(self.coordinator(kind, key))
            if in_doubt:
                again()
            with noticing():
                return connection, connection.send(request, newest=newest, exactly=exactly)

        budget = self.budget()
        sent = ahead(send)

        def attempt() -> Any:
            connection, correlation_id = sent()
            with noticing():
                return connection.receive(correlation_id)

        def recover(react: Reaction) -> None:
            if react is Reaction.FIND_COORDINATOR:
                self._coordinators.pop((kind, key), None)

        def wait() -> Any:
            api = request.name.removesuffix("Request")
            patient = self._patient(api, errors, UNKNOWN_TOPIC_PATIENCE_MS)
            return retry(api, attempt, patient, recover, budget=budget, sleep=self.sleep)

        return wait


def shared_cluster(options: ClientOptions) -> Cluster:
    """This thread's cluster for these options, kept as long as the thread, because there are many short tasks."""
    if _tasks.pid != os.getpid():  # forked: the open connections belong to the other process
        _tasks.pid, _tasks.clusters = os.getpid(), {}
    if options not in _tasks.clusters:
        _tasks.clusters[options] = Cluster(options)
    return _tasks.clusters[options]


def _first_response(asked: dict[Connection, int]) -> Any:
    """The first response to these requests, which are all the same; raises BrokerUnreachable if none has one."""
    try:
        while True:
            wait_for_first(asked.items(), math.inf)
            first = next(connection for connection, number in asked.items() if connection.arrived(number))
            try:
                return first.receive(asked.pop(first))
            except BrokerUnreachable:
                if not asked:
                    raise
    finally:
        for connection, number in asked.items():
            connection.forget(number)


def _close(connections: dict[tuple[str, int, int], Connection]) -> None:
    for connection in connections.values():
        connection.close()


class _Tasks(threading.local):
    """The clusters of one thread in this process. Not keyed by the thread's id, which may be reused."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.clusters: dict[ClientOptions, Cluster] = {}


_tasks = _Tasks()
